"""What followed plans have saved, by replays of the snapshots from their publishing to their horizon."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.group_lag import counted_rows
from evenlag.lag.speed_rows import with_speeds
from evenlag.lake.filters import matching
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS, SPEEDS
from evenlag.lake.tables.simulation import REPLAYED_LAG, REPLAYED_MEMBERS
from evenlag.logging_setup import named_logger
from evenlag.planning.evaluations import DuePlan, PlanEffect
from evenlag.planning.group_work import GroupFacts
from evenlag.planning.published_plans import PublishedPlan
from evenlag.simulation.estimates import estimate, known_speeds
from evenlag.simulation.history import build_history, read_snapshots
from evenlag.simulation.plan_effect import measure_effect
from evenlag.simulation.simulate_group import replay_blocker

_LOG = named_logger(__name__)
# Plans whose rows are read at once, and rows of a plan's snapshots: of more snapshots some are left out.
_PLANS_PER_READ: Final = 50
_MOST_ROWS: Final = 1_000_000
_FEWEST_SNAPSHOTS: Final = 4
# Snapshots before that tell how fast members were with the partitions that they had.
_EARLIER: Final = 3


def read_effects(
    rows: SnapshotReader, due: Sequence[DuePlan], num_partitions: Mapping[str, int]
) -> dict[str, PlanEffect | str]:
    """Replay the followed plans that a snapshot evaluates; return their effects, or why there is none, by id.

    num_partitions: Of their groups.
    """
    plans = [one for one in due if one.is_followed]
    if not plans:
        return {}
    first = min(slot_day(one.plan.snapshot_id) for one in plans)
    wanted = matching(cluster=rows.cluster, since=first)
    markers = rows.reader.read(SNAPSHOTS, columns=["snapshot_id", "end_read_at"], filters=wanted)
    at = {row["snapshot_id"]: row["end_read_at"] for row in markers.to_pylist()}
    at = {name: moment for name, moment in at.items() if moment <= rows.marker["end_read_at"]}
    effects: dict[str, PlanEffect | str] = {}
    for number in range(0, len(plans), _PLANS_PER_READ):
        some = plans[number : number + _PLANS_PER_READ]
        periods = [_period(one.plan, at, num_partitions.get(one.plan.group_id, 1)) for one in some]
        lag, members = _read(rows, some, {name for period in periods for name in period.names})
        for one, period in zip(some, periods, strict=True):
            effects[one.plan.plan_id] = _effect(one, period, at, lag, members)
    return effects


class _Period(NamedTuple):
    """Snapshots in order, and when the last one before a plan's publishing was."""

    names: Sequence[str]
    since: datetime


def _period(plan: PublishedPlan, at: Mapping[str, datetime], num_partitions: int) -> _Period:
    """The snapshots of a plan until its horizon, and a few before; of very many some are left out."""
    names = sorted(at, key=lambda name: (at[name], name))
    before = [place for place, name in enumerate(names) if at[name] <= plan.published_at]
    first = max(before, default=0)
    most = max(_MOST_ROWS // max(num_partitions, 1), _FEWEST_SNAPSHOTS)
    places = np.linspace(first, len(names) - 1, min(len(names) - first, most)).round().astype(int)
    earlier = names[max(first - _EARLIER, 0) : first]
    return _Period([*earlier, *(names[place] for place in np.unique(places).tolist())], at[names[first]])


def _read(rows: SnapshotReader, plans: Sequence[DuePlan], names: set[str]) -> tuple[pa.Table, pa.Table]:
    """Rows of ``lag``, and of ``members`` with speeds, of the plans' groups in some snapshots."""
    days, group_ids = {slot_day(name) for name in names}, {one.plan.group_id for one in plans}
    wanted = matching(cluster=rows.cluster, day=days, snapshot_id=names, group_id=group_ids)
    lag = counted_rows(rows.reader.read(LAG, columns=REPLAYED_LAG, filters=wanted))
    members = rows.reader.read(MEMBERS, columns=REPLAYED_MEMBERS, filters=wanted)
    columns = ("snapshot_id", "group_id", "members")
    speeds = rows.reader.read(SPEEDS, columns=columns, filters=wanted)

    def measured() -> Iterator[pa.Table]:
        for name in sorted(names):
            of_snapshot = (each.filter(pc.equal(each["snapshot_id"], name)) for each in (members, speeds))
            yield with_speeds(*of_snapshot)

    return lag, pa.concat_tables(measured())


def _effect(
    one: DuePlan, period: _Period, at: Mapping[str, datetime], lag: pa.Table, members: pa.Table
) -> PlanEffect | str:
    try:
        of_plan = (
            each.filter(
                pc.and_(
                    pc.equal(each["group_id"], one.plan.group_id),
                    pc.is_in(each["snapshot_id"], pa.array(period.names, pa.string())),
                )
            )
            for each in (lag, members)
        )
        return _replay(one, period, [at[name].timestamp() for name in period.names], *of_plan)
    except Exception as error:  # noqa: BLE001 - the other plans are evaluated
        plan = one.plan
        about = {"group_id": plan.group_id, "plan_id": plan.plan_id}
        _LOG.error("plan %s was not replayed: %s", plan.plan_id, error, extra=about, exc_info=error)
        return f"its effect could not be replayed: {error}"


def _replay(
    one: DuePlan, period: _Period, at_s: Sequence[float], lag: pa.Table, members: pa.Table
) -> PlanEffect | str:
    seen, _ = read_snapshots(lag, members, period.names, np.array(at_s))
    history = build_history(seen)
    reason = replay_blocker(history)
    if reason is not None:
        return f"its effect could not be replayed: {reason}"
    cost: dict[str, Any] = {name: one.plan.cost[f"{name}_ms"] for name in ("follow", "rebalancing")}
    facts = GroupFacts(*(None if each is None else each / 1000 for each in cost.values()))
    times = facts.times(one.head["group_type"])
    # By what members really did, whatever the policy says of their capacities.
    estimates = estimate(history, known=known_speeds(members, history))
    effect = measure_effect(history, estimates, times, period.since.timestamp())
    return effect or "no snapshot before its horizon shows it followed"
