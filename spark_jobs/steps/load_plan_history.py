"""The history of groups that planning uses: consecutive breaches and back-offs.

Both come from tables alone, and only from slots up to the current one, so a repeat returns the same. The
driver collects little data: a number or a sentence for each group that has one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from evenlag.lake.tables import DECISIONS, PLAN_EVALUATIONS
from spark_jobs.planning.context import GroupHistory
from spark_jobs.transforms.plan_history import count_breaches, find_backing_off

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Policy
    from spark_jobs.runtime.delta_lake import Lake


def read_history(lake: Lake, policy: Policy, cluster: str, slot: datetime) -> Mapping[str, GroupHistory]:
    """Return the history of groups that planning a slot needs.

    Parameters
    ----------
    lake
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
    breaches = _read_breaches(lake, policy, cluster, slot)
    backing_off = _read_backing_off(lake, policy, cluster, slot)
    return {
        group_id: GroupHistory(breaches.get(group_id, 0), backing_off.get(group_id))
        for group_id in breaches.keys() | backing_off.keys()
    }


def _read_breaches(lake: Lake, policy: Policy, cluster: str, slot: datetime) -> dict[str, int]:
    from pyspark.sql import functions as sf

    needed = max((rule.gates.min_breaches for rule in policy.groups), default=1)
    if needed == 1 or not lake.exists(DECISIONS):
        return {}
    gap_s = policy.clusters[cluster].history_window_s
    # The longest time that the needed number of breaches can span, with every gap at its limit.
    since = slot - timedelta(seconds=needed * gap_s)
    decisions = lake.read(DECISIONS).where(
        (sf.col("cluster") == cluster)
        & (sf.col("day") >= sf.lit(since.date()))
        & (sf.col("slot") >= sf.lit(since))
        & (sf.col("slot") < sf.lit(slot))
    )
    found = count_breaches(decisions, before=slot, max_gap_s=gap_s)
    return {row.group_id: row.breaches for row in found.collect()}


def _read_backing_off(lake: Lake, policy: Policy, cluster: str, slot: datetime) -> dict[str, str]:
    from pyspark.sql import functions as sf

    longest = max((rule.back_off.rest_s for rule in policy.groups if rule.back_off.after), default=0)
    if not longest or not lake.exists(PLAN_EVALUATIONS):
        return {}
    scores = lake.read(PLAN_EVALUATIONS).where(
        (sf.col("cluster") == cluster) & (sf.col("slot") <= sf.lit(slot))
    )
    reasons = {}
    for row in find_backing_off(scores).collect():
        settings = policy.group_settings(cluster, row.group_id)
        if reason := _backs_off(settings, row.settings, row.failures, row.last_slot_ms, slot):
            reasons[row.group_id] = f"{reason}; the last: {row.last_reason}"
    return reasons


def _backs_off(
    settings: GroupSettings, scored_by: str, failures: int, last_slot_ms: int, slot: datetime
) -> str | None:
    """Why a group backs off, else None. A changed rule starts over; after the rest it gets one more try."""
    back_off = settings.back_off
    if not back_off.after or failures < back_off.after or settings.canonical_json() != scored_by:
        return None
    until = datetime.fromtimestamp(last_slot_ms / 1000, UTC) + timedelta(seconds=back_off.rest_s)
    if slot >= until:
        return None
    return f"backs off until {until:%Y-%m-%d %H:%M} UTC: its last {failures} plans did not pay off"
