"""The history of groups that planning uses: consecutive breaches, and plans in a row that did not pay off.

Both come from tables alone, and only from slots up to the current one, so a repeat returns the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.compute as pc

from assignor_core.objective import Load
from evenlag.enums import PlanEvent
from evenlag.lag.arrays import Floats
from evenlag.lake.filters import matching
from evenlag.lake.tables import DECISIONS, FORECASTS, PLAN_EVALUATIONS, PLAN_EVENTS, SNAPSHOTS
from evenlag.planning.expectations import expected_of
from evenlag.planning.group_work import NO_FACTS, GroupFacts
from evenlag.planning.plan_batch import GroupHistory
from evenlag.policy.gates import cooldown_of
from evenlag.policy.portable_settings import plain_values

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.filters import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.planning.expectations import Expected
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Policy


BREACH_COLUMNS: Final = ("group_id", "slot", "is_breach")
COST_COLUMNS: Final = ("group_id", "follow_ms", "rebalancing_ms")
# Plans of so long ago say how long the group takes to follow one.
_FOLLOWED_WITHIN: Final = timedelta(days=7)
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


def read_history(
    reader: LakeReader, policy: Policy, cluster: str, slot: datetime
) -> Mapping[str, GroupHistory]:
    """Return the history of groups that planning a slot needs.

    Returns history by group id, without the groups that have none.
    """
    breaches = _read_breaches(reader, policy, cluster, slot)
    backing_off = _read_backing_off(reader, policy, cluster, slot)
    facts = _read_facts(reader, policy, cluster, slot)
    expected = _read_expected(reader, cluster, slot)
    return {
        group_id: GroupHistory(
            breaches.get(group_id, 0),
            backing_off.get(group_id),
            facts.get(group_id, NO_FACTS),
            expected.get(group_id, ()),
        )
        for group_id in breaches.keys() | backing_off.keys() | facts.keys() | expected.keys()
    }


def _read_expected(reader: LakeReader, cluster: str, slot: datetime) -> dict[str, tuple[Expected, ...]]:
    """What is predicted of each group if it stays as it is."""
    columns, filters = ["group_id", "predictions"], _of_slot(cluster, slot)
    rows = reader.read(FORECASTS, columns=columns, filters=filters).to_pylist()
    found = {row["group_id"]: expected_of(row["predictions"]) for row in rows}
    return {group_id: expected for group_id, expected in found.items() if expected}


def _of_slot(cluster: str, slot: datetime) -> list[Filter]:
    return matching(cluster=cluster, day=slot.astimezone(UTC).date(), slot=slot)


def _since(cluster: str, moment: datetime) -> list[Filter]:
    return matching(cluster=cluster, since=moment.astimezone(UTC).date())


def _read_facts(reader: LakeReader, policy: Policy, cluster: str, slot: datetime) -> dict[str, GroupFacts]:
    """What is known of forecasts and of followed plans, of the groups that are planned by time."""
    if not any(rule.load is Load.TIME for rule in policy.groups):
        return {}
    recent = _since(cluster, slot - _FOLLOWED_WITHIN)
    slots = reader.read(SNAPSHOTS, columns=["slot"], filters=[*recent, ("slot", "<", slot)])
    before = max(slots["slot"].to_pylist(), default=None)
    interval_s = None if before is None else (slot - before).total_seconds()
    events = [*recent, ("at", "<", slot), *matching(event=PlanEvent.PUBLISHED)]
    costs = reader.read(PLAN_EVENTS, columns=COST_COLUMNS, filters=events).to_pylist()
    errors = reader.read(
        FORECASTS,
        columns=["group_id", "common_errors", "own_errors"],
        filters=_of_slot(cluster, slot),
    )
    found = {
        row["group_id"]: GroupFacts(
            interval_s=interval_s, common=_floats(row["common_errors"]), own=_floats(row["own_errors"])
        )
        for row in errors.to_pylist()
        if policy.group_settings(cluster, row["group_id"]).load is Load.TIME
    }
    for group_id in found.keys() & {row["group_id"] for row in costs}:
        of_group = [row for row in costs if row["group_id"] == group_id]
        follow_s, rebalancing_s = (
            float(np.median(known)) / 1000 if known else None
            for known in (
                [row[name] for row in of_group if row[name] is not None]
                for name in ("follow_ms", "rebalancing_ms")
            )
        )
        found[group_id] = replace(found[group_id], follow_s=follow_s, rebalancing_s=rebalancing_s)
    return found


def _floats(values: list[float] | None) -> Floats | None:
    return np.array(values) if values else None


def _read_breaches(reader: LakeReader, policy: Policy, cluster: str, slot: datetime) -> dict[str, int]:
    needed = max((rule.gates.min_breaches for rule in policy.groups), default=1)
    if needed == 1:
        return {}
    gap_s = policy.clusters[cluster].history_window_s
    # The longest time that the needed number of breaches can span, with every gap at its limit.
    since = slot - timedelta(seconds=needed * gap_s)
    filters = [*_since(cluster, since), ("slot", ">=", since), ("slot", "<", slot)]
    decisions = reader.read(DECISIONS, columns=BREACH_COLUMNS, filters=filters)
    return count_breaches(decisions, before=slot, max_gap_s=gap_s)


def _read_backing_off(reader: LakeReader, policy: Policy, cluster: str, slot: datetime) -> dict[str, str]:
    from evenlag.policy.group_settings import complete_settings_text

    longest = max((failure_window(rule) for rule in policy.groups), default=timedelta())
    if not longest:
        return {}
    since = slot - longest
    filters = [*_since(cluster, since), ("slot", ">=", since), ("slot", "<=", slot)]
    evaluations = reader.read(PLAN_EVALUATIONS, columns=EVALUATION_COLUMNS, filters=filters).to_pylist()
    texts = {text: complete_settings_text(text) for text in {row["settings"] for row in evaluations}}
    evaluations = [row | {"settings": texts[row["settings"]]} for row in evaluations]
    group_ids = {row["group_id"] for row in evaluations}
    of_groups = {group_id: policy.group_settings(cluster, group_id) for group_id in group_ids}
    counted = [row for row in evaluations if row["slot"] >= slot - failure_window(of_groups[row["group_id"]])]
    reasons = {}
    for group_id, failures in find_failures(counted).items():
        if reason := _backs_off(of_groups[group_id], failures, slot):
            reasons[group_id] = f"{reason}; the last: {failures.last_reason}"
    return reasons


def failure_window(settings: GroupSettings) -> timedelta:
    """Return how far back plans that did not pay off count towards a back-off.

    A group that backs off tries again after each rest. So the consecutive failures that begin the next rest
    are at most a rest, the waiting for a plan (a cooldown, a hint's life) and its evaluation apart. A group
    that needed no plan for longer than that starts over.

    Returns ``after`` times all of these, and a day; 0 if the group never backs off.
    """
    back_off = settings.back_off
    if not back_off.after:
        return timedelta()
    cooldown_s = cooldown_of(plain_values(settings), None)
    each_s = back_off.rest_s + back_off.horizon_s + settings.hint_ttl_s + cooldown_s
    # More than a thousand years cannot be subtracted from today.
    return timedelta(days=min(1 + back_off.after * each_s / 86_400, 366_000))


def _backs_off(settings: GroupSettings, failures: Failures, slot: datetime) -> str | None:
    """Why a group backs off, else None. A changed rule starts over; after the rest it gets one more try."""
    from evenlag.policy.group_settings import complete_settings_text

    back_off = settings.back_off
    is_same_rule = complete_settings_text(settings.canonical_json()) == failures.settings
    if not back_off.after or failures.count < back_off.after or not is_same_rule:
        return None
    until = failures.last_slot + timedelta(seconds=back_off.rest_s)
    if slot >= until:
        return None
    return f"backs off until {until:%Y-%m-%d %H:%M} UTC: its last {failures.count} plans did not pay off"
