"""What one Arrow call does: plan the groups of a bundle, each for itself, and answer in columns.

Arrays are built once a bundle. A group adds its decision, its plan's head and a few slices, and a group that
cannot be planned, whatever the reason, takes no other with it.
"""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_jobs.choices import Mode
from spark_jobs.tables import DECISIONS, PLAN_ASSIGNMENTS, PLANS, Column, Table
from spark_jobs.transforms.hintable import hint_obstacle, planning_obstacle, read_groups

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    import pyarrow as pa
    from numpy.typing import NDArray

    from assignor_core.model import Group
    from spark_jobs.core_bridge import GroupPlan
    from spark_jobs.group_bundle import GroupBundle
    from spark_jobs.logs import WorkerLog
    from spark_jobs.settings import GroupSettings, Policy
    from spark_jobs.transforms.hintable import GroupReading

_LOG = logging.getLogger(__name__)

PROPOSED: Final = "PROPOSED"
BREACH: Final = "BREACH"
NO_CHANGE: Final = "NO_CHANGE"
NOT_PLANNED: Final = "NOT_PLANNED"
FAILED: Final = "FAILED"

# The same in every row of a run: added by Spark, where a row needs it.
SHARED: Final = ("cluster", "day", "snapshot_id", "slot", "run_id", "policy_hash")


def _planned_table() -> Table:
    """A group's decision, head and partitions in one row: a value in a list costs Spark less than a row.

    A plan of many partitions takes several rows, of which the first has the decision and the head.
    """
    plain = ("group_id", "plan_id", "mode")

    def nested(table: Table, *more: str) -> str:
        own = (f"{c.name}: {c.type}" for c in table.columns if c.name not in {*SHARED, *plain})
        return f"STRUCT<{', '.join([*own, *more])}>"

    columns = (
        Column("group_id", "STRING", "group"),
        Column("plan_id", "STRING", "its plan, null when there is none"),
        Column("mode", "STRING", "mode that held"),
        Column("decided", nested(DECISIONS, "traceback: STRING"), "what only a row of decisions has"),
        Column("head", nested(PLANS), "what only a row of plans has; null when there is none"),
        Column("rows", f"ARRAY<{nested(PLAN_ASSIGNMENTS)}>", "the plan's partitions, or some of them"),
    )
    return Table("planned", "what planning answers", ("group_id",), columns)


PLANNED: Final = _planned_table()
# Partitions in one row of the answer: the JVM holds a row as one piece of memory, several times over.
_PARTITIONS_PER_ROW: Final = 10_000


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
    from spark_jobs.group_bundle import bundle_groups

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
        from spark_jobs.core_bridge import build_group, plan_group

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
        )
        if plan.is_change:
            self._propose(number, group_id, plan, rule, reading)
        else:
            self._add(group_id, settings, NO_CHANGE, is_breach=False, breaches_in_row=0)

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
        told: dict[str, Any] = {"is_breach": True, "breaches_in_row": breaches, "gain": plan.gain}
        if breaches < needed:
            waits = f"{breaches} of {needed} readings in a row ask for a change"
            self._add(group_id, rule, BREACH, reason=waits, **told)
            return
        reason = hint_obstacle(reading)
        if reason is None and rule.mode is not Mode.SHADOW:
            reason = history.backs_off
        known = {"mode": Mode.SHADOW.value if reason else rule.mode.value, "plan_id": plan_id(plan.payload)}
        head = _head_columns(plan, reading) | {"assignor": rule.assignor, "settings": settings_text}
        head |= {"mode_reason": reason, "breaches_in_row": breaches}
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
        import pyarrow as pa

        from spark_jobs.arrow_schema import arrow_schema

        schema = arrow_schema(PLANNED)
        # What a struct has no field for is left out.
        of_groups = {"decided": self.decisions, "head": self.heads}
        columns = {name: pa.array(rows, schema.field(name).type) for name, rows in of_groups.items()} | {
            name: pa.array([row.get(name) for row in self.decisions], pa.string())
            for name in ("group_id", "plan_id", "mode")
        }
        if bundle is None or not self.plans:
            columns["rows"] = pa.nulls(len(self.decisions), schema.field("rows").type)
            return pa.table(columns).select(schema.names)
        has_plan = np.array([head is not None for head in self.heads])
        rows = _rows(bundle, self.plans, schema.field("rows").type.value_type)
        return _cut(columns, has_plan, [plan.rows.group.num_partitions for _, plan in self.plans], rows)


def _head_columns(plan: GroupPlan, reading: GroupReading) -> dict[str, Any]:
    group = plan.rows.group
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
        "num_stalled_partitions": int(plan.rows.stalled.sum()),
        "moves": plan.moves,
        "count_gap": plan.count_gap,
        "gain": plan.gain,
        # Not asdict(): copying them value by value costs as much as measuring them.
        "metrics_before": {name: getattr(plan.before, name) for name in _METRICS},
        "metrics_after": {name: getattr(plan.after, name) for name in _METRICS},
        "violations": list(plan.violations),
    }


def _rows(bundle: GroupBundle, plans: list[tuple[int, GroupPlan]], kind: pa.StructType) -> pa.StructArray:
    """A value a partition of each plan, plan after plan."""
    import pyarrow as pa

    from spark_jobs.core_bridge import member_keys

    groups = [plan.rows.group for _, plan in plans]
    rows = np.concatenate([np.arange(*bundle.row_start[number : number + 2]) for number, _ in plans])
    before = _numbered([group.live_owner for group in groups], groups)
    after = _numbered([plan.assignment for _, plan in plans], groups)
    claimed = np.concatenate([group.owner for group in groups])
    moved = (claimed >= 0) & (claimed != np.concatenate([plan.assignment for _, plan in plans]))
    member_ids = [member_id for group in groups for member_id in group.member_ids]
    lag = bundle.lag.take(pa.array(rows)) if len(rows) < bundle.lag.num_rows else bundle.lag
    columns = {
        "owner_before": _take(member_ids, before),
        "owner_after": _take(member_ids, after),
        "owner_after_key": _take([key for group in groups for key in member_keys(group)], after),
        "moved": pa.array(moved),
        "lag_status": lag["status"].combine_chunks(),
    }
    columns |= {
        name: lag[name].combine_chunks() for name in ("topic_id", "topic", "partition", "lag_records")
    }
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def _cut(
    columns: Mapping[str, pa.Array], has_plan: NDArray[np.bool_], sizes: list[int], rows: pa.StructArray
) -> pa.Table:
    """Give each group its partitions, in as many rows as they take.

    Parameters
    ----------
    columns
        All but ``rows``: a value a group.
    has_plan
        bool [G].
    sizes
        How many partitions each plan has, in the groups' order.
    """
    import pyarrow as pa

    from spark_jobs.arrow_schema import arrow_schema

    size = np.zeros(len(has_plan), dtype=np.int64)
    size[has_plan] = sizes
    pieces = np.maximum(-(-size // _PARTITIONS_PER_ROW), 1)
    group = np.repeat(np.arange(len(size)), pieces)
    first = np.cumsum(pieces) - pieces
    piece = np.arange(len(group)) - first[group]
    held = np.minimum(size[group] - piece * _PARTITIONS_PER_ROW, _PARTITIONS_PER_ROW)
    starts = np.concatenate([[0], np.cumsum(held)]).astype(np.int32)
    schema = arrow_schema(PLANNED)
    cut = dict(columns)
    if len(group) > len(size):
        once = pa.array(group, mask=piece > 0)
        cut = {
            name: values.take(once if name in {"decided", "head"} else pa.array(group))
            for name, values in columns.items()
        }
    # A group without a plan has no list, which is not an empty list.
    cut["rows"] = pa.ListArray.from_arrays(
        pa.array(starts), rows, type=schema.field("rows").type, mask=pa.array(~has_plan[group])
    )
    return pa.table(cut).select(schema.names)


def _numbered(owners: list[NDArray[np.int32]], groups: list[Group]) -> NDArray[np.int32]:
    """Members' places within their groups as places among the members of all; -1 stays."""
    ends = np.cumsum([group.num_members for group in groups])
    shifts = np.repeat([0, *ends[:-1]], [len(owner) for owner in owners])
    placed = np.concatenate(owners)
    return np.where(placed >= 0, placed + shifts, -1).astype(np.int32)


def _take(values: list[str], index: NDArray[np.int32]) -> pa.Array:
    """Look strings up by index; -1 is null. No Python loop over rows."""
    import pyarrow as pa

    return pa.array(values, pa.string()).take(pa.array(index, pa.int32(), mask=index < 0))
