"""Plans one group: from slices of a batch to an assignment, its metrics and its payload.

Partitions stay columns throughout; Python loops only over members and topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.rack_search import racks_of
from assignor_core.assignors import find_assignor, get_assignor
from assignor_core.group import Group
from assignor_core.hint import HintPayload, fingerprint, member_key
from assignor_core.metrics import Metrics, count_moves, measure
from assignor_core.objective import Load, member_load, relative_gain
from assignor_core.together import unite
from assignor_core.verify import find_violations, largest_count_gap
from evenlag.enums import GroupType
from evenlag.lag.speeds import NOISE_S, uncommitted
from evenlag.planning.capacities import capacities_of
from evenlag.planning.group_work import NO_FACTS, GroupFacts, GroupWork, Measured, expected_work
from evenlag.planning.time_plans import Limits, TimePlan, judge, plan_by_time

if TYPE_CHECKING:
    from evenlag.planning.group_batch import GroupBatch
    from evenlag.policy.group_settings import GroupSettings


@dataclass(frozen=True, slots=True)
class GroupRows:
    """A group with further columns of its rows.

    group: The group; the owners that a plan changes are its claims.
    held: int32 [P], row → member that owns it now and subscribes to it, -1 for none: see
        ``GroupBatch.holder``.
    is_unknown: bool [P]: whether the lag is unknown; such a partition is not moved.
    arrival_rate: float64 [P], records per second; NaN if unknown.
    stalled: bool [P]: whether the partition has lag and no progress.
    known: What ``load: time`` plans by: see ``GroupBatch``, with speeds in the order of the group's members.
    """

    group: Group
    held: NDArray[np.int32]
    topic_ids: tuple[str, ...]
    is_unknown: NDArray[np.bool_]
    arrival_rate: NDArray[np.float64]
    stalled: NDArray[np.bool_]
    known: Measured


def build_group(batch: GroupBatch, number: int) -> GroupRows:
    """Build one group of a batch, with its rows in the order of the batch."""
    rows = slice(*batch.row_start[number : number + 2].tolist())
    topics = slice(*batch.topic_start[number : number + 2].tolist())
    members = slice(*batch.member_start[number : number + 2].tolist())
    starts = batch.subscription_start[members.start : members.stop + 1]
    owner = batch.owner[rows]
    owned = np.flatnonzero(owner >= 0)
    group = Group.from_arrays(
        topics=batch.topics[topics],
        num_partitions=batch.topic_rows[topics],
        member_ids=batch.member_ids[members],
        instance_ids=batch.instance_ids[members],
        subscriptions=(
            np.repeat(np.arange(len(starts) - 1), np.diff(starts)),
            batch.subscription_topic[starts[0] : starts[-1]],
        ),
        claims=(owned, owner[owned], np.zeros(len(owned), dtype=np.int64)),
        lags=batch.lag_records[rows],
        racks=None if batch.racks is None else (batch.racks.of_member[members], batch.racks.of_row[rows]),
    )
    place = {member_id: index for index, member_id in enumerate(batch.member_ids[members])}
    in_order = np.array([place[member_id] for member_id in group.member_ids], dtype=np.int64)
    return GroupRows(
        group=group,
        held=_held(group, batch.member_ids[members], owner, batch.holder[rows]),
        topic_ids=tuple(batch.topic_ids[topics]),
        is_unknown=batch.is_unknown[rows],
        arrival_rate=batch.arrival_rate[rows],
        stalled=batch.stalled[rows],
        known=Measured(
            speed=batch.speed[members][in_order],
            is_bound=batch.is_bound[members][in_order],
            cost=batch.cost[rows],
            consumed=batch.consume_rate[rows],
            rates=batch.forecast[rows],
        ),
    )


def _held(
    group: Group, member_ids: list[str], owner: NDArray[np.int64], holder: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Current owners as members of the group, which orders them by id."""
    if np.array_equal(owner, holder):
        return group.live_owner
    place = {member_id: index for index, member_id in enumerate(group.member_ids)}
    of_group = np.array([*(place[member_id] for member_id in member_ids), -1], dtype=np.int32)
    return group.with_state(of_group[holder], group.lag).live_owner


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A plan for a group: its assignment and the metrics of its head.

    assignment: int32 [P], row → member, -1 for none.
    is_unknown: bool [P]: whether the load of the row is unknown; such a row is not moved.
    capacity: float64 [M], see :func:`~evenlag.planning.capacities.capacities_of`.
    payload: The hint's payload; the plan id is its SHA-256.
    fingerprint: Of the group's members, subscriptions and partition counts.
    moves: Number of partitions that leave a live owner.
    count_gap: See `assignor_core.verify.largest_count_gap`; of units, where topics stay together.
    gain: Relative decrease of the largest load by capacity; see `assignor_core.objective.relative_gain`. None
        if the plan is made whatever it saves.
    before, after: Metrics of the current and of the planned assignment.
    across_before, across_after: Share of the load that members read across racks; None: no rack is known.
    violations: Findings of the checker of `assignor_core`.
    is_change: Whether any partition changes its owner.
    time: What is expected without and with the plan; None if no speed is known, or if it is made whatever it
        saves.
    follow_s: How long the group takes to follow a plan.
    too_small: Why the plan that was found saves too little: this one keeps everything. None if it does not.
    """

    rows: GroupRows
    assignment: NDArray[np.int32]
    is_unknown: NDArray[np.bool_]
    capacity: NDArray[np.float64]
    payload: bytes
    fingerprint: str
    moves: int
    count_gap: int
    gain: float | None
    before: Metrics
    after: Metrics
    across_before: float | None
    across_after: float | None
    violations: tuple[str, ...]
    is_change: bool
    time: TimePlan | None
    follow_s: float
    too_small: str | None


def plan_group(
    rows: GroupRows,
    settings: GroupSettings,
    *,
    kafka_cluster_id: str,
    group_id: str,
    snapshot_id: str,
    group_type: str | None = None,
    facts: GroupFacts = NO_FACTS,
) -> GroupPlan:
    """Plan one group. Deterministic: equal rows and settings give equal payload bytes.

    A partition whose lag (or rate, if that is the load) is unknown stays with its owner, whatever the
    assignor would do. Assignors that use the load plan the other partitions around it.

    Returns the plan, whether or not it changes the group.
    """
    group = rows.group
    now = group.live_owner
    is_unknown = rows.is_unknown
    if settings.load is not Load.LAG:
        is_unknown = is_unknown | np.isnan(rows.known.rates).any(axis=1)
    keep = is_unknown & (now >= 0)
    times = facts.times(group_type)
    is_measured = bool(np.isfinite(rows.known.speed).any())
    time: TimePlan | None = None
    if settings.load is Load.TIME:
        work = expected_work(group, settings, rows.known, facts, times)
        time = time_plan(group, settings, work, keep=keep)
        load = (work.backlog(group.lag) + work.arrivals.sum(axis=1)) * work.cost
        capacity, target = work.speed, time.target
    else:
        load = member_load(settings.load, group.lag, rows.arrival_rate)
        capacity = capacities_of(settings, group.instance_ids, rows.known.speed, rows.known.is_bound)
        target = assign_rows(group, settings, load=load, capacity=capacity, keep=keep)
    gap = count_gap_of(group, settings, target)
    required = is_required(group, settings, gap)
    is_change = bool((target != now).any())
    if settings.load is not Load.TIME and is_measured and not required and is_change:
        time = judge(group, expected_work(group, settings, rows.known, facts, times), target)
    before, after = measure(group, rows.held), measure(group, target)
    too_small = None
    if is_change and not required:
        too_small = _too_small(rows, settings, time, capacity, target)
    if too_small:
        time, target, after = None, now, measure(group, now)
    gain = None
    if not required:
        is_by_time = settings.load is Load.TIME
        gain = time.gain if time and is_by_time else relative_gain(load, capacity, now, target)
    across_before, across_after = _shares_across(group, load, rows.held, target)
    found = find_violations(group, target, together=settings.together)
    group_fingerprint = _fingerprint(rows)
    payload = HintPayload(
        cluster_id=kafka_cluster_id,
        group_id=group_id,
        snapshot_id=snapshot_id,
        fingerprint=group_fingerprint,
        assignment=_hinted(rows, target),
        # Where topics stay together, counts of partitions differ by more than counts of units.
        count_slack=max(settings.slack, largest_count_gap(group, target) - 1)
        if settings.together
        else settings.slack,
        max_moves=settings.max_moves,
        member_ids=_static_members(group) if group_type == GroupType.CONSUMER else None,
        together=together_ids(rows, settings.together),
    )
    return GroupPlan(
        rows=rows,
        assignment=target,
        is_unknown=is_unknown,
        capacity=capacity,
        payload=payload.encode(),
        fingerprint=group_fingerprint,
        moves=count_moves(group, target),
        count_gap=gap,
        gain=gain,
        before=before,
        after=after,
        across_before=across_before,
        across_after=across_after,
        violations=tuple(f"{violation.rule}: {violation.message}" for violation in found),
        is_change=is_change and too_small is None,
        time=time if is_measured and not required else None,
        follow_s=times.follow_s,
        too_small=too_small,
    )


def is_required(group: Group, settings: GroupSettings, gap: int) -> bool:
    """Return whether a plan evens out counts, places free partitions or unites topics, whatever it saves.

    gap: Its largest count gap, see :func:`count_gap_of`.
    """
    now = group.live_owner
    if (now < 0).any() or gap < count_gap_of(group, settings, now) > 1 + settings.slack:
        return True
    if not settings.together:
        return False
    united = unite(group, settings.together)
    return bool((united.expand(united.group.owner) != now).any())


def _too_small(
    rows: GroupRows,
    settings: GroupSettings,
    time: TimePlan | None,
    capacity: NDArray[np.float64],
    target: NDArray[np.int32],
) -> str | None:
    """Why a plan is not worth a rebalance, by the floors; None if it is, or if that is not known."""
    now, moves = rows.group.live_owner, count_moves(rows.group, target)
    if time is not None:
        saved, least = time.net_record_s, least_saving(settings, time)
        if saved < least:
            return f"{moves} moves would save {saved:,.0f} record-seconds, at least {least:,.0f} are required"
    if settings.load is not Load.LAG:
        return None
    size, lag = rows.group.num_members, rows.group.lag.astype(np.float64)
    owned = now >= 0
    lags = np.bincount(now[owned], lag[owned], size)
    most = int((lags / capacity).argmax())
    noise = np.bincount(now[owned], uncommitted(rows.known.consumed[owned]), size)[most]
    falls = relative_gain(lag, capacity, now, target) * lags[most]
    if falls < noise:
        return (
            f"{moves} moves would lower the lag of the most loaded member by {falls:,.0f} records, and "
            f"it consumes {noise:,.0f} in {NOISE_S:.0f} s"
        )
    return None


def least_saving(settings: GroupSettings, time: TimePlan) -> float:
    """Return how many record-seconds a plan must save, its own costs deducted."""
    share = settings.min_gain if settings.load is Load.TIME else 0.0
    return max(settings.min_saved_record_s, share * time.shortened_record_s)


def count_gap_of(group: Group, settings: GroupSettings, assignment: NDArray[np.int32]) -> int:
    """Return the largest count gap of an assignment, in units where topics stay together."""
    if not settings.together:
        return largest_count_gap(group, assignment)
    united = unite(group, settings.together)
    return largest_count_gap(united.group, united.of_units(assignment))


def together_ids(rows: GroupRows, together: Sequence[Sequence[str]]) -> list[list[str]] | None:
    """Ids of topics that stay together, as hints contain them; None where there are none."""
    ids = dict(zip(rows.group.topics, rows.topic_ids, strict=True))
    found = [sorted(ids[name] for name in names if name in ids) for names in together]
    return sorted(names for names in found if len(names) > 1) or None


def _shares_across(
    group: Group, load: NDArray[np.float64], *assignments: NDArray[np.int32]
) -> list[float | None]:
    """Share of the load that members read across racks, of each assignment."""
    if group.row_racks is None:
        return [None] * len(assignments)
    racks, total = racks_of(group), float(load.sum())
    return [
        racks.load_across(load, assignment) / total if racks is not None and total else 0.0
        for assignment in assignments
    ]


def member_keys(group: Group) -> tuple[str, ...]:
    """Return the members' keys as hints contain them: [M]."""
    return tuple(map(member_key, group.member_ids, group.instance_ids))


def _static_members(group: Group) -> dict[str, str]:
    """Member ids of static members by key: brokers identify members by member id."""
    members = zip(member_keys(group), group.member_ids, group.instance_ids, strict=True)
    return {key: member_id for key, member_id, instance in members if instance is not None}


def assign_rows(
    group: Group,
    settings: GroupSettings,
    *,
    load: NDArray[np.float64],
    capacity: NDArray[np.float64],
    keep: NDArray[np.bool_],
    parameters: Mapping[str, Any] | None = None,
) -> NDArray[np.int32]:
    """Run a group's assignor with the settings that it declares as parameters.

    Returns int32 [P], row → member, -1 for none.
    settings: The rule; it names the assignor. A parameter without a setting of its name keeps its default.
    """
    if settings.together:
        united = unite(group, settings.together, load)
        # First the moves that unite what is apart, then whole units, each counted as the largest of them.
        forced = count_moves(group, united.expand(united.group.owner))
        size = int(np.bincount(united.unit).max(initial=1))
        rest = settings.changed(together=(), max_moves=max(settings.max_moves - forced, 0) // size)
        load, keep = united.sums(load), united.any(keep)
        planned = assign_rows(
            united.group, rest, load=load, capacity=capacity, keep=keep, parameters=parameters
        )
        return united.expand(planned)
    declared = {parameter.name for parameter in find_assignor(settings.assignor).parameters}
    if "rack_tolerance" not in declared:
        # The others would move partitions for their racks alone.
        group = replace(group, member_rack=None, row_racks=None)
    known = settings.values() | {"count_slack": settings.slack} | dict(parameters or {})
    values = {name: known[name] for name in declared if name in known}
    assignor = get_assignor(settings.assignor, **values)
    return assignor.target(group, load=load, capacity=capacity, pinned=keep)


def time_plan(
    group: Group,
    settings: GroupSettings,
    work: GroupWork,
    *,
    keep: NDArray[np.bool_],
    is_united: bool = False,
) -> TimePlan:
    """Plan a group by time, with the assignor and the limits of its settings."""
    if settings.together:
        united = unite(group, settings.together, group.lag * work.cost)
        forced = count_moves(group, united.expand(united.group.owner))
        size = int(np.bincount(united.unit).max(initial=1))
        rest = settings.changed(together=(), max_moves=max(settings.max_moves - forced, 0) // size)
        planned = time_plan(
            united.group,
            rest,
            work.united(united.unit, united.group.num_partitions),
            keep=united.any(keep),
            is_united=True,
        )
        return replace(planned, target=united.expand(planned.target))

    def assign(load: NDArray[np.float64], max_moves: int) -> NDArray[np.int32]:
        return assign_rows(
            group,
            settings.changed(max_moves=max_moves),
            load=load,
            capacity=work.speed,
            keep=keep,
            parameters={"effort": 0},
        )

    limits = Limits(settings.max_moves, settings.slack)
    # What places free partitions or unites topics is planned whatever it saves, and what evens out counts.
    if (group.live_owner >= 0).all() and not is_united:
        limits = limits._replace(min_saved_record_s=settings.min_saved_record_s, min_gain=settings.min_gain)
    return plan_by_time(group, work, limits, keep=keep, assign=assign)


def _fingerprint(rows: GroupRows) -> str:
    group = rows.group
    starts = group.subscription_start
    taken = [
        [rows.topic_ids[topic] for topic in group.subscription_topic[starts[m] : starts[m + 1]].tolist()]
        for m in range(group.num_members)
    ]
    sizes = np.diff(group.topic_start).tolist()
    return fingerprint(
        zip(member_keys(group), taken, strict=True), dict(zip(rows.topic_ids, sizes, strict=True))
    )


def _hinted(rows: GroupRows, target: NDArray[np.int32]) -> dict[str, dict[str, list[int]]]:
    """The assignment as hints contain it: loops over (member, topic) pairs, not over partitions."""
    group = rows.group
    placed = np.flatnonzero(target >= 0)
    placed = placed[np.argsort(target[placed], kind="stable")]
    member, topic = target[placed], group.row_topic[placed]
    first = np.flatnonzero((np.diff(member, prepend=-1) != 0) | (np.diff(topic, prepend=-1) != 0))
    keys, numbers = member_keys(group), group.row_partition[placed].tolist()
    hinted: dict[str, dict[str, list[int]]] = {}
    for start, end in pairwise([*first.tolist(), len(numbers)]):
        topics = hinted.setdefault(keys[member[start]], {})
        topics[rows.topic_ids[topic[start]]] = numbers[start:end]
    return hinted
