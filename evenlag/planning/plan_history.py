"""Planning history by group: consecutive breaches, and consecutive plans that did not pay off."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    import pyarrow as pa

BREACH_COLUMNS: Final = ("group_id", "slot", "is_breach")
EVALUATION_COLUMNS: Final = ("group_id", "plan_id", "slot", "published_at", "paid_off", "settings", "reason")


@dataclass(frozen=True, slots=True)
class Failures:
    """The newest consecutive plans of a group that did not pay off under the same settings.

    settings: Canonical text of the settings that they were made by.
    last_slot: The slot at which the last of them was evaluated.
    """

    count: int
    settings: str
    last_slot: datetime
    last_reason: str


def count_breaches(decisions: pa.Table, *, before: datetime, max_gap_s: int) -> dict[str, int]:
    """Count the consecutive breaches of each group up to a slot.

    Snapshots that are missing or could not be planned neither count nor interrupt the sequence. A gap of more
    than `max_gap_s` between two planned snapshots interrupts it.

    decisions: Rows of ``decisions`` of one cluster from before `before`, with :data:`BREACH_COLUMNS`.
    max_gap_s: Longest gap within a sequence, in seconds.
    """
    import pyarrow.compute as pc

    # A slot that was planned under two policies is a breach only if it is one under both.
    judged = (
        decisions.filter(pc.is_valid(decisions["is_breach"]))
        .group_by(["group_id", "slot"])
        .aggregate([("is_breach", "all")])
        .sort_by([("group_id", "ascending"), ("slot", "descending")])
    )
    columns = (judged[name].to_pylist() for name in ("group_id", "slot", "is_breach_all"))
    found: dict[str, int] = {}
    ended: set[str] = set()
    next_slots: dict[str, datetime] = defaultdict(lambda: before)
    for group_id, slot, is_breach in zip(*columns, strict=True):
        if group_id in ended:
            continue
        gap_s = (next_slots[group_id] - slot).total_seconds()
        if not is_breach or gap_s > max_gap_s:
            ended.add(group_id)
            continue
        found[group_id] = found.get(group_id, 0) + 1
        next_slots[group_id] = slot
    return found


def find_failures(evaluations: Iterable[Mapping[str, Any]]) -> dict[str, Failures]:
    """Find the newest consecutive plans of each group that did not pay off under the same settings.

    Evaluations without a result (null) neither count nor interrupt the sequence.

    evaluations: Rows of ``plan_evaluations`` of one cluster, with :data:`EVALUATION_COLUMNS`.
    """
    by_group: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in evaluations:
        if row["paid_off"] is not None:
            by_group[row["group_id"]].append(row)
    found = {}
    for group_id, rows in by_group.items():
        rows.sort(key=lambda row: row["plan_id"])
        rows.sort(key=lambda row: row["published_at"], reverse=True)
        newest = rows[0]
        count = 0
        for row in rows:
            if row["paid_off"] or row["settings"] != newest["settings"]:
                break
            count += 1
        if count:
            last_slot = max(row["slot"] for row in rows[:count])
            found[group_id] = Failures(count, newest["settings"], last_slot, newest["reason"])
    return found
