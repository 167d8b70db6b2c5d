"""A plan for a group of real consumers, in a lake as jobs write it: what commands and DAGs act on."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from assignor_core.hint import HintPayload, plan_id
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    DECISIONS,
    GATE_RESULTS,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
    Table,
)
from evenlag.planning.assignments_hash import hash_assignments
from evenlag.policy.gates import GATES
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.publishing.hint_topic import TopicState, read_hint_topic
from evenlag.publishing.sealing.row_seal import SEAL, Sealer, as_stored
from tests.support.hints import Cluster, Runner, is_settled
from tests.support.spark_tables import together, write_rows
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.brokers import Brokers

POLICY = """\
lake: {lake}
audit_schedule: null
maintenance: {{schedule: null}}
clusters:
  sandbox: {{bootstrap_servers: "{servers}", hint_topic: {hint_topic},
    temporary_member_after_s: null, schedule: null{cluster_keys}}}
groups:
  - {{match: {group}, mode: {mode}, reset_policy: earliest, min_gain: 0{rule_keys}}}
{more}"""
NUM_PARTITIONS = 4
_EVEN_COUNTS = {"min_member_partitions": 2, "max_member_partitions": 2}


def _hash(moves: list[dict[str, Any]]) -> str:
    import pyarrow as pa

    return hash_assignments(pa.Table.from_pylist(moves, schema=arrow_schema(PLAN_ASSIGNMENTS)))


class LiveGroup:
    """A group of consumers that poll in threads, its policy file and its lake.

    group_id, config, lake: The group, the policy file's path, the lake.
    notified: A file for the messages of an Airflow's notifier.
    lineage: A file for the events that an Airflow sends to OpenLineage.
    runners: The consumers; two at first.
    cluster_keys, rule_keys: Further keys of the cluster and of the group's rule; they hold from the next
        `set_mode` on.
    """

    name = "sandbox"

    def __init__(
        self,
        broker: Brokers,
        spark: SparkSession,
        folder: Path,
        unique: Callable[[str], str],
        mode: str = "approve",
    ) -> None:
        self._spark = spark
        self.group_id, self._topic = unique("group"), unique("orders")
        self.kafka = Cluster(
            broker, group_id=self.group_id, topics={self._topic: NUM_PARTITIONS}, hint_topic=unique("hints")
        )
        self.lake = folder / "lake"
        self.config = folder / "evenlag.yaml"
        self.notified = folder / "notified"
        self.lineage = folder / "lineage.jsonl"
        self._servers = broker.bootstrap_servers
        self._rules = self.cluster_keys = self.rule_keys = ""
        self.slots: dict[str, datetime] = {}
        self.set_mode(mode)
        self.runners = [Runner(self.kafka) for _ in range(2)]
        self.wait_until_settled()

    def close(self) -> None:
        for runner in self.runners:
            runner.close()
        self.kafka.close()

    def set_mode(self, mode: str) -> None:
        """Write the policy file again, with another mode for the group."""
        text = POLICY.format(
            lake=self.lake,
            servers=self._servers,
            hint_topic=self.kafka.hint_topic,
            group=self.group_id,
            mode=mode,
            more=self._rules,
            cluster_keys=f", {self.cluster_keys}" if self.cluster_keys else "",
            rule_keys=f", {self.rule_keys}" if self.rule_keys else "",
        )
        self.config.write_text(text, encoding="utf-8")

    def add_rule(self, group_id: str, mode: str) -> None:
        """Add a rule for another group; it holds from the next `set_mode` on."""
        self._rules += f"  - {{match: {group_id}, mode: {mode}}}\n"

    def wait_until_settled(self) -> None:
        wait_until(lambda: is_settled(self.runners, NUM_PARTITIONS), what="never settled")

    def wait_until_followed(self, plan_id: str) -> None:
        """Wait until each consumer holds what the plan gives it and nobody rebalances."""
        rows = LakeReader(str(self.lake)).read(PLAN_ASSIGNMENTS, filters=[("plan_id", "=", plan_id)])
        wanted = {
            (row["owner_after_key"], (row["topic"], row["partition"]))
            for row in rows.select(["owner_after_key", "topic", "partition"]).to_pylist()
        }

        def is_followed() -> bool:
            held = {(runner.key, pair) for runner in self.runners for pair in runner.held}
            return held == wanted and is_settled(self.runners, NUM_PARTITIONS)

        wait_until(is_followed, what=f"plan {plan_id} was never followed")

    def add_member(self) -> None:
        """Let a third consumer join: the membership is another one from then on."""
        self.runners.append(Runner(self.kafka))
        self.wait_until_settled()

    @property
    def loaded(self) -> LoadedPolicy:
        return load_policy(self.config)

    @property
    def topic_state(self) -> TopicState:
        return read_hint_topic(self.loaded.policy.clusters[self.name])

    def write(self, table: Table, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows as a job would; what a row lacks is null."""
        with together(self._spark):
            write_rows(self.lake, table, rows)

    def snapshot(self, slot: datetime, snapshot_id: str, *, completeness: float = 1.0) -> dict[str, Any]:
        """Write a snapshot's marker; returns what its rows have in common."""
        head = {"cluster": self.name, "day": slot.date(), "snapshot_id": snapshot_id}
        times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
        counts = {"completeness": completeness, "num_partitions": 1000, "num_unread_partitions": 100}
        marker = head | counts | {"slot": slot, "kafka_cluster_id": self.kafka.cluster_id}
        self.write(SNAPSHOTS, [marker | dict.fromkeys(times, slot)])
        return head

    def plan(
        self,
        *,
        mode: str = "approve",
        approved: bool = False,
        failed_gate: str | None = None,
        age_s: int = 5,
        group_id: str | None = None,
        slot: datetime | None = None,
    ) -> str:
        """Write a plan that swaps what the first two consumers hold, judged; returns its id."""
        group_id = group_id or self.group_id
        if slot is None:
            slot = (datetime.now(UTC) - timedelta(seconds=age_s)).replace(microsecond=0)
        snapshot_id = f"{slot:%Y%m%dT%H%M%S}000Z-{secrets.token_hex(4)}"
        first, second = self.runners[:2]
        held = {runner.key: sorted(number for _, number in runner.held) for runner in self.runners}
        wanted = {**held, first.key: held[second.key], second.key: held[first.key]}
        payload = self.kafka.payload(
            {key: {self._topic: numbers} for key, numbers in wanted.items()},
            snapshot_id=snapshot_id,
            group_id=group_id,
        ).encode()
        identity = plan_id(payload)
        self.slots[identity] = slot
        with together(self._spark):
            head = self.snapshot(slot, snapshot_id)
            moves = self._rows(head | {"plan_id": identity, "group_id": group_id}, held, wanted)
            self.write(PLAN_ASSIGNMENTS, moves)
            decision = {"plan_id": identity, "group_id": group_id, "slot": slot, "mode": mode}
            decision |= {"policy_hash": self.loaded.policy_hash, "policy_mode": mode, "decision": "PROPOSED"}
            is_sealed = self.loaded.policy.clusters[self.name].hint_signing_key is not None
            seals = [self._write_sealed(DECISIONS, head | decision)] if is_sealed else []
            settings = self.loaded.policy.group_settings(self.name, group_id)
            plan = head | {
                "slot": slot,
                "plan_id": identity,
                "group_id": group_id,
                "mode": mode,
                "assignor": "lag-aware-sticky",
                "settings": json.dumps(settings.model_dump(mode="json")),
                "policy_hash": self.loaded.policy_hash,
                "fingerprint": HintPayload.decode(payload).fingerprint,
                "payload": payload.decode(),
                "payload_bytes": len(payload),
                "group_state": "Stable",
                "group_type": "classic",
                "group_assignor": "evenlag",
                "num_members": len(self.runners),
                "num_partitions": NUM_PARTITIONS,
                "num_unassigned_partitions": 0,
                "num_unknown_partitions": 0,
                "moves": sum(row["moved"] for row in moves),
                "gain": 0.4,
                "metrics_before": {"max_member_lag_records": 2100, "lag_skew": 1.4} | _EVEN_COUNTS,
                "metrics_after": {"max_member_lag_records": 1700, "lag_skew": 1.13} | _EVEN_COUNTS,
                "assignments_hash": _hash(moves),
            }
            seals.append(self._write_sealed(PLANS, plan))
            event = head | {"plan_id": identity, "group_id": group_id, "actor": "planner", "at": slot}
            seals.append(self._write_sealed(PLAN_EVENTS, event | {"event": "PROPOSED"}))
            verdict = head | {"plan_id": identity, "group_id": self.group_id, "message": "within its limits"}
            failed = {"passed": False, "message": failed_gate}
            for number, gate in enumerate(GATES):
                row = {"gate": gate.name, "passed": True} | (failed if failed_gate and number == 0 else {})
                seals.append(self._write_sealed(GATE_RESULTS, verdict | row))
            if failed_gate:
                refused = {"event": "REJECTED", "actor": "gates", "reason": failed_gate}
                self.write(PLAN_EVENTS, [event | refused])
            if approved:
                self._write_sealed(PLAN_EVENTS, event | {"event": "APPROVED", "actor": "policy"}, seals)
        return identity

    def _write_sealed(self, table: Table, row: dict[str, Any], evidence: list[str] | None = None) -> str:
        """Write a row of a plan as the jobs do, with its seal if the policy has a key; returns the seal."""
        sealer = Sealer.of(self.loaded.policy.clusters[self.name])
        if sealer is not None:
            (row,) = as_stored(table, [row])
            row[SEAL] = sealer.seal(table, row, evidence)
        self.write(table, [row])
        return str(row.get("seal"))

    def events(self, plan_id: str) -> dict[str, dict[str, Any]]:
        """What happened to a plan, by event."""
        rows = LakeReader(str(self.lake)).read_events(filters=[("plan_id", "=", plan_id)]).to_pylist()
        assert len({row["event"] for row in rows}) == len(rows), rows
        return {row["event"]: row for row in rows}

    def _rows(
        self, head: dict[str, Any], held: dict[str, list[int]], wanted: dict[str, list[int]]
    ) -> list[dict[str, Any]]:
        owner = {number: key for key, numbers in held.items() for number in numbers}
        topic_id = self.kafka.topic_ids()[self._topic]
        return [
            head
            | {
                "topic_id": topic_id,
                "topic": self._topic,
                "partition": number,
                "owner_before": owner[number].removeprefix("m:"),
                "owner_after": key.removeprefix("m:"),
                "owner_after_key": key,
                "moved": owner[number] != key,
                "lag_records": 300 * (1 + number),
                "lag_status": "OK",
            }
            for key, numbers in wanted.items()
            for number in numbers
        ]
