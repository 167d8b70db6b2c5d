"""The history of groups that planning uses: consecutive breaches and back-offs.

Both come from tables alone, and only from slots up to the current one, so a repeat returns the same.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from evenlag.lake.tables import DECISIONS, PLAN_EVALUATIONS
from evenlag.planning.plan_history import BREACH_COLUMNS, EVALUATION_COLUMNS, count_breaches, find_failures
from spark_jobs.planning.context import GroupHistory

if TYPE_CHECKING:
    from collections.abc import Mapping
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

    Parameters
    ----------
    reader
        The tables.
    policy
        Only the history that its rules use is read.
    cluster
        Name of the cluster in the policy.
    slot
        The slot to plan.

    Returns
    -------
    Mapping
        History by group id, without the groups that have none.
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
    longest = max((rule.back_off.rest_s for rule in policy.groups if rule.back_off.after), default=0)
    if not longest:
        return {}
    filters: list[Filter] = [("cluster", "=", cluster), ("slot", "<=", slot)]
    evaluations = reader.read(PLAN_EVALUATIONS, columns=EVALUATION_COLUMNS, filters=filters)
    reasons = {}
    for group_id, failures in find_failures(evaluations.to_pylist()).items():
        settings = policy.group_settings(cluster, group_id)
        if reason := _backs_off(settings, failures, slot):
            reasons[group_id] = f"{reason}; the last: {failures.last_reason}"
    return reasons


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
