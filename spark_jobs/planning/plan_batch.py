"""What one Arrow call does: plan the groups of a bundle, each for itself.

A group adds its decision and its plan with the head, of which columns are made once a bundle, and a group
that cannot be planned, whatever the reason, takes no other with it.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupType, Mode
from evenlag.planning.eligibility import hint_obstacle, planning_obstacle, read_groups
from spark_jobs.planning.plan_output import planned_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    import pyarrow as pa

    from assignor_core.metrics import Metrics
    from evenlag.logging_setup import WorkerLog
    from evenlag.planning.eligibility import GroupReading
    from evenlag.planning.group_batch import GroupBundle
    from evenlag.planning.group_planner import GroupPlan
    from evenlag.policy.settings import GroupSettings, Policy

_LOG = logging.getLogger(__name__)

PROPOSED: Final = "PROPOSED"
BREACH: Final = "BREACH"
NO_CHANGE: Final = "NO_CHANGE"
NOT_PLANNED: Final = "NOT_PLANNED"
FAILED: Final = "FAILED"


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What earlier snapshots tell of a group.

    Attributes
    ----------
    breaches
        How many readings in a row, up to the one before this, asked for a change.
    backs_off
        Why the group is left alone for now, None when it is not.
    """

    breaches: int = 0
    backs_off: str | None = None


_NO_HISTORY: Final = GroupHistory()
_METRICS: Final = (
    "max_member_lag_records",
    "mean_member_lag_records",
    "lag_skew",
    "min_member_partitions",
    "max_member_partitions",
    "balance_score",
)


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What all plans of a run share.

    Attributes
    ----------
    policy, policy_hash
        The policy and the hash of its text.
    cluster, kafka_cluster_id
        Name in the policy, id from the brokers.
    snapshot_id, slot, day
        The snapshot planned from.
    finished_at
        When that snapshot was read to its end: the time of what is decided from it.
    run_id
        The run.
    history
        What is known of groups from before; a group that is not in it has none.
    log
        How executors log, and about what; None: they do not.
    """

    policy: Policy
    policy_hash: str
    cluster: str
    kafka_cluster_id: str
    snapshot_id: str
    slot: datetime
    day: date
    finished_at: datetime
    run_id: str
    history: Mapping[str, GroupHistory] = field(default_factory=dict)
    log: WorkerLog | None = None


def plan_groups(lag: pa.Table, members: pa.Table, context: PlanContext) -> pa.Table:
    """Decide upon the groups of a bundle.

    Parameters
    ----------
    lag, members
        All rows of each group, in any order, with the columns that ``bundle_groups`` takes.
    context
        What all plans share.

    Returns
    -------
    pyarrow.Table
        By ``PLANNED``: a row for each group whose mode is not ``observe``, and for each further 10,000
        partitions of its plan; groups by id.
    """
    from evenlag.planning.group_batch import bundle_groups

    answer = _Answer(context)
    try:
        bundle = bundle_groups(lag, members)
    except Exception as error:  # noqa: BLE001 - rows of one group that nobody foresaw are not the others' fault
        return _plan_apart(lag, members, context, error)
    for number, reading in enumerate(read_groups(bundle)):
        answer.decide(bundle, number, reading)
    return answer.table(bundle)


def _plan_apart(lag: pa.Table, members: pa.Table, context: PlanContext, error: Exception) -> pa.Table:
    """A bundle that cannot be put in order: each of its groups alone, so that only the one at fault fails."""
    import pyarrow as pa
    import pyarrow.compute as pc

    both = pa.chunked_array([*lag["group_id"].chunks, *members["group_id"].chunks], pa.string())
    group_ids = sorted(pc.unique(both).to_pylist())
    if len(group_ids) == 1:
        answer = _Answer(context)
        settings, _ = answer.settings_of(group_ids[0])
        if settings.mode is not Mode.OBSERVE:
            answer.fail(group_ids[0], settings, error)
        return answer.table(None)
    return pa.concat_tables(
        plan_groups(
            lag.filter(pc.equal(lag["group_id"], group_id)),
            members.filter(pc.equal(members["group_id"], group_id)),
            context,
        )
        for group_id in group_ids
    )


@dataclass(slots=True, eq=False)
class _Answer:
    """What has been decided of a bundle so far, in lists to be made columns of."""

    context: PlanContext
    decisions: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, Any] | None] = field(default_factory=list)
    plans: list[tuple[int, GroupPlan]] = field(default_factory=list)
    _settings: dict[int, tuple[GroupSettings, str]] = field(default_factory=dict)

    def settings_of(self, group_id: str) -> tuple[GroupSettings, str]:
        """A group's settings and their canonical text, which is worked out once for all groups of a rule."""
        settings = self.context.policy.group_settings(self.context.cluster, group_id)
        # Kept with the text, so that no other settings come to have the same id.
        if id(settings) not in self._settings:
            self._settings[id(settings)] = settings, settings.canonical_json()
        return self._settings[id(settings)]

    def decide(self, bundle: GroupBundle, number: int, reading: GroupReading) -> None:
        """Decide upon one group; whatever goes wrong is its decision, too."""
        from assignor_core.errors import AssignorError

        group_id = bundle.group_ids[number]
        settings, settings_text = self.settings_of(group_id)
        if settings.mode is Mode.OBSERVE:
            return
        try:
            self._decide(bundle, number, reading, (settings, settings_text))
        except AssignorError as error:
            self._log(group_id, str(error))
            self._add(group_id, settings, FAILED, reason=str(error))
        except Exception as error:  # noqa: BLE001 - one group's bug is told, and is not the end of all others
            self.fail(group_id, settings, error)

    def _decide(
        self, bundle: GroupBundle, number: int, reading: GroupReading, rule: tuple[GroupSettings, str]
    ) -> None:
        from evenlag.planning.group_planner import build_group, plan_group

        group_id, settings = bundle.group_ids[number], rule[0]
        if obstacle := planning_obstacle(reading):
            self._add(group_id, settings, NOT_PLANNED, reason=obstacle)
            return
        if not bundle.num_lag_rows[number]:
            nothing = "none of the topics that its members take was read"
            self._add(group_id, settings, NOT_PLANNED, reason=nothing)
            return
        plan = plan_group(
            build_group(bundle, number),
            settings,
            kafka_cluster_id=self.context.kafka_cluster_id,
            group_id=group_id,
            snapshot_id=self.context.snapshot_id,
            is_for_brokers=reading.type == GroupType.CONSUMER,
        )
        if plan.is_change:
            self._propose(number, group_id, plan, rule, reading)
        else:
            self._add(group_id, settings, NO_CHANGE, is_breach=False, consecutive_breaches=0)

    def fail(self, group_id: str, settings: GroupSettings, error: Exception) -> None:
        """Tell of what should not happen: a reason for the table, a traceback for the log."""
        self._log(group_id, str(error), error)
        told = "".join(traceback.format_exception(error))
        reason = (
            f"unexpected {type(error).__name__}: {error}; this is a fault of evenlag, and the log of decide "
            "has its traceback"
        )
        self._add(group_id, settings, FAILED, reason=reason, traceback=told)

    def _log(self, group_id: str, reason: str, error: Exception | None = None) -> None:
        """Tell it in the executor's own log too, about the same run."""
        if self.context.log is None:
            return
        with self.context.log.about(group_id=group_id, snapshot_id=self.context.snapshot_id):
            _LOG.warning("the group could not be planned: %s", reason, exc_info=error)

    def _propose(
        self,
        number: int,
        group_id: str,
        plan: GroupPlan,
        settings: tuple[GroupSettings, str],
        reading: GroupReading,
    ) -> None:
        """A plan that would change the group: proposed when enough readings in a row have asked for it."""
        from assignor_core.hint import plan_id

        rule, settings_text = settings
        history = self.context.history.get(group_id, _NO_HISTORY)
        breaches, needed = history.breaches + 1, rule.gates.min_breaches
        told: dict[str, Any] = {"is_breach": True, "consecutive_breaches": breaches, "gain": plan.gain}
        if breaches < needed:
            waits = f"{breaches} of {needed} readings in a row ask for a change"
            self._add(group_id, rule, BREACH, reason=waits, **told)
            return
        reason = hint_obstacle(reading)
        if reason is None and rule.mode is not Mode.SHADOW:
            reason = history.backs_off
        known = {"mode": Mode.SHADOW.value if reason else rule.mode.value, "plan_id": plan_id(plan.payload)}
        head = _head_columns(plan, reading) | {"assignor": rule.assignor, "settings": settings_text}
        head |= {"mode_reason": reason, "consecutive_breaches": breaches}
        self._add(group_id, rule, PROPOSED, head, reason=reason, **known, **told)
        self.plans.append((number, plan))

    def _add(
        self,
        group_id: str,
        settings: GroupSettings,
        decision: str,
        head: dict[str, Any] | None = None,
        **columns: Any,
    ) -> None:
        mode = settings.mode.value
        self.decisions.append(
            {"group_id": group_id, "mode": mode, "policy_mode": mode, "decision": decision} | columns
        )
        self.heads.append(head)

    def table(self, bundle: GroupBundle | None) -> pa.Table:
        """All of it, by ``PLANNED``."""
        return planned_table(bundle, self.decisions, self.heads, self.plans)


def _known_metrics(measured: Metrics, num_unknown: int, num_partitions: int) -> dict[str, Any]:
    """Measures without what unknown lag makes meaningless: it counts as 0 in the arrays."""
    # Not asdict(): copying them value by value costs as much as measuring them.
    columns = {name: getattr(measured, name) for name in _METRICS}
    if num_unknown:
        columns |= {"mean_member_lag_records": None, "lag_skew": None}
        if num_unknown == num_partitions:
            columns["max_member_lag_records"] = None
    return columns


def _head_columns(plan: GroupPlan, reading: GroupReading) -> dict[str, Any]:
    group, num_unknown_lags = plan.rows.group, int(plan.rows.is_unknown.sum())
    return {
        "fingerprint": plan.fingerprint,
        "payload": plan.payload.decode("ascii"),
        "payload_bytes": len(plan.payload),
        "group_state": reading.state,
        "group_type": reading.type,
        "group_assignor": reading.assignor,
        "num_members": group.num_members,
        "num_partitions": group.num_partitions,
        "num_unassigned_partitions": int((plan.assignment < 0).sum()),
        "num_unknown_partitions": int(plan.is_unknown.sum()),
        "num_unknown_lags": num_unknown_lags,
        "num_stalled_partitions": int(plan.rows.stalled.sum()),
        "moves": plan.moves,
        "count_gap": plan.count_gap,
        "gain": plan.gain,
        "metrics_before": _known_metrics(plan.before, num_unknown_lags, group.num_partitions),
        "metrics_after": _known_metrics(plan.after, num_unknown_lags, group.num_partitions),
        "violations": list(plan.violations),
    }
