"""What following a plan costs a group at Kafka's defaults, beside what one member that joins costs it.

``python -m tests.bench.following [--only ROW ...] [--repeats N]`` prints a table and merges its rows into
``docs/bench/following.json``. Twelve partitions under traffic, four consumers of a process each, plans of 8
to 11 moves; in the rows named ``…_join`` a fourth consumer joins three. Heartbeats every 3 s, sessions of
45 s, KIP-848: heartbeats every 5 s, targets at most every second. Each hint is published and waited for as
by a publishing, temporary member and trigger included.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assignor_core.hint import member_key
from evenlag.enums import GroupType
from evenlag.kafka.broker_requests import RequestLimits
from evenlag.kafka.groups import describe_named_groups
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.rebalance_trigger.await_followers import await_followers
from evenlag.publishing.rebalance_trigger.await_target import await_target_assignment
from sandbox.kafka.broker import Broker
from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS, build_plugin
from tests.support.consumer.following import (
    draw_placement,
    measure_following,
    measure_joining,
    newest_generation,
)
from tests.support.faulty_workload import FaultyWorkload
from tests.support.hints import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.consumer.following import Cost

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "following.json"
_HINTS: Final = "evenlag-hints"
_NUM_PARTITIONS: Final = 12
_MOVES: Final = range(8, _NUM_PARTITIONS)
_NUM_MEMBERS: Final = 4
_RECORDS_PER_S: Final = 240.0
_KAFKA_STICKY: Final = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
# 15 s for a batch of the backlog that it has before each hint. Others soon process what they take over of it:
# it would keep their other partitions waiting.
_SLOW: Final = {"records_per_s": 50.0, "extra": {"max_poll_records": 750}}
_BESIDE_SLOW: Final = {"records_per_s": 5_000.0}
_SLOW_BACKLOG: Final = 750
# Between two measurements: this long, and a part of an interval between heartbeats, so that hints and joins
# come at each phase of them alike.
_REST_S: Final = 1.0
_HEARTBEAT_S: Final = 3.0
_KIP848_HEARTBEAT_S: Final = 5.0


@dataclass(frozen=True)
class Row:
    """Consumers of a row: fields of all, whether the first has long batches, whether one joins."""

    fields: dict[str, Any] = field(default_factory=dict)
    has_slow: bool = False
    is_join: bool = False

    @property
    def is_kip848(self) -> bool:
        """Whether the group is of the consumer protocol."""
        return self.fields.get("protocol") == "consumer"


_JAVA: Final = {"language": "java", "asks": False}
_KIP848: Final = {"protocol": "consumer"}
ROWS: Final = {
    "kafka_python": Row(),
    "kafka_python_with_slow_member": Row(_BESIDE_SLOW, has_slow=True),
    "kafka_python_join": Row({"assignor": "cooperative-sticky"}, is_join=True),
    "java": Row(_JAVA),
    "java_join": Row({**_JAVA, "extra": {"partition_assignment_strategy": _KAFKA_STICKY}}, is_join=True),
    "kip848": Row(_KIP848),
    "kip848_join": Row({**_KIP848, "assignor": "uniform"}, is_join=True),
}


class _Group:
    """The workload of one row, and the publisher of its hints."""

    def __init__(self, row: Row, workload: FaultyWorkload, cluster: Cluster) -> None:
        self._row, self._workload, self._cluster = row, workload, cluster
        self._chance = random.Random(38)  # noqa: S311  # repeatable, no secret
        servers = tuple(cluster.bootstrap_servers.split(","))
        self._settings = ClusterSettings(bootstrap_servers=servers, hint_topic=_HINTS)

    def start(self) -> None:
        """Start consumers and traffic, and run through one hint, or one join, that does not count."""
        first = 0
        if self._row.has_slow:
            self._workload.start_consumer("consumer-0", is_static=True, **_SLOW)
            first = 1
        self._workload.start_consumers(_NUM_MEMBERS - first - self._row.is_join, is_static=True)
        self._workload.wait_until_owned()
        self._workload.start_traffic(records_per_s=_RECORDS_PER_S, skew=0.0)
        self._measure(0.0)

    def measure(self, repeats: int) -> list[dict[str, Any]]:
        """Measure hints or joins, evenly spread over the phases of the members' heartbeats."""
        phases = [(number + self._chance.random()) / repeats for number in range(repeats)]
        self._chance.shuffle(phases)
        return [self._measure(phase) for phase in phases]

    def _measure(self, phase: float) -> dict[str, Any]:
        """Follow a hint, or let a consumer join; return the figures."""
        if self._row.has_slow:
            held = self._workload.wait_until_owned()["consumer-0"]
            self._workload.fill(dict.fromkeys(held, _SLOW_BACKLOG))
        time.sleep(_REST_S + phase * (_KIP848_HEARTBEAT_S if self._row.is_kip848 else _HEARTBEAT_S))
        before = self._num_rebalances()
        cost = self._join() if self._row.is_join else self._follow()
        figures = {
            "moves": cost.num_moves,
            "follow_s": cost.follow_s,
            "longest_stop_s": cost.longest_stop_s,
            "unowned_s_per_move": cost.unowned_s / max(1, cost.num_moves),
            "rebalances": self._num_rebalances() - before,
        }
        if self._row.is_join:
            self._workload.stop_process(self._newcomer)
            self._workload.wait_until_owned()
        return figures

    @property
    def _newcomer(self) -> str:
        return f"consumer-{_NUM_MEMBERS}"

    def _join(self) -> Cost:
        return measure_joining(self._workload, self._newcomer)

    def _follow(self) -> Cost:
        wanted = draw_placement(self._workload.wait_until_owned(), self._chance, num_moves=_MOVES)
        slow = ["consumer-0"] if self._row.has_slow else []
        return measure_following(self._workload, wanted, lambda: self._publish(wanted), slow=slow)

    def _publish(self, wanted: dict[str, set[int]]) -> None:
        placement = {
            member_key("", name): {self._workload.topic: sorted(numbers)} for name, numbers in wanted.items()
        }
        admin, group_id = self._cluster.admin, self._workload.group_id
        if not self._row.is_kip848:
            payload = self._cluster.payload(placement)
            self._cluster.publish(payload)
            after_s = self._settings.temporary_member_after_s
            assert after_s is not None
            await_followers(admin, self._settings, {group_id: payload}, after_s=after_s)
            return
        ids = {
            member_key(row["member_id"], row["group_instance_id"]): row["member_id"]
            for row in self._described()
        }
        payload = self._cluster.payload(placement, member_ids=ids)
        self._cluster.publish(payload)
        await_target_assignment(admin, self._settings, {group_id: payload})

    def _num_rebalances(self) -> int:
        """Return the generation; of a group of KIP-848, its epoch."""
        if self._row.is_kip848:
            return int(self._described()[0]["group_epoch"])
        return newest_generation(self._workload)

    def _described(self) -> list[dict[str, Any]]:
        group = {self._workload.group_id: GroupType.CONSUMER}
        return describe_named_groups(self._cluster.admin, group, RequestLimits(), frozenset({_HINTS}))


def measure_row(name: str, broker: Broker, folder: Path, repeats: int) -> dict[str, Any]:
    """Return the figures of a row."""
    row, topic = ROWS[name], name.replace("_", "-")
    settings = {
        "heartbeat_interval_ms": round(1_000 * _HEARTBEAT_S),
        "session_timeout_ms": 45_000,
        **row.fields,
    }
    client = {"bootstrap_servers": broker.bootstrap_servers}
    with (
        FaultyWorkload(
            client, folder / name, topic=topic, num_partitions=_NUM_PARTITIONS, group_id=topic,
            hint_topic=_HINTS, consumer=settings,
        ) as workload,
        Cluster(
            broker, group_id=topic, topics={topic: _NUM_PARTITIONS}, hint_topic=_HINTS, make_topics=False
        ) as cluster,
    ):  # fmt: skip
        group = _Group(row, workload, cluster)
        group.start()
        return _summary(group.measure(repeats))


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def spread(name: str) -> dict[str, float]:
        values = [row[name] for row in rows]
        return {
            "median": round(statistics.median(values), 2),
            "least": round(min(values), 2),
            "largest": round(max(values), 2),
        }

    names = ("follow_s", "longest_stop_s", "unowned_s_per_move", "rebalances")
    moves = round(statistics.mean(row["moves"] for row in rows), 1)
    return {"repeats": len(rows), "moves_mean": moves, **{name: spread(name) for name in names}}


def _line(name: str, row: dict[str, Any]) -> str:
    def text(of: str) -> str:
        spread = row[of]
        return f"{spread['median']} ({spread['least']} to {spread['largest']})"

    names = ("follow_s", "longest_stop_s", "unowned_s_per_move", "rebalances")
    return f"| {name} | {row['moves_mean']} | {' | '.join(map(text, names))} |\n"


def main(argv: list[str]) -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.following", description=__doc__)
    parser.add_argument("--only", choices=list(ROWS), nargs="+", default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--keep", type=Path, help="a folder for the journals, to look at")
    arguments = parser.parse_args(argv)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        properties = {"group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}"}
        options = {"properties": properties, "class_path": [build_plugin(folder)]}
        with Broker.start(folder / "node", **options) as broker:
            sys.stdout.write(
                "| group | moves | follow s | longest stop s | unowned s a move | rebalances |\n"
            )
            sys.stdout.write("| --- | --- | --- | --- | --- | --- |\n")
            for name in arguments.only:
                results[name] = measure_row(name, broker, folder, arguments.repeats)
                sys.stdout.write(_line(name, results[name]))
                sys.stdout.flush()
                RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
