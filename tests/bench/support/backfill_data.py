"""Days of a cluster as they occur, from a seed: daily rhythm, hot partitions, members that come and go.

It is no replay: time goes in steps of half a minute, members' rates waver, and what is committed is a little
behind what is processed, so that :mod:`evenlag.simulation` has something to be wrong about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.assignors import get_assignor
from assignor_core.group import Group
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS, Table
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

FIRST_DAY: Final = date(2026, 3, 1)
CLUSTER: Final = "bench"
SLOTS: Final = 288
_SLOT_S: Final = 300
_STEPS: Final = 10
_STEP_S: Final = _SLOT_S / _STEPS
_TOPICS: Final = 2
_MOST_MEMBERS: Final = 10
_USUAL_MEMBERS: Final = 6
_FEWEST_MEMBERS: Final = 3
# A group sees about four joins or leaves a day, and six hot spells of some partition.
_CHANGE: Final = 4 / SLOTS
_HEAT: Final = 6 / SLOTS
_COMMIT_S: Final = 5.0
_SHARINGS: Final = 4


@dataclass(slots=True)
class Workload:
    """A cluster's groups, going on from day to day.

    num_groups, num_partitions: G and P, over two topics a group.
    """

    num_groups: int = 50
    num_partitions: int = 40
    seed: int = 7
    _rng: np.random.Generator = field(init=False)
    _base: NDArray[np.float64] = field(init=False)
    _phase: NDArray[np.float64] = field(init=False)
    _capacity: NDArray[np.float64] = field(init=False)
    _heat: NDArray[np.float64] = field(init=False)
    _cool_at: NDArray[np.int64] = field(init=False)
    _end: NDArray[np.float64] = field(init=False)
    _backlog: NDArray[np.float64] = field(init=False)
    _owner: NDArray[np.int64] = field(init=False)
    # Index of the name of who has a place in a group, -1 where nobody has.
    _place: NDArray[np.int64] = field(init=False)
    _names: list[str] = field(default_factory=list)
    _slot: int = 0

    def __post_init__(self) -> None:
        self._rng = rng = np.random.default_rng(self.seed)
        shape = (self.num_groups, self.num_partitions)
        weight = rng.pareto(2.0, shape) + 0.2
        total = rng.lognormal(5.5, 0.8, (self.num_groups, 1))
        self._base = total * weight / weight.sum(axis=1, keepdims=True)
        self._phase = rng.uniform(0, 2 * np.pi, (self.num_groups, 1))
        # The usual members can do 1.8 times what comes on average: little is left when some are hot at noon.
        self._capacity = (
            1.8 * total / _USUAL_MEMBERS * rng.lognormal(0, 0.15, (self.num_groups, _MOST_MEMBERS))
        )
        self._heat = np.ones(shape)
        self._cool_at = np.zeros(shape, dtype=np.int64)
        self._end = rng.integers(10**6, 10**9, shape).astype(np.float64)
        self._backlog = np.zeros(shape)
        self._owner = np.full(shape, -1, dtype=np.int64)
        self._place = np.full((self.num_groups, _MOST_MEMBERS), -1, dtype=np.int64)
        for group in range(self.num_groups):
            for place in range(_USUAL_MEMBERS):
                self._join(group, place)
            self._assign(group)

    def next_day(self) -> dict[Table, pa.Table]:
        """Let a day go by: the rows of ``snapshots``, ``members`` and ``lag`` that snapshots of it leave."""
        ends, lags, owners = [], [], []
        people: list[dict[str, Any]] = []
        first = self._slot
        for slot in range(first, first + SLOTS):
            self._change_members()
            self._change_heat(slot)
            in_flight = self._backlog + self._live(slot)
            ends.append(np.floor(self._end))
            lags.append(np.floor(np.minimum(in_flight, self._end)))
            owners.append(self._owner_names())
            people += self._people(slot)
            self._work(slot)
        self._slot = first + SLOTS
        slots = range(first, first + SLOTS)
        return {
            SNAPSHOTS: _table(SNAPSHOTS, [_snapshot(slot) for slot in slots]),
            MEMBERS: _table(MEMBERS, people),
            LAG: self._lag_rows(slots, np.stack(ends), np.stack(lags), np.stack(owners)),
        }

    def _rate(self, slot: int) -> NDArray[np.float64]:
        rhythm = 1.0 + 0.45 * np.sin(2 * np.pi * slot / SLOTS + self._phase)
        return np.asarray(self._base * self._heat * rhythm, dtype=np.float64)

    def _live(self, slot: int) -> NDArray[np.float64]:
        """What is processed and not yet committed."""
        return np.asarray(self._rate(slot) * self._rng.uniform(0, _COMMIT_S, self._base.shape))

    def _work(self, slot: int) -> None:
        shape = self._base.shape
        cell = (np.arange(self.num_groups)[:, None] * _MOST_MEMBERS + self._owner.clip(min=0)).ravel()
        num_cells = self.num_groups * _MOST_MEMBERS
        for _ in range(_STEPS):
            arrived = self._rate(slot) * self._rng.lognormal(0, 0.1, shape) * _STEP_S
            self._end += arrived
            wanted = np.where(self._owner >= 0, self._backlog + arrived, 0.0)
            able = (self._capacity * self._rng.lognormal(0, 0.05, self._capacity.shape) * _STEP_S).ravel()
            done = np.zeros(shape)
            for _ in range(_SHARINGS):
                open_ = (wanted - done > 0).ravel()
                share = able / np.maximum(np.bincount(cell, open_, minlength=num_cells), 1.0)
                more = np.minimum((wanted - done).ravel(), share[cell]) * open_
                done += more.reshape(shape)
                able = np.maximum(able - np.bincount(cell, more, minlength=num_cells), 0.0)
            self._backlog += arrived - done

    def _change_heat(self, slot: int) -> None:
        self._heat[self._cool_at <= slot] = 1.0
        hot = np.flatnonzero(self._rng.random(self.num_groups) < _HEAT)
        partition = self._rng.integers(0, self.num_partitions, len(hot))
        self._heat[hot, partition] = self._rng.uniform(3, 8, len(hot))
        self._cool_at[hot, partition] = slot + self._rng.integers(6, 25, len(hot))

    def _change_members(self) -> None:
        for group in np.flatnonzero(self._rng.random(self.num_groups) < _CHANGE).tolist():
            there = np.flatnonzero(self._place[group] >= 0)
            free = np.flatnonzero(self._place[group] < 0)
            # Who goes is replaced before long, who was added for a while goes again.
            wish = 0.5 + 0.2 * (_USUAL_MEMBERS - len(there))
            joins = len(there) <= _FEWEST_MEMBERS or (len(free) > 0 and self._rng.random() < wish)
            if joins:
                self._join(group, int(free[0]))
            else:
                gone = int(self._rng.choice(there))
                self._place[group, gone] = -1
                self._owner[group][self._owner[group] == gone] = -1
            self._assign(group)

    def _join(self, group: int, place: int) -> None:
        self._place[group, place] = len(self._names)
        self._names.append(f"c{place:02}-{len(self._names):05}")

    def _owner_names(self) -> NDArray[np.int64]:
        names = np.take_along_axis(self._place, self._owner.clip(min=0), axis=1)
        return np.where(self._owner >= 0, names, -1)

    def _assign(self, group: int) -> None:
        """As the group's own assignor would, cooperative-sticky."""
        there = np.flatnonzero(self._place[group] >= 0)
        rank = np.full(_MOST_MEMBERS, -1)
        rank[there] = np.arange(len(there))
        held = np.flatnonzero(self._owner[group] >= 0)
        each = np.repeat(np.arange(len(there)), _TOPICS), np.tile(np.arange(_TOPICS), len(there))
        built = Group.from_arrays(
            topics=[f"topic-{group:03}-{topic}" for topic in range(_TOPICS)],
            num_partitions=np.full(_TOPICS, self.num_partitions // _TOPICS),
            member_ids=[f"c{place:02}" for place in there],
            subscriptions=each,
            claims=(held, rank[self._owner[group][held]], np.zeros(len(held), dtype=np.int64)),
        )
        self._owner[group] = there[get_assignor("cooperative-sticky").assign(built)]

    def _people(self, slot: int) -> list[dict[str, Any]]:
        return [
            {
                **_head(slot),
                "group_id": f"group-{group:03}",
                "group_state": "Stable",
                "group_type": "classic",
                "protocol_type": "consumer",
                "assignor": "cooperative-sticky",
                "member_id": self._names[self._place[group, place]],
                "subscription": [f"topic-{group:03}-{topic}" for topic in range(_TOPICS)],
                "read_at": _at(slot),
            }
            for group in range(self.num_groups)
            for place in np.flatnonzero(self._place[group] >= 0).tolist()
        ]

    def _lag_rows(
        self, slots: range, end: NDArray[np.float64], lag: NDArray[np.float64], owner: NDArray[np.int64]
    ) -> pa.Table:
        import pyarrow as pa

        size = end.size
        per_slot = self.num_groups * self.num_partitions
        half = self.num_partitions // _TOPICS
        groups = np.tile(np.repeat(np.arange(self.num_groups), self.num_partitions), len(slots))
        partition = np.tile(np.arange(self.num_partitions), len(slots) * self.num_groups)
        heads = [_head(slot) for slot in slots]
        of_slot = np.repeat(np.arange(len(slots)), per_slot)
        topic = groups * _TOPICS + partition // half
        topics = [f"topic-{i // _TOPICS:03}-{i % _TOPICS}" for i in range(self.num_groups * _TOPICS)]
        arrival, consume = (np.diff(points, axis=0) / _SLOT_S for points in (end, end - lag))
        # The first reading of a day takes the rates of the second.
        arrival, consume = (np.concatenate([rates[:1], rates]) for rates in (arrival, consume))
        columns: dict[str, Any] = {
            "cluster": pa.repeat(CLUSTER, size),
            "day": pa.repeat(pa.scalar(heads[0]["day"], pa.date32()), size),
            "snapshot_id": _taken([head["snapshot_id"] for head in heads], of_slot),
            "slot": pa.array([_slot_at(slot) for slot in slots], pa.timestamp("us", "UTC")).take(
                pa.array(of_slot)
            ),
            "read_at": pa.array([_at(slot) for slot in slots], pa.timestamp("us", "UTC")).take(
                pa.array(of_slot)
            ),
            "group_id": _taken([f"group-{i:03}" for i in range(self.num_groups)], groups),
            "topic_id": _taken([f"{name}-id" for name in topics], topic),
            "topic": _taken(topics, topic),
            "partition": pa.array((partition % half).astype(np.int32)),
            "owner_member_id": _taken(self._names, owner.ravel()),
            "status": pa.repeat("OK", size),
            "lag_records": pa.array(lag.ravel().astype(np.int64)),
            "raw_lag_records": pa.array(lag.ravel().astype(np.int64)),
            "committed_offset": pa.array((end - lag).ravel().astype(np.int64)),
            "end_offset": pa.array(end.ravel().astype(np.int64)),
            "arrival_rate_records_per_s": pa.array(arrival.ravel()),
            "consume_rate_records_per_s": pa.array(consume.ravel()),
            "time_lag_ms": pa.array((1000 * lag / np.maximum(arrival, 1e-3)).ravel().astype(np.int64)),
            "stalled": pa.repeat(pa.scalar(value=False), size),
        }
        schema = arrow_schema(LAG)
        return pa.table(
            [columns.get(name, pa.nulls(size, schema.field(name).type)) for name in schema.names],
            schema=schema,
        )


def write_days(root: str, workload: Workload, num_days: int) -> int:
    """Write days into a lake by the running Spark session; returns how many lag rows they have."""
    rows = 0
    for _ in range(num_days):
        for table, data in workload.next_day().items():
            write_rows(root, table, data)
            rows += data.num_rows if table is LAG else 0
    return rows


def day_of(number: int) -> date:
    """The day of that number, from 0."""
    return FIRST_DAY + timedelta(days=number)


def _slot_at(slot: int) -> datetime:
    return datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day, tzinfo=UTC) + timedelta(
        seconds=slot * _SLOT_S
    )


def _at(slot: int) -> datetime:
    """When it was read: a few seconds after the slot, never the same."""
    return _slot_at(slot) + timedelta(milliseconds=2_000 + 613 * (slot % 5))


def _head(slot: int) -> dict[str, Any]:
    at = _slot_at(slot)
    snapshot_id = f"{at:%Y%m%dT%H%M%S}000Z-{slot:08x}"
    return {"cluster": CLUSTER, "day": at.date(), "snapshot_id": snapshot_id}


def _snapshot(slot: int) -> dict[str, Any]:
    return {
        **_head(slot),
        "slot": _slot_at(slot),
        "kafka_cluster_id": "bench",
        "started_at": _slot_at(slot),
        "log_start_read_at": _at(slot),
        "commits_read_at": _at(slot),
        "end_read_at": _at(slot) + timedelta(microseconds=789),
        "finished_at": _at(slot),
        "completeness": 1.0,
    }


def _table(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pylist(rows, schema=arrow_schema(table))


def _taken(values: list[str], index: NDArray[np.int64]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values).take(pa.array(index, mask=index < 0))
