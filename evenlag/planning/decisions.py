"""The values that planning passes from stage to stage: a selected group, its decision, its plan's head."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignor_core.metrics import Metrics
    from evenlag.enums import DecisionKind
    from evenlag.planning.eligibility import GroupSummary
    from evenlag.planning.group_planner import GroupPlan
    from evenlag.policy.group_settings import GroupSettings

_METRICS: Final = (
    "max_member_lag_records",
    "mean_member_lag_records",
    "lag_skew",
    "min_member_partitions",
    "max_member_partitions",
    "balance_score",
)


@dataclass(frozen=True, slots=True)
class SelectedGroup:
    """A group of a batch whose mode is not ``observe``.

    summary: Its rows of ``members`` as a whole.
    settings, settings_text: The settings in effect, and their canonical text.
    """

    number: int
    group_id: str
    summary: GroupSummary
    settings: GroupSettings
    settings_text: str


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision about one group, with the columns of ``decisions``.

    policy_mode, mode: The mode of its settings, and the mode in effect for its plan.
    decision: What was decided.
    plan_id: The plan; None when there is none.
    reason: Why the group has no plan, or why its plan is in shadow mode.
    traceback: Of an unexpected error.
    is_breach, consecutive_breaches: Whether this snapshot asks for a change, and how many consecutive ones
        up to this; None: not planned.
    gain: Relative fall of the largest load by capacity.
    """

    group_id: str
    policy_mode: str
    mode: str
    decision: DecisionKind
    plan_id: str | None = None
    reason: str | None = None
    traceback: str | None = None
    is_breach: bool | None = None
    consecutive_breaches: int | None = None
    gain: float | None = None

    def as_row(self) -> dict[str, Any]:
        """Return the columns by name."""
        # Not asdict(), which copies value by value.
        return {name: getattr(self, name) for name in _DECISION_COLUMNS}


_DECISION_COLUMNS: Final = tuple(column.name for column in fields(GroupDecision))


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A decided group, with its plan where it has one.

    number: The group's number in the batch.
    plan, head: The plan, and the columns of its row of ``plans``; None without a plan.
    """

    number: int
    decision: GroupDecision
    plan: GroupPlan | None = None
    head: Mapping[str, Any] | None = None


def head_columns(group: SelectedGroup, plan: GroupPlan, decision: GroupDecision) -> dict[str, Any]:
    """Return the columns of a plan's row of ``plans``."""
    rows, summary = plan.rows, group.summary
    num_unknown_lags, num_partitions = int(rows.is_unknown.sum()), rows.group.num_partitions
    return {
        "assignor": group.settings.assignor,
        "settings": group.settings_text,
        "mode_reason": decision.reason,
        "consecutive_breaches": decision.consecutive_breaches,
        "fingerprint": plan.fingerprint,
        "payload": plan.payload.decode("ascii"),
        "payload_bytes": len(plan.payload),
        "group_state": summary.state,
        "group_type": summary.type,
        "group_assignor": summary.assignor,
        "num_members": rows.group.num_members,
        "num_partitions": num_partitions,
        "num_unassigned_partitions": int((plan.assignment < 0).sum()),
        "num_unknown_partitions": int(plan.is_unknown.sum()),
        "num_unknown_lags": num_unknown_lags,
        "num_stalled_partitions": int(rows.stalled.sum()),
        "moves": plan.moves,
        "count_gap": plan.count_gap,
        "gain": plan.gain,
        "metrics_before": _known_metrics(plan.before, num_unknown_lags, num_partitions),
        "metrics_after": _known_metrics(plan.after, num_unknown_lags, num_partitions),
        "violations": list(plan.violations),
    }


def _known_metrics(measured: Metrics, num_unknown: int, num_partitions: int) -> dict[str, Any]:
    """The metrics, without those that unknown lag makes meaningless: it counts as 0 in the arrays."""
    # Not asdict(): copying value by value costs as much as measuring.
    columns = {name: getattr(measured, name) for name in _METRICS}
    if num_unknown:
        columns |= {"mean_member_lag_records": None, "lag_skew": None}
        if num_unknown == num_partitions:
            columns["max_member_lag_records"] = None
    return columns
