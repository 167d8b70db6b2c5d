"""Loads of a snapshot's groups, as records of the hint topic contain them.

The load is the one that the planner balances. It is scaled, so that records of the same skew are equal, and
rounded: what is relative to a measurement a few minutes ago has no more than three digits of meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.errors import AssignorError
from assignor_core.loads import MAX_CAPACITY, LoadsPayload
from assignor_core.objective import Load, member_load
from evenlag.enums import GroupState, GroupType
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.logging_setup import named_logger
from evenlag.planning.eligibility import hint_blocker, planning_blocker, summarize_groups
from evenlag.planning.group_batch import build_batch
from evenlag.planning.group_planner import build_group, member_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from assignor_core.group import Group
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.planning.eligibility import GroupSummary
    from evenlag.planning.group_batch import GroupBatch
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.loader import LoadedPolicy

_LOG = named_logger(__name__)

LARGEST_LOAD: Final = 1_000_000
_DIGITS: Final = 3
_MINUTE_MS: Final = 60_000
_LAG_COLUMNS: Final = (
    "group_id",
    "topic_id",
    "topic",
    "partition",
    "owner_member_id",
    "target_member_id",
    "status",
    "lag_records",
    "lag_bound",
    "arrival_rate_records_per_s",
    "stalled",
    "commit_problem",
    "owner_problem",
)
_MEMBER_COLUMNS: Final = (
    "group_id",
    "member_id",
    "group_instance_id",
    "subscription",
    "group_state",
    "group_type",
    "assignor",
    "subscription_error",
    "assignment_error",
    "error",
)


def measure_loads(
    reader: LakeReader, loaded: LoadedPolicy, cluster: str, snapshot: Mapping[str, Any]
) -> dict[str, LoadsPayload]:
    """Build the loads of the groups that the policy publishes loads for, and that can use them."""
    of_snapshot: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", snapshot["day"]),
        ("snapshot_id", "=", snapshot["snapshot_id"]),
    ]
    members = reader.read(MEMBERS, columns=_MEMBER_COLUMNS, filters=of_snapshot)
    settings = {
        group_id: loaded.policy.group_settings(cluster, group_id)
        for group_id in members["group_id"].unique().to_pylist()
    }
    wanted = sorted(group_id for group_id, rule in settings.items() if rule.publishes_loads)
    if not wanted:
        return {}
    of_groups: Filter = ("group_id", "in", wanted)
    lag = reader.read(LAG, columns=_LAG_COLUMNS, filters=[*of_snapshot, of_groups])
    members = reader.read(MEMBERS, columns=_MEMBER_COLUMNS, filters=[*of_snapshot, of_groups])
    return build_loads(lag, members, settings, snapshot)


def build_loads(
    lag: pa.Table, members: pa.Table, settings: Mapping[str, GroupSettings], snapshot: Mapping[str, Any]
) -> dict[str, LoadsPayload]:
    """Build the loads of groups from their rows of a snapshot.

    Returns by group id, without the groups that cannot use them.
    """
    batch = build_batch(lag, members)
    found = {}
    for number, summary in enumerate(summarize_groups(batch)):
        group_id = batch.group_ids[number]
        payload = _measure(batch, number, summary, settings[group_id], snapshot)
        if payload is not None:
            found[group_id] = payload
    return found


def scale_loads(load: NDArray[np.float64]) -> NDArray[np.int64]:
    """Scale loads so that the largest is a million, and round them to three significant digits.

    Returns int64 [P]; zeros if there is no load.

    Examples
    --------
    >>> scale_loads(np.array([0.0, 1.0, 3.0, 2048.0])).tolist()
    [0, 488, 1460, 1000000]
    """
    largest = float(load.max(initial=0.0))
    if not largest > 0:
        return np.zeros(len(load), dtype=np.int64)
    scaled = load / largest * LARGEST_LOAD
    digits = np.floor(np.log10(np.maximum(scaled, 1.0))) + 1
    unit = 10.0 ** np.maximum(digits - _DIGITS, 0)
    rounded: NDArray[np.int64] = (np.rint(scaled / unit) * unit).astype(np.int64)
    return rounded


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


def _measure(
    batch: GroupBatch,
    number: int,
    summary: GroupSummary,
    settings: GroupSettings,
    snapshot: Mapping[str, Any],
) -> LoadsPayload | None:
    """Loads of one group; None if it cannot use them. A fault of one group is its own."""
    group_id = batch.group_ids[number]
    blocker = planning_blocker(summary) or hint_blocker(summary)
    if blocker is None and summary.state != GroupState.STABLE:
        blocker = f"the group is {summary.state}"
    if blocker is None and batch.row_start[number] == batch.row_start[number + 1]:
        blocker = "the snapshot has no lag of the group"
    if blocker is not None:
        _LOG.info("no loads: %s", blocker, extra={"group_id": group_id})
        return None
    try:
        payload = _payload(batch, number, summary, settings, snapshot)
        payload.encode()
    except AssignorError as error:
        _LOG.warning("no loads: %s", error, extra={"group_id": group_id})
        return None
    return payload


def _payload(
    batch: GroupBatch,
    number: int,
    summary: GroupSummary,
    settings: GroupSettings,
    snapshot: Mapping[str, Any],
) -> LoadsPayload:
    rows = build_group(batch, number)
    group = rows.group
    load = scale_loads(member_load(settings.load, group.lag, rows.arrival_rate))
    is_unknown = rows.is_unknown
    if settings.load is not Load.LAG:
        is_unknown = is_unknown | np.isnan(rows.arrival_rate)
    first, last = batch.row_start[number : number + 2].tolist()
    topics = slice(*batch.topic_start[number : number + 2].tolist())
    default_capacity, capacities = scale_capacities(_capacities(group, settings))
    measured_at_ms = round(snapshot["finished_at"].timestamp() * 1000)
    return LoadsPayload(
        cluster_id=snapshot["kafka_cluster_id"],
        group_id=batch.group_ids[number],
        snapshot_id=snapshot["snapshot_id"],
        measured_at_ms=measured_at_ms,
        valid_until_ms=measured_at_ms + settings.loads_valid_minutes * _MINUTE_MS,
        loads=_by_partition(
            rows.topic_ids,
            batch.topic_rows[topics].tolist(),
            batch.lag["partition"].to_numpy()[first:last],
            load,
            is_unknown,
        ),
        capacities=capacities,
        default_capacity=default_capacity,
        count_slack=settings.count_slack,
        max_moves=settings.max_moves,
        member_ids=sorted(group.member_ids) if summary.type == GroupType.CONSUMER else None,
    )


def _capacities(group: Group, settings: GroupSettings) -> dict[str, float]:
    return {
        key: settings.capacity_of(instance)
        for key, instance in zip(member_keys(group), group.instance_ids, strict=True)
    }


def _by_partition(
    topic_ids: Sequence[str],
    topic_rows: Sequence[int],
    partition: NDArray[np.int32],
    load: NDArray[np.int64],
    is_unknown: NDArray[np.bool_],
) -> dict[str, list[int | None]]:
    """Loads by topic and partition number; None for an unknown one, and for a partition without a row."""
    found: dict[str, list[int | None]] = {}
    start = 0
    for topic_id, size in zip(topic_ids, topic_rows, strict=True):
        rows = slice(start, start + size)
        values = np.full(int(partition[rows].max(initial=-1)) + 1, None, dtype=object)
        known = ~is_unknown[rows]
        # As objects these are Python's own integers, which JSON can write.
        values[partition[rows][known]] = load[rows][known]
        found[topic_id] = values.tolist()
        start += size
    return found
