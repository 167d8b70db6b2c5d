"""The history of groups that planning uses: consecutive breaches and back-offs.

Both come from tables alone, and only from slots up to the current one, so a repeat returns the same.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import DECISIONS, PLAN_EVALUATIONS
from evenlag.planning.context import GroupHistory
from evenlag.planning.plan_history import BREACH_COLUMNS, EVALUATION_COLUMNS, count_breaches, find_failures

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.planning.plan_history import Failures
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Policy


def read_history(
    reader: LakeReader, policy: Policy, cluster: str, slot: datetime
) -> Mapping[str, GroupHistory]:
    """Return the history of groups that planning a slot needs.

    Returns history by group id, without the groups that have none.
    """
    breaches = _read_breaches(reader, policy, cluster, slot)
    backing_off = _read_backing_off(reader, policy, cluster, slot)
    return {
        group_id: GroupHistory(breaches.get(group_id, 0), backing_off.get(group_id))
        for group_id in breaches.keys() | backing_off.keys()
    }


def _read_breaches(reader: LakeReader, policy: Policy, cluster: str, slot: datetime) -> dict[str, int]:
    needed = max((rule.gates.min_breaches for rule in policy.groups), default=1)
    if needed == 1:
        return {}
    gap_s = policy.clusters[cluster].history_window_s
    # The longest time that the needed number of breaches can span, with every gap at its limit.
    since = slot - timedelta(seconds=needed * gap_s)
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", since.astimezone(UTC).date()),
        ("slot", ">=", since),
        ("slot", "<", slot),
    ]
    decisions = reader.read(DECISIONS, columns=BREACH_COLUMNS, filters=filters)
    return count_breaches(decisions, before=slot, max_gap_s=gap_s)


def _read_backing_off(reader: LakeReader, policy: Policy, cluster: str, slot: datetime) -> dict[str, str]:
    longest = max((failure_window(rule) for rule in policy.groups), default=timedelta())
    if not longest:
        return {}
    since = slot - longest
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", since.astimezone(UTC).date()),
        ("slot", ">=", since),
        ("slot", "<=", slot),
    ]
    evaluations = reader.read(PLAN_EVALUATIONS, columns=EVALUATION_COLUMNS, filters=filters).to_pylist()
    of_groups = {group_id: policy.group_settings(cluster, group_id) for group_id in _groups(evaluations)}
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
    each_s = back_off.rest_s + back_off.horizon_s + settings.hint_ttl_s + settings.gates.cooldown_s
    # More than a thousand years cannot be subtracted from today.
    return timedelta(days=min(1 + back_off.after * each_s / 86_400, 366_000))


def _groups(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    return {row["group_id"] for row in rows}


def _backs_off(settings: GroupSettings, failures: Failures, slot: datetime) -> str | None:
    """Why a group backs off, else None. A changed rule starts over; after the rest it gets one more try."""
    back_off = settings.back_off
    is_same_rule = settings.canonical_json() == failures.settings
    if not back_off.after or failures.count < back_off.after or not is_same_rule:
        return None
    until = failures.last_slot + timedelta(seconds=back_off.rest_s)
    if slot >= until:
        return None
    return f"backs off until {until:%Y-%m-%d %H:%M} UTC: its last {failures.count} plans did not pay off"
