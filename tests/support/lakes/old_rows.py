"""Rows of a cluster over months or years, as Arrow tables: the same for the same slots, made a month at once.

100 groups and a snapshot every five minutes by default, and two plans from each: all published, and applied
in the next snapshot. Nothing here was computed by the product: ids and values only fit each other.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from evenlag.lake.tables import (
    COMMITS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OFFSETS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    RUNS,
    SNAPSHOTS,
)
from evenlag.policy.gates import GATES
from evenlag.policy.group_settings import GroupSettings
from tests.support.lakes.arrow_columns import array, build, concat, from_rows, moments, repeat
from tests.support.lakes.old_shape import snapshot_ids

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from evenlag.lake.tables import Table
    from tests.support.lakes.old_shape import Shape

_SECOND: Final = np.timedelta64(1, "s")
# A plan is settled by the next snapshot, and evaluated by the first one after its horizon of half an hour.
_SETTLED_AFTER, _EVALUATED_AFTER = 1, 7


class OldRows:
    """Makes the rows of each table for some slots.

    cluster, kafka_cluster_id: The cluster's name, and the brokers' id.
    """

    def __init__(self, cluster: str, kafka_cluster_id: str, shape: Shape) -> None:
        self.cluster, self.kafka_cluster_id, self.shape = cluster, kafka_cluster_id, shape

    def rows(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        """Return the rows that the cycles of some slots write to a table."""
        makers = {
            SNAPSHOTS.name: self._snapshots,
            OFFSETS.name: self._offsets,
            COMMITS.name: self._commits,
            MEMBERS.name: self._members,
            LAG.name: self._lag,
            DECISIONS.name: self._decisions,
            PLANS.name: self._plans,
            PLAN_ASSIGNMENTS.name: self._plan_assignments,
            GATE_RESULTS.name: self._gate_results,
            PLAN_EVENTS.name: self._plan_events,
            OUTCOMES.name: self._outcomes,
            PLAN_EVALUATIONS.name: self._plan_evaluations,
            RUNS.name: self._runs,
        }
        return makers[table.name](table, slots)

    # What each snapshot has. -----------------------------------------------------------------------------

    def _head(self, slots: NDArray[np.datetime64], each: int) -> dict[str, pa.Array]:
        """Cluster, day, snapshot id and slot, so many rows for each slot."""
        return {
            "cluster": array([self.cluster]).take(array(np.zeros(len(slots) * each, np.int32))),
            "day": array(np.repeat(slots.astype("datetime64[D]"), each)),
            "snapshot_id": repeat(snapshot_ids(slots), each),
            "slot": moments(np.repeat(slots, each)),
        }

    def _snapshots(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        shape, size = self.shape, len(slots)
        times = {
            name: moments(slots + seconds * _SECOND)
            for name, seconds in (
                ("started_at", 1),
                ("log_start_read_at", 2),
                ("commits_read_at", 2),
                ("end_read_at", 3),
                ("finished_at", 4),
            )
        }
        return build(
            table,
            size,
            self._head(slots, 1),
            times,
            kafka_cluster_id=self.kafka_cluster_id,
            run_id=repeat([f"run-{name}" for name in snapshot_ids(slots)], 1),
            num_groups=shape.groups,
            num_topics=shape.groups,
            num_partitions=shape.groups * shape.partitions,
            num_unread_partitions=0,
            completeness=1.0,
            hint_topic_max_bytes=1_048_588,
        )

    @cached_property
    def _places(self) -> dict[str, pa.Array]:
        """Group, topic and partition of each partition of a snapshot."""
        groups = np.repeat(np.arange(self.shape.groups), self.shape.partitions)
        return {
            "group_id": array([f"group-{number:04}" for number in groups]),
            "topic_id": array([f"{number:022}" for number in groups]),
            "topic": array([f"topic-{number:04}" for number in groups]),
            "partition": array(np.tile(np.arange(self.shape.partitions, dtype=np.int32), self.shape.groups)),
            "owner_member_id": array(
                [
                    f"member-{group:04}-{place % self.shape.members}"
                    for group in range(self.shape.groups)
                    for place in range(self.shape.partitions)
                ]
            ),
        }

    def _of_partitions(self, slots: NDArray[np.datetime64]) -> tuple[int, dict[str, pa.Array]]:
        each = self.shape.groups * self.shape.partitions
        tiled = array(np.tile(np.arange(each, dtype=np.int32), len(slots)))
        return each, {name: values.take(tiled) for name, values in self._places.items()}

    def _ends(self, slots: NDArray[np.datetime64], each: int) -> NDArray[np.int64]:
        seconds = slots.astype("datetime64[s]").astype(np.int64)
        return (seconds[:, None] * 2 + np.arange(each)[None, :]).reshape(-1)

    def _lags(self, num_slots: int, each: int) -> NDArray[np.int64]:
        """Return lags that differ by more than the arrivals of ten seconds: less is not planned."""
        return np.tile(np.arange(each, dtype=np.int64) % 97 * 100, num_slots)

    def _offsets(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        each, places = self._of_partitions(slots)
        ends = array(self._ends(slots, each))
        read_at = {"end_read_at": moments(np.repeat(slots + 3 * _SECOND, each))}
        return build(
            table, len(slots) * each, self._head(slots, each), places, read_at,
            log_start_offset=0, high_watermark=ends, last_stable_offset=ends,
            log_start_read_at=read_at["end_read_at"],
        )  # fmt: skip

    def _commits(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        each, places = self._of_partitions(slots)
        committed = array(self._ends(slots, each) - self._lags(len(slots), each))
        read_at = moments(np.repeat(slots + 2 * _SECOND, each))
        head = self._head(slots, each)
        return build(table, len(slots) * each, head, places, committed_offset=committed, read_at=read_at)

    def _lag(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        each, places = self._of_partitions(slots)
        ends, lags = self._ends(slots, each), self._lags(len(slots), each)
        return build(
            table, len(slots) * each, self._head(slots, each), places,
            status="OK", lag_records=array(lags), raw_lag_records=array(lags),
            committed_offset=array(ends - lags), log_start_offset=0, end_offset=array(ends),
            read_at=moments(np.repeat(slots + 3 * _SECOND, each)),
            arrival_rate_records_per_s=2.0, consume_rate_records_per_s=2.0,
            time_lag_ms=array(lags * 500), stalled=False,
        )  # fmt: skip

    def _members(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        listed = [
            {
                "group_id": f"group-{group:04}", "group_state": "Stable", "group_type": "classic",
                "protocol_type": "consumer", "assignor": "evenlag",
                "member_id": f"member-{group:04}-{number}", "client_id": f"client-{number}",
                "client_host": f"/10.0.{number}.{group % 250}", "subscription": [f"topic-{group:04}"],
                "assignment": [{"topic": f"topic-{group:04}", "partitions": self._held(number)}],
            }
            for group in range(self.shape.groups)
            for number in range(self.shape.members)
        ]  # fmt: skip
        once = from_rows(listed, table)
        each = once.num_rows
        tiled = once.take(array(np.tile(np.arange(each), len(slots))))
        columns = {name: tiled[name].combine_chunks() for name in listed[0]}
        read_at = moments(np.repeat(slots + 2 * _SECOND, each))
        return build(table, tiled.num_rows, self._head(slots, each), columns, read_at=read_at)

    def _held(self, member: int) -> list[int]:
        return [place for place in range(self.shape.partitions) if place % self.shape.members == member]

    def _decisions(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        each = self.shape.groups
        names = array([f"group-{number:04}" for number in range(each)])
        return build(
            table, len(slots) * each, self._head(slots, each),
            group_id=names.take(array(np.tile(np.arange(each), len(slots)))),
            policy_hash="0" * 64, policy_mode="auto", mode="auto", decision="NO_CHANGE",
            reason="the assignment is as even as it can be", is_breach=False, consecutive_breaches=0,
            run_id=repeat([f"run-{name}" for name in snapshot_ids(slots)], each),
        )  # fmt: skip

    # Plans. ----------------------------------------------------------------------------------------------

    def _planned(self, slots: NDArray[np.datetime64], each: int = 1) -> dict[str, pa.Array]:
        """Plan id and group of the plans from the snapshots of some slots, so many rows for each plan."""
        numbers = slots.astype("datetime64[s]").astype(np.int64) // self.shape.step_s
        groups = (numbers[:, None] * self.shape.plans + np.arange(self.shape.plans)).reshape(-1)
        names = [f"group-{number:04}" for number in groups % self.shape.groups]
        texts = (f"{name}/{number}" for name, number in zip(names, groups, strict=True))
        ids = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        return {"plan_id": repeat(ids, each), "group_id": repeat(names, each)}

    def _plans(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        size = len(slots) * self.shape.plans
        planned = self._planned(slots)
        payload = [
            json.dumps({"plan": name, "assignment": _FILLING}) for name in planned["plan_id"].to_pylist()
        ]
        return build(
            table, size, self._head(slots, self.shape.plans), planned,
            mode="auto", assignor="lag-aware-sticky", settings=_SETTINGS, policy_hash="0" * 64,
            fingerprint=planned["plan_id"], payload=array(payload), payload_bytes=len(payload[0]),
            group_state="Stable", group_type="classic", group_assignor="evenlag",
            num_members=self.shape.members, num_partitions=self.shape.partitions,
            num_unassigned_partitions=0, num_unknown_partitions=0, moves=1, count_gap=0, gain=0.3,
            num_unknown_lags=0,
        )  # fmt: skip

    def _plan_assignments(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        each, plans = self.shape.partitions, self.shape.plans
        size = len(slots) * plans * each
        planned = self._planned(slots, each)
        return build(
            table, size, self._head(slots, plans * each), planned,
            topic_id="0" * 22, topic="topic",
            partition=array(np.tile(np.arange(each, dtype=np.int32), len(slots) * plans)),
            owner_before="member-0", owner_after="member-1", owner_after_key="m:member-1", moved=True,
            lag_records=17, lag_status="OK",
        )  # fmt: skip

    def _gate_results(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        each, plans = len(GATES), self.shape.plans
        names = array([gate.name for gate in GATES])
        return build(
            table, len(slots) * plans * each, self._head(slots, plans * each), self._planned(slots, each),
            gate=names.take(array(np.tile(np.arange(each), len(slots) * plans))),
            passed=True, observed="0", allowed="1", message="passed",
        )  # fmt: skip

    def _plan_events(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        size, before = len(slots) * self.shape.plans, self._earlier(slots, _SETTLED_AFTER)
        head, planned = self._head(slots, self.shape.plans), self._planned(slots)
        published = np.repeat(slots + 10 * _SECOND, self.shape.plans)
        numbers = np.repeat(slots.astype("datetime64[s]").astype(np.int64), self.shape.plans)
        parts = [
            build(
                table, size, head, planned, event=event, actor="policy", at=moments(published - ago * _SECOND)
            )
            for event, ago in (("PROPOSED", 6), ("APPROVED", 4))
        ]
        parts.append(
            build(
                table,
                size,
                head,
                planned,
                event="PUBLISHED",
                actor="evenlag",
                at=moments(published),
                sequence=array(numbers),
                expires_at=moments(published + 900 * _SECOND),
            )
        )
        ended = np.repeat(slots + 4 * _SECOND, self.shape.plans)
        parts.append(
            build(
                table, size, head, self._planned(before), event="APPLIED", actor="observer", at=moments(ended)
            )
        )
        return concat(parts)

    def _earlier(self, slots: NDArray[np.datetime64], steps: int) -> NDArray[np.datetime64]:
        return slots - np.timedelta64(steps * self.shape.step_s, "s")

    def _outcomes(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        return build(
            table, len(slots) * self.shape.plans, self._head(slots, self.shape.plans),
            self._planned(self._earlier(slots, _SETTLED_AFTER)), outcome="APPLIED",
            reason="every hinted partition is with its hinted member", adherence=1.0,
            num_partitions=self.shape.partitions, num_unknown_partitions=0,
        )  # fmt: skip

    def _plan_evaluations(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        planned_at = self._earlier(slots, _EVALUATED_AFTER)
        return build(
            table, len(slots) * self.shape.plans, self._head(slots, self.shape.plans),
            self._planned(planned_at), settings=_SETTINGS, scored_after_ms=2_090_000, outcome="APPLIED",
            published_at=moments(np.repeat(planned_at + 10 * _SECOND, self.shape.plans)), paid_off=True,
            reason="its share of the group's lag fell", gain_predicted=0.3, gain_actual=0.3,
            num_partitions=self.shape.partitions, num_unknown_partitions=0,
        )  # fmt: skip

    def _runs(self, table: Table, slots: NDArray[np.datetime64]) -> pa.Table:
        ids = repeat([f"run-{name}" for name in snapshot_ids(slots)], 1)
        parts = [
            build(
                table,
                len(slots),
                self._head(slots, 1),
                run_id=ids,
                step=step,
                summary=summary,
                started_at=moments(slots + begin * _SECOND),
                finished_at=moments(slots + (begin + 4) * _SECOND),
            )
            for step, begin, summary in (
                ("observe", 1, json.dumps({"open_since": None})),
                ("decide", 5, json.dumps({"plans": self.shape.plans})),
            )
        ]
        return concat(parts)


_SETTINGS: Final = GroupSettings().canonical_json()
_FILLING: Final = [["topic", list(range(20)), f"m:member-{number}"] for number in range(4)]
