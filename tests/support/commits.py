"""Offsets that a test commits for a group without members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


def commit_offsets(admin: Any, group_id: str, offsets: Mapping[Any, Any]) -> None:
    """Commit until the group's coordinator has taken it: one that has just started refuses for a while."""
    wait_until(
        lambda: not any(error.errno for error in admin.alter_group_offsets(group_id, offsets).values()),
        what=f"the commits of {group_id} are not taken",
    )
