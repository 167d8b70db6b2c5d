"""Rows that an old cluster has for each day: the audit's, maintenance's, and what happens now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.lake.tables import (
    ALERTS,
    APPROVAL_REQUESTS,
    AUDITED_SNAPSHOTS,
    CONTROL_ACTIONS,
    DOWNSAMPLED_DAYS,
    MEMBERSHIPS,
    OWNERSHIP,
    POLICIES,
    TABLE_HEALTH,
    TABLES,
)
from tests.support.lakes.arrow_columns import array, build, from_rows, moments
from tests.support.lakes.old_shape import input_hash, snapshot_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.lake.tables import Table
    from tests.support.lakes.old_shape import Shape

# Intervals of a group and a day: so often it rebalances.
_INTERVALS: Final = 6
_SECOND: Final = np.timedelta64(1, "s")


class OldDays:
    """Makes the rows of one day; the slots are all of the day that have passed.

    cluster: The cluster's name.
    """

    def __init__(self, cluster: str, shape: Shape) -> None:
        self.cluster, self.shape = cluster, shape
        self._once: dict[str, pa.Table] = {}

    def rows(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """Return the rows of a day of a table."""
        makers: dict[str, Callable[[Table, NDArray[np.datetime64]], pa.Table]] = {
            AUDITED_SNAPSHOTS.name: self._audited,
            MEMBERSHIPS.name: self._intervals,
            OWNERSHIP.name: self._intervals,
            DOWNSAMPLED_DAYS.name: self._downsampled,
            TABLE_HEALTH.name: self._health,
            ALERTS.name: self._alerts,
            POLICIES.name: self._policies,
            CONTROL_ACTIONS.name: self._actions,
            APPROVAL_REQUESTS.name: self._requests,
        }
        return makers[table.name](table, slots)

    def _head(self, slots: NDArray[np.datetime64], size: int) -> dict[str, pa.Array]:
        return {
            "cluster": array([self.cluster] * size),
            "day": array(np.repeat(slots[:1].astype("datetime64[D]"), size)),
        }

    def _audited(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        times = {"slot": moments(slots), "started_at": moments(slots + _SECOND)}
        return build(
            table, len(slots), self._head(slots, len(slots)), times,
            snapshot_id=array(snapshot_ids(slots)), finished_at=moments(slots + 4 * _SECOND),
            input_hash=input_hash(slots),
        )  # fmt: skip

    def _intervals(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """Each group's intervals of a day; those of ``ownership`` for each partition."""
        once = self._subjects(table)
        edges = np.linspace(0, len(slots), min(_INTERVALS, len(slots)) + 1).astype(int)
        first, last = edges[:-1], edges[1:] - 1
        names, times = np.array(snapshot_ids(slots), dtype=object), slots + 2 * _SECOND
        size = once.num_rows * len(first)
        subjects = once.take(array(np.repeat(np.arange(once.num_rows), len(first))))
        given = set(once.column_names) - {"cluster", "day"}
        columns = {
            name: subjects[name].combine_chunks() for name in given if subjects[name].null_count < size
        }

        def tiled(values: NDArray[Any]) -> NDArray[Any]:
            return np.tile(values, once.num_rows)

        is_first, is_last = first == 0, last == len(slots) - 1
        before, after = np.maximum(first - 1, 0), np.minimum(last + 1, len(slots) - 1)
        bounds = {
            "first_snapshot_id": array(tiled(names[first])),
            "first_seen_at": moments(tiled(times[first])),
            "last_snapshot_id": array(tiled(names[last])),
            "last_seen_at": moments(tiled(times[last])),
            "previous_snapshot_id": array(tiled(names[before]), mask=tiled(is_first)),
            "previous_seen_at": _masked(moments(tiled(times[before])), tiled(is_first)),
            "next_snapshot_id": array(tiled(names[after]), mask=tiled(is_last)),
            "next_seen_at": _masked(moments(tiled(times[after])), tiled(is_last)),
            "num_snapshots": array(tiled(last - first + 1)),
        }
        return build(
            table, size, columns, self._head(slots, size), bounds, longest_gap_ms=300_000,
            input_hash=input_hash(slots),
        )  # fmt: skip

    def _subjects(self, table: Table) -> pa.Table:
        """Groups, or partitions with their owners, without the times."""
        if table.name not in self._once:
            make = self._partition if table is OWNERSHIP else self._group
            numbers = range(self.shape.groups * (self.shape.partitions if table is OWNERSHIP else 1))
            self._once[table.name] = from_rows([make(number) for number in numbers], table)
        return self._once[table.name]

    def _group(self, number: int) -> dict[str, Any]:
        topic = f"topic-{number:04}"
        members = [
            {
                "member_id": f"member-{number:04}-{place}", "client_id": f"client-{place}",
                "client_host": f"/10.0.{place}.{number % 250}", "subscription": [topic],
                "assignment": [
                    {
                        "topic": topic,
                        "partitions": list(range(place, self.shape.partitions, self.shape.members)),
                    }
                ],
            }
            for place in range(self.shape.members)
        ]  # fmt: skip
        topics = [{"topic": topic, "topic_id": f"{number:022}", "num_partitions": self.shape.partitions}]
        return {
            "group_id": f"group-{number:04}", "group_state": "Stable", "group_type": "classic",
            "assignor": "evenlag", "is_known": True, "num_members": len(members), "members": members,
            "topics": topics,
        }  # fmt: skip

    def _partition(self, number: int) -> dict[str, Any]:
        group, place = divmod(number, self.shape.partitions)
        member = f"member-{group:04}-{place % self.shape.members}"
        return {
            "group_id": f"group-{group:04}", "topic_id": f"{group:022}", "topic": f"topic-{group:04}",
            "partition": place, "state": "OWNED", "member_id": member, "owner_key": f"m:{member}",
            "client_id": f"client-{place % self.shape.members}", "num_owners": 1,
        }  # fmt: skip

    def _downsampled(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        kept = hourly(slots)
        row = {
            "cluster": self.cluster, "day": slots[0].astype("datetime64[D]").item(),
            "num_snapshots": len(slots), "kept_snapshot_ids": snapshot_ids(kept),
            "downsampled_at": moments(slots[-1:] + 86_400 * 31 * _SECOND)[0].as_py(),
        }  # fmt: skip
        return from_rows([row], table)

    def _health(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        names = [
            (one, check) for one in TABLES for check in ("SCHEMA", "PROTOCOL", "PROPERTIES", "LOG", "FILES")
        ]
        return build(
            table, len(names), self._head(slots, len(names)),
            table_name=array([one for one, _ in names]),
            check_name=array([check for _, check in names]),
            checked_at=moments(np.repeat(slots[:1], len(names))), is_ok=True, observed="it", allowed="it",
            message="as it should be",
        )  # fmt: skip

    def _alerts(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """Five alerts a day that are raised and cleared."""
        states = ["RAISED", "CLEARED"] * 5
        times = slots[:1] + np.arange(len(states)) * 60 * _SECOND
        subjects = array([f"group-{number // 2:04}" for number in range(len(states))])
        return build(
            table, len(states), self._head(slots, len(states)), kind="PLAN_REJECTED", subject=subjects,
            state=array(states), message="max_moves", at=moments(times), run_id="r",
        )  # fmt: skip

    def _policies(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """A policy each month."""
        day = slots[0].astype("datetime64[D]").item()
        size = int(day.day == 1)
        return build(
            table, size, self._head(slots, size), policy_hash=f"{day:%Y%m}".zfill(64), text="groups: []"
        )

    def _actions(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """A withdrawn hint each week."""
        day = slots[0].astype("datetime64[D]").item()
        size = int(day.weekday() == 0)
        return build(
            table, size, self._head(slots, size), action_id=f"{day:%Y%m%d}", action="WITHDRAW",
            hint_topic="hints", group_id="group-0001", sequence=1, reason="a test", actor="a person",
            at=moments(slots[:size]),
        )  # fmt: skip

    def _requests(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """Five requests a day, which nobody answered in time. A slot's rows begin 20 s after it."""
        size = 5
        ids = array([f"{slots[0]}-{number}" for number in range(size)])
        return build(
            table, size, self._head(slots, size), snapshot_id=snapshot_ids(slots[:1])[0], plan_id=ids,
            group_id="group-0001", state="ASKED", at=moments(np.repeat(slots[:1], size)),
            answer_by=moments(np.repeat(slots[:1] + 20 * _SECOND, size)), run_id="r",
        )  # fmt: skip


def hourly(slots: NDArray[np.datetime64]) -> NDArray[np.datetime64]:
    """Return the first slot of each hour: these are kept of a downsampled day."""
    hours = slots.astype("datetime64[h]")
    return slots[np.unique(hours, return_index=True)[1]]


def _masked(values: pa.Array, is_null: NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(array(is_null), pa.scalar(None, values.type), values)
