"""Hints that were on the topic, and how far a group follows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.truth.oracle.history import GroupState, History, owner_key
from tests.truth.oracle.lake_rows import by

if TYPE_CHECKING:
    from tests.truth.oracle.lake_rows import LakeRows, Row


@dataclass(slots=True)
class Hint:
    """A published hint: its events and its assignment."""

    event: Row
    ending: Row | None
    owners: dict[tuple[str, int], str]
    approved_by: str | None


def read_hints(rows: LakeRows, history: History, group_id: str | None) -> list[Hint]:
    """Return hints that were on the topic at any time of the period, oldest first."""
    events = [e for e in rows.events if e["event"] in {"PUBLISHED", "WITHDRAWN"}]
    # The recorded answers have no channel.
    approved = {e["plan_id"]: e["actor"] for e in rows.events if e["event"] == "APPROVED"}
    found = []
    for own_group, of_group in by(events, "group_id").items():
        in_order = sorted(of_group, key=lambda e: (e["at"], e["sequence"] or 0))
        for place, event in enumerate(in_order):
            later = in_order[place + 1 :]
            ends = [e for e in later if e["event"] == "PUBLISHED" or e["plan_id"] == event["plan_id"]]
            ending = ends[0] if ends else None
            is_inside = event["at"] <= history.until and (ending is None or ending["at"] >= history.since)
            if event["event"] == "PUBLISHED" and is_inside and group_id in {None, own_group}:
                plan_id = event["plan_id"]
                found.append(Hint(event, ending, _hinted(rows, plan_id), approved.get(plan_id)))
    return sorted(found, key=lambda hint: (hint.event["at"], hint.event["group_id"]))


def _hinted(rows: LakeRows, plan_id: str) -> dict[tuple[str, int], str]:
    assigned = rows.where("plan_assignments", plan_id=plan_id)
    return {
        (row["topic_id"], row["partition"]): row["owner_after_key"]
        for row in assigned
        if row["owner_after_key"] is not None
    }


def share(hint: Hint, state: GroupState) -> float:
    """Return the share of a hint's partitions that their hinted members own, and no other member."""
    owners: dict[tuple[str | None, int], list[str]] = {}
    for member in state.members.values():
        for topic in member["assignment"] or ():
            for one in topic["partitions"]:
                topic_id = state.topics[topic["topic"]][0]
                owners.setdefault((topic_id, one), []).append(owner_key(member))
    followed = sum(owners.get(partition) == [key] for partition, key in hint.owners.items())
    return followed / max(len(hint.owners), 1)
