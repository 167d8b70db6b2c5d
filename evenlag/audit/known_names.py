"""Filters by topic and partition, with an error for names that the audit does not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.errors import NothingThereError
from evenlag.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_partitions(
    group: str, rows: Sequence[dict[str, Any]], topic: str | None, partition: int | None
) -> list[dict[str, Any]]:
    """Filter the partitions of a group by topic and number."""
    topics = {row["topic"] for row in rows}
    if topic is not None and topic not in topics:
        raise NothingThereError(
            f"the group {group!r} has no topic {topic!r} at that moment{did_you_mean(topic, topics)}"
        )
    of_topic = [row for row in rows if topic in {None, row["topic"]}]
    found = [row for row in of_topic if partition in {None, row["partition"]}]
    if partition is not None and not found:
        highest = max((row["partition"] for row in of_topic), default=None)
        what = f"the group {group!r} has no partition {partition:,}"
        where = "" if topic is None else f" of {topic!r}"
        known = "no partition at all" if highest is None else f"the highest is {highest:,}"
        raise NothingThereError(f"{what}{where} at that moment; {known}")
    return found
