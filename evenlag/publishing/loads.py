"""Publish loads beside hints: at the end of each cycle, and only what has changed materially.

A cycle whose loads did not change reads the topic and writes nothing, so it fences nobody. Errors never fail
a publishing run: loads that are not refreshed end by themselves, and the next cycle tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.present_loads import present_loads
from assignor_core.errors import AssignorError
from assignor_core.loads import (
    LOADS_KEY_PREFIX,
    MAX_CAPACITY,
    LoadFlow,
    LoadRacks,
    LoadsPayload,
    encode_loads,
    loads_key,
)
from assignor_core.objective import Load
from evenlag.enums import ControlAction, GroupState, GroupType
from evenlag.errors import JobError
from evenlag.kafka.connection import admin_client, kafka_cluster_id
from evenlag.lag.speed_rows import with_costs, with_speeds
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import CONTROL_ACTIONS, LAG, MEMBERS, SPEEDS
from evenlag.lake.tables.planning import PLANNED_LAG, PLANNED_MEMBERS
from evenlag.logging_setup import named_logger
from evenlag.planning.capacities import capacities_of
from evenlag.planning.eligibility import GroupSummary, hint_blocker, planning_blocker, summarize_groups
from evenlag.planning.group_batch import GroupBatch, build_batch, numbers
from evenlag.planning.group_planner import GroupRows, build_group, member_keys, together_ids
from evenlag.planning.measured_rows import SPEED_COLUMNS
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.hint_topic import TopicState, read_hint_topic
from evenlag.publishing.scaled_loads import Measured, scale_measured
from evenlag.publishing.sealing.signed_records import group_signing_key
from evenlag.publishing.writing.hint_publisher import hint_publisher
from evenlag.publishing.writing.topic_settings import ensure_hint_topic, read_max_bytes, size_problem

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.loader import LoadedPolicy

_LOG = named_logger(__name__)

_MINUTE_MS: Final = 60_000
_THOUSANDTHS: Final = 1_000
# What part of the load must be on other partitions than published; a tenth, whatever its sum is rounded to.
MATERIAL_SHARE: Final = 0.1
_ROUNDING: Final = 1e-9
# Of one transaction: whoever writes to the topic chooses how many groups have loads.
_MAX_REMOVED = 1_000


def measure_loads(
    reader: LakeReader, loaded: LoadedPolicy, cluster: str, snapshot: Mapping[str, Any]
) -> dict[str, LoadsPayload]:
    """Build the loads of the groups that the policy publishes loads for, and that can use them."""
    rows = SnapshotReader(reader, snapshot)
    group_ids = rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()
    settings = {group_id: loaded.policy.group_settings(cluster, group_id) for group_id in group_ids}
    wanted = [group_id for group_id, rule in settings.items() if rule.publishes_loads]
    found: dict[str, LoadsPayload] = {}
    for batch in rows.group_batches(wanted):
        lag = rows.rows_of_groups(LAG, PLANNED_LAG, batch)
        members = rows.rows_of_groups(MEMBERS, PLANNED_MEMBERS, batch)
        speeds = rows.rows_of_groups(SPEEDS, SPEED_COLUMNS, batch)
        found |= build_loads(with_costs(lag, speeds), with_speeds(members, speeds), settings, snapshot)
    return found


def build_loads(
    lag: pa.Table, members: pa.Table, settings: Mapping[str, GroupSettings], snapshot: Mapping[str, Any]
) -> dict[str, LoadsPayload]:
    """Build the loads of the groups that can use them, from their rows of a snapshot."""
    batch = build_batch(lag, members)
    found = {}
    for number, summary in enumerate(summarize_groups(batch)):
        group_id = batch.group_ids[number]
        if (blocker := _blocker(batch, number, summary)) is not None:
            _LOG.info("no loads: %s", blocker, extra={"group_id": group_id})
            continue
        try:
            payload = _payload(batch, number, summary, settings[group_id], snapshot)
            payload.encode()
        except AssignorError as error:
            # A fault of one group is its own.
            _LOG.warning("no loads: %s", error, extra={"group_id": group_id})
        else:
            found[group_id] = payload
    return found


def _blocker(batch: GroupBatch, number: int, summary: GroupSummary) -> str | None:
    """Why a group cannot use loads; None if it can."""
    if (blocker := planning_blocker(summary) or hint_blocker(summary)) is not None:
        return blocker
    if summary.state != GroupState.STABLE:
        return f"the group is {summary.state}"
    has_rows = batch.row_start[number] < batch.row_start[number + 1]
    return None if has_rows else "the snapshot has no lag of the group"


def scale_capacities(capacities: Mapping[str, float]) -> tuple[int, dict[str, int]]:
    """Scale capacities to whole numbers: the largest is 1000 unless all are 1.

    Returns the capacity of a member without a rule, and of the others by key, at least 1.
    capacities: By member key; the capacity of a member without a rule is 1.

    Examples
    --------
    >>> scale_capacities({"i:a": 4.0, "i:b": 1.0, "m:c": 1.0})
    (250, {'i:a': 1000})
    >>> scale_capacities({"m:a": 1.0})
    (1, {})
    """
    if set(capacities.values()) <= {1.0}:
        return 1, {}
    largest = max(1.0, *capacities.values())

    def scaled(capacity: float) -> int:
        return max(1, round(MAX_CAPACITY * capacity / largest))

    default = scaled(1.0)
    return default, {key: scaled(value) for key, value in capacities.items() if scaled(value) != default}


def _payload(
    batch: GroupBatch,
    number: int,
    summary: GroupSummary,
    settings: GroupSettings,
    snapshot: Mapping[str, Any],
) -> LoadsPayload:
    rows = build_group(batch, number)
    group = rows.group
    measured = _measured(batch, number, rows, is_timed=settings.load is Load.TIME)
    load, flow = scale_measured(settings.load, measured)
    is_unknown = rows.is_unknown
    if settings.load is not Load.LAG:
        is_unknown = is_unknown | np.isnan(rows.arrival_rate)
    first, last = batch.row_start[number : number + 2].tolist()
    topics = slice(*batch.topic_start[number : number + 2].tolist())
    layout = _Layout(
        rows.topic_ids, batch.topic_rows[topics].tolist(), batch.lag["partition"].to_numpy()[first:last]
    )
    capacity = capacities_of(settings, group.instance_ids, rows.known.speed, rows.known.is_bound)
    default_capacity, capacities = scale_capacities(
        dict(zip(member_keys(group), capacity.tolist(), strict=True))
    )
    measured_at_ms = round(snapshot["finished_at"].timestamp() * 1000)
    payload = LoadsPayload(
        cluster_id=snapshot["kafka_cluster_id"],
        group_id=batch.group_ids[number],
        snapshot_id=snapshot["snapshot_id"],
        measured_at_ms=measured_at_ms,
        valid_until_ms=measured_at_ms + settings.loads_valid_minutes * _MINUTE_MS,
        loads=layout.by_partition(load, is_unknown),
        capacities=capacities,
        default_capacity=default_capacity,
        count_slack=settings.slack,
        max_moves=settings.max_moves,
        member_ids=sorted(group.member_ids) if summary.type == GroupType.CONSUMER else None,
        racks=_racks(batch, number, layout, settings),
        together=together_ids(rows, settings.together),
        flow=None
        if flow is None
        else LoadFlow(
            arrivals=layout.by_partition(flow.arrivals, is_unknown, 0),
            owners=layout.by_partition(flow.owners, is_unknown | (flow.owners < 0)),
            speeds=flow.speeds.tolist(),
            per_s=flow.per_s,
            horizon_s=flow.horizon_s,
        ),
    )
    return keep_material_flow(payload)


def keep_material_flow(payload: LoadsPayload) -> LoadsPayload:
    """Return loads without a flow that changes little within half of their validity."""
    later = present_loads(payload, (payload.measured_at_ms + payload.valid_until_ms) // 2)
    is_material = moved_share(payload.loads, later.loads) >= MATERIAL_SHARE - _ROUNDING
    return payload if is_material else replace(payload, flow=None)


def _measured(batch: GroupBatch, number: int, rows: GroupRows, *, is_timed: bool) -> Measured:
    """What is measured of a group; a partition without progress is processed by nobody.

    A member is at least as fast as it is now, where it may have no backlog. Costs count for work in time.
    """
    first, last = batch.row_start[number : number + 2].tolist()
    owner = np.where(rows.stalled, -1, rows.held).astype(np.int64)
    cost = rows.known.cost if is_timed else np.ones(last - first)
    consumed = cost * numbers(batch.lag, "consume_rate_records_per_s", 0.0)[first:last]
    is_owned = owner >= 0
    present = np.bincount(owner[is_owned], consumed[is_owned], minlength=rows.group.num_members)
    return Measured(
        lag=rows.group.lag,
        arrival_rate=rows.arrival_rate,
        owner=owner,
        speed=np.fmax(rows.known.speed, present),
        cost=cost,
    )


def _racks(batch: GroupBatch, number: int, layout: _Layout, settings: GroupSettings) -> LoadRacks | None:
    """Where the partitions of a group can be read; None if that, or its members' racks, are unknown."""
    if batch.racks is None:
        return None
    first, last = batch.row_start[number : number + 2].tolist()
    held = batch.racks.of_row[first:last, :-1]
    known = np.asarray(held.any(axis=1))
    members = slice(*batch.member_start[number : number + 2].tolist())
    if not known.any() or (batch.racks.of_member[members] < 0).all():
        return None
    sets, index = np.unique(held, axis=0, return_inverse=True)
    names = np.array(batch.racks.names, dtype=object)
    # The set of unknown racks, if there is one, is the first.
    shift = int(not known.all())
    return LoadRacks(
        sets=[sorted(names[racks].tolist()) for racks in sets[shift:]],
        topics=layout.by_partition(index.reshape(-1) - shift, ~known),
        tolerance=round(_THOUSANDTHS * settings.rack_tolerance),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Topics of a group, their numbers of rows, and the partition number of each row."""

    topic_ids: Sequence[str]
    topic_rows: Sequence[int]
    partition: NDArray[np.int32]

    def by_partition(
        self, value: NDArray[np.int64], is_unknown: NDArray[np.bool_], unknown: int | None = None
    ) -> dict[str, list[Any]]:
        """Values by topic and partition number; `unknown` is also that of a partition without a row."""
        found: dict[str, list[Any]] = {}
        start = 0
        for topic_id, size in zip(self.topic_ids, self.topic_rows, strict=True):
            rows = slice(start, start + size)
            values = np.full(int(self.partition[rows].max(initial=-1)) + 1, unknown, dtype=object)
            known = ~is_unknown[rows]
            # As objects these are Python's own integers, which JSON can write.
            values[self.partition[rows][known]] = value[rows][known]
            found[topic_id] = values.tolist()
            start += size
        return found


# What of loads counts whatever it changes by.
_PARTS: Final[Mapping[str, Callable[[LoadsPayload], Any]]] = {
    "partitions changed": lambda of: {topic: len(values) for topic, values in of.loads.items()},
    "racks changed": lambda of: of.racks,
    "together changed": lambda of: of.together,
    "limits changed": lambda of: (of.count_slack, of.max_moves),
    "members changed": lambda of: None if of.member_ids is None else sorted(of.member_ids),
    "validity changed": lambda of: of.valid_until_ms - of.measured_at_ms,
}


def material_change(published: LoadsPayload, measured: LoadsPayload, now_ms: int) -> str | None:
    """Return why measured loads are worth a record beside the published ones; None if they are not."""
    if measured.measured_at_ms <= published.measured_at_ms:
        return None
    reason = next((text for text, part in _PARTS.items() if part(published) != part(measured)), None)
    if reason is not None:
        return reason
    if _capacities_changed(published, measured):
        return "capacities changed"
    if now_ms >= (published.measured_at_ms + published.valid_until_ms) // 2:
        return "half of the validity passed"
    # As a leader that places now would have them by either record.
    at_ms = measured.measured_at_ms
    moved = moved_share(present_loads(published, at_ms).loads, present_loads(measured, at_ms).loads)
    return f"{moved:.0%} of the load moved" if moved >= MATERIAL_SHARE - _ROUNDING else None


def _capacities_changed(published: LoadsPayload, measured: LoadsPayload) -> bool:
    """Whether a capacity relative to others differs materially: measured ones always differ a little."""
    keys = sorted({*published.capacities, *measured.capacities})
    before, after = (
        np.array([of.default_capacity, *(of.capacities.get(key, of.default_capacity) for key in keys)])
        for of in (published, measured)
    )
    ratio = (after / after.max()) / (before / before.max())
    return bool((np.abs(np.log(ratio)) > np.log1p(MATERIAL_SHARE)).any())


def moved_share(
    before: Mapping[str, Sequence[int | None]], after: Mapping[str, Sequence[int | None]]
) -> float:
    """Return what part of the load is on other partitions: half the sum of the differences of their shares.

    It is 1 where there was no load and there is one now, or the other way round. An unknown load counts as
    the mean of the known ones of its topic.

    Examples
    --------
    >>> moved_share({"t": [3, 1]}, {"t": [2, 2]})
    0.25
    """
    old, new = _filled(before), _filled(after)
    old_sum, new_sum = float(old.sum()), float(new.sum())
    if not old_sum or not new_sum:
        return float(old_sum != new_sum)
    return float(np.abs(old / old_sum - new / new_sum).sum() / 2)


def _filled(loads: Mapping[str, Sequence[int | None]]) -> NDArray[np.float64]:
    topics = [np.array(loads[topic], dtype=np.float64) for topic in sorted(loads)]
    for values in topics:
        is_unknown = np.isnan(values)
        values[is_unknown] = values[~is_unknown].mean() if (~is_unknown).any() else 0.0
    return np.concatenate([np.zeros(0), *topics])


@dataclass(frozen=True, slots=True)
class LoadsReport:
    """Groups whose loads were written, and those whose loads the policy no longer publishes; or an error."""

    refreshed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    error: str | None = None


def refresh_loads(loaded: LoadedPolicy, cluster: str) -> LoadsReport:
    """Publish the loads of the newest snapshot that differ materially from those on the topic. Idempotent."""
    try:
        return _refresh(loaded, cluster)
    except JobError as error:
        _LOG.warning("loads are not refreshed: %s", error)
        return LoadsReport(error=str(error))


def _refresh(loaded: LoadedPolicy, cluster: str) -> LoadsReport:
    reader, settings = LakeReader(loaded.policy.lake), loaded.policy.clusters[cluster]
    snapshot = reader.latest_snapshot(cluster)
    if snapshot is None:
        return LoadsReport()
    if not loaded.policy.publishes_to(cluster) and snapshot["hint_topic_max_bytes"] is None:
        # No loads are published, and the topic has none.
        return LoadsReport()
    measured = measure_loads(reader, loaded, cluster, snapshot)
    withdrawn = _withdrawn_since(reader, cluster, snapshot["finished_at"], snapshot["day"])
    measured = {group_id: payload for group_id, payload in measured.items() if group_id not in withdrawn}
    with admin_client(settings) as client:
        if measured:
            ensure_hint_topic(client, settings)
        elif settings.hint_topic not in client.list_topics():
            return LoadsReport()
        changes = _changes(loaded, cluster, measured, read_hint_topic(settings, measured))
        if not changes:
            return LoadsReport()
        max_bytes = read_max_bytes(client, settings.hint_topic)
        with hint_publisher(kafka_cluster_id(client), settings) as publisher:
            # Again behind the fence: no other publisher writes from here on.
            changes = _changes(loaded, cluster, measured, read_hint_topic(settings, measured))
            values = _encode(settings, changes, max_bytes)
            publisher.write_loads(values)
    return LoadsReport(
        refreshed=tuple(sorted(group_id for group_id, value in values.items() if value is not None)),
        removed=tuple(sorted(group_id for group_id, value in values.items() if value is None)),
    )


def _withdrawn_since(reader: LakeReader, cluster: str, since: datetime, day: Any) -> set[str]:
    """Groups whose hint and loads a person withdrew after the measurement."""
    withdrawn = matching(cluster=cluster, action=ControlAction.WITHDRAW.value, since=day)
    filters = [*withdrawn, ("at", ">=", since)]
    return set(reader.read(CONTROL_ACTIONS, columns=["group_id"], filters=filters)["group_id"].to_pylist())


def _changes(
    loaded: LoadedPolicy, cluster: str, measured: Mapping[str, LoadsPayload], state: TopicState
) -> dict[str, LoadsPayload | None]:
    """Loads to write by group (None: a tombstone); nothing new while all hints are stopped."""
    now_ms = time.time_ns() // 1_000_000
    unwanted = (
        group_id
        for group_id in sorted(state.other_groups(LOADS_KEY_PREFIX))
        if not loaded.policy.group_settings(cluster, group_id).publishes_loads
    )
    changes: dict[str, LoadsPayload | None] = dict.fromkeys(islice(unwanted, _MAX_REMOVED))
    if state.stopped:
        return changes
    for group_id, payload in measured.items():
        if now_ms >= payload.valid_until_ms:
            continue
        current = state.loads.get(group_id)
        if current is None or not current.is_fresh(now_ms):
            # A record from the future, or one that is over, is replaced by whatever was measured.
            reason = None if current is not None and current.payload == payload else "there are none"
        else:
            reason = material_change(current.payload, payload, now_ms)
        if reason is not None:
            _LOG.info("loads are published: %s", reason, extra={"group_id": group_id})
            changes[group_id] = payload
    return changes


def _encode(
    settings: ClusterSettings, changes: Mapping[str, LoadsPayload | None], max_bytes: int | None
) -> dict[str, bytes | None]:
    values: dict[str, bytes | None] = {}
    for group_id, payload in changes.items():
        if payload is None:
            values[group_id] = None
            continue
        key = group_signing_key(settings, group_id, is_for_brokers=payload.member_ids is not None)
        value = encode_loads(payload.encode(), group_key=key)
        if reason := size_problem(loads_key(group_id), value, max_bytes):
            _LOG.warning("no loads: they have %s", reason, extra={"group_id": group_id})
        else:
            values[group_id] = value
    return values
