"""A block: contenders that run at the same time on one broker, each with its own topic, group and listeners.

One producer sends each record of the trace to all topics. A listener per contender, and one for what balances
it, count their requests at the broker. One process of evenlag's cycles serves all contenders that follow it,
as it serves all groups of a cluster.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from evenlag.kafka.broker_requests import RequestLimits
from evenlag.kafka.groups import describe_named_groups
from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS
from sandbox.kafka.topic_admin import DEFAULT_HINT_TOPIC, create_hint_topic, create_topic
from sandbox.processes import kill_process, start_process, stop_process
from tests.bench.field.broker import measures
from tests.bench.field.broker.contenders import REAL, Balancer, Client, policy_rule, spans
from tests.bench.field.broker.machine import BusyShare, cpu_s, put_first, share_nice, tree_cpu_s
from tests.bench.field.broker.producer import WARM_UP_TOPIC, check_report, write_spec
from tests.support.broker_node import BrokerNode

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

    from evenlag.enums import GroupType
    from tests.bench.field.broker.contenders import Real
    from tests.bench.field.broker.programs import Programs
    from tests.bench.field.traces import Trace

CLUSTER: Final = "field"
# Until Spark has started, and its first cycle has run.
LEAD_S: Final = 30.0
# Before the first record.
_READY_S: Final = 2.0
_WATCH_EVERY_S: Final = 60
_WATCH: Final = "watch"
_PROPERTIES: Final = {
    # Kafka's defaults, where the sandbox has what tests need.
    "group.initial.rebalance.delay.ms": "3000",
    "group.min.session.timeout.ms": "6000",
    # A broker that gets no turn for seconds on a busy machine is alive.
    "broker.session.timeout.ms": "60000",
    "broker.heartbeat.interval.ms": "2000",
    "num.network.threads": "1",
    "group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}",
    "metric.reporters": "evenlag.field.RequestCounts",
}
_STOP_TIMEOUT_S: Final = 60.0
_PRODUCER_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at a moment: requests by listener, processor seconds by balancer, epochs by KIP-848 group."""

    requests: Mapping[str, int]
    cpu_s: Mapping[str, float]
    epochs: Mapping[str, int]


class _Node(BrokerNode):
    """A broker that serves for minutes: it may take longer to start, and compiles fully."""

    def _java(self, arguments: list[str]) -> list[str]:
        return [each for each in super()._java(arguments) if each != "-XX:TieredStopAtLevel=1"]


class Block:
    """One run of some contenders on a trace.

    folder: An empty one, for the broker, the lake, specifications, output and journals.
    may_be_late: Whether records may be sent late, as in a test on a busy machine.
    settings: By contender, as `tests.bench.field.contenders.chosen_settings` has them.
    """

    def __init__(
        self,
        trace: Trace,
        names: Sequence[str],
        programs: Programs,
        folder: Path,
        *,
        settings: Mapping[str, Mapping[str, Any]],
        watch_every_s: int = _WATCH_EVERY_S,
        lead_s: float = LEAD_S,
        may_be_late: bool = False,
    ) -> None:
        self._trace, self._programs, self._folder, self._settings = trace, programs, folder, settings
        self._watch_every_s, self._lead_s, self._may_be_late = watch_every_s, lead_s, may_be_late
        self._contenders = [REAL[name] for name in names]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        listeners = [name for each in self._contenders for name in (_consumers(each), _balancer(each))]
        self._broker = _Node(
            folder / "node",
            listeners=dict.fromkeys(listeners, "PLAINTEXT"),
            class_path=[programs.plugin, programs.classes],
            properties={**_PROPERTIES, "field.requests.file": str(self._requests_file)},
        )
        self.client = {"bootstrap_servers": self._broker.bootstrap_servers}
        self.begin_ns = 0

    @property
    def _requests_file(self) -> Path:
        return (self._folder / "requests").resolve()

    @property
    def _report_file(self) -> Path:
        return self._folder / "producer-report.json"

    def journals(self, name: str) -> Path:
        """Return the folder of a contender's journals."""
        return self._folder / name

    def run(self, *, finish: Callable[[Block], None] | None = None) -> dict[str, dict[str, Any]]:
        """Run to the end of the trace and return each contender's measures.

        finish: Waits for what is to happen after the trace; nothing that it waits for is measured.
        """
        used = _children_cpu_s()
        started_s = time.monotonic()
        with BusyShare() as busy, ExitStack() as stack:
            stack.callback(self._broker.kill)
            stack.callback(self._stop)
            self._broker.prepare()
            self._broker.restart()
            share_nice(self._broker.pid or 0)
            self._start()
            self._wait_until(-_READY_S)
            put_first(self._processes["producer"].pid)
            self._wait_until(self._trace.warm_up_s)
            before = self._snapshot()
            self._wait_until(self._trace.duration_s)
            after = self._snapshot()
            report = self._report()
            if finish is not None:
                finish(self)
        took_s = time.monotonic() - started_s
        share = (_children_cpu_s() - used) / took_s / (os.cpu_count() or 1)
        common = {
            **report,
            "together": len(self._contenders),
            "machine_busy_mean": sum(busy.shares) / max(1, len(busy.shares)),
            "machine_busy_most": max(busy.shares, default=None),
            "block_busy_mean": share,
        }
        return {each.name: self._measures(each, before, after) | common for each in self._contenders}

    def _start(self) -> None:
        create_hint_topic(self.client)
        create_topic(self.client, WARM_UP_TOPIC, 1)
        for each in self._contenders:
            create_topic(self.client, each.name, self._trace.num_partitions)
            self._configure_group(each)
            self.journals(each.name).mkdir()
        watched = [each for each in self._contenders if each.balancer is Balancer.WATCH]
        if watched:
            self._start_watch(watched)
        self.begin_ns = time.monotonic_ns() + round(1e9 * self._lead_s)
        self._start_producer()
        for each in self._contenders:
            if each.balancer is Balancer.SCALER:
                self._start_scaler(each)
            else:
                self._start_consumers(each)

    def _configure_group(self, contender: Real) -> None:
        if contender.group_configs:
            admin = KafkaAdminClient(**self.client)
            resource = ConfigResource(ConfigResourceType.GROUP, contender.name, dict(contender.group_configs))
            admin.alter_configs([resource], incremental=True)
            admin.close()

    def _start_producer(self) -> None:
        path = self._folder / "producer.json"
        write_spec(
            path, self._trace, self.begin_ns, servers=self._broker.bootstrap_servers,
            topics=[each.name for each in self._contenders], report_file=self._report_file,
        )  # fmt: skip
        self._start_process("producer", self._programs.producer(path))

    def _consumer_spec(self, contender: Real) -> dict[str, Any]:
        balancer = {"field.balancer.servers": self._broker.addresses[_balancer(contender)]}
        return {
            "kind": contender.client.value,
            "topic": contender.name,
            "folder": str(self.journals(contender.name)),
            "begin_ns": self.begin_ns,
            "rebalance_every_s": contender.rebalance_every_s,
            "configs": {
                "bootstrap.servers": self._broker.addresses[_consumers(contender)],
                "group.id": contender.name,
                **({} if contender.client is Client.KIP848 else balancer),
                **contender.configs,
            },
            "pods": [
                {**pod._asdict(), "spans": times}
                for pod, times in zip(self._trace.pods, spans(self._trace), strict=True)
            ],
        }

    def _start_consumers(self, contender: Real) -> None:
        path = self._folder / f"{contender.name}.json"
        path.write_text(json.dumps(_texts(self._consumer_spec(contender))), encoding="utf-8")
        if contender.client is Client.KIP848:
            self._start_module(contender.name, "tests.bench.field.broker.kip848", path)
        else:
            self._start_process(contender.name, self._programs.consumers(path, heap_mb=256))

    def _start_scaler(self, contender: Real) -> None:
        consumers = self._consumer_spec(contender)
        path = self._folder / f"{contender.name}.json"
        spec = {
            "servers": self._broker.addresses[_balancer(contender)],
            "consumers": _texts(consumers),
            "command": self._programs.consumers(Path("{}"), heap_mb=64),
            "num_partitions": self._trace.num_partitions,
            "changes": self._trace.changes,
            "outages": self._trace.outages,
            "settings": self._settings.get(contender.name, {}),
        }
        path.write_text(json.dumps(spec), encoding="utf-8")
        self._start_module(contender.name, "tests.bench.field.broker.scaler", path)

    def _start_watch(self, watched: Sequence[Real]) -> None:
        policy = {
            "lake": str((self._folder / "lake").resolve()),
            "audit_schedule": None,
            "clusters": {
                CLUSTER: {
                    "bootstrap_servers": self._broker.addresses[_balancer(watched[0])],
                    "hint_topic": DEFAULT_HINT_TOPIC,
                    "schedule": None,
                }
            },
            "groups": [
                *(
                    {
                        "match": each.name, "mode": "auto", "reset_policy": "earliest",
                        **policy_rule(self._settings.get(each.name, {})),
                    }
                    for each in watched
                ),
                # The other contenders are on the same cluster only to save time.
                {"match": "*", "mode": "observe"},
            ],
        }  # fmt: skip
        path = self._folder / "evenlag.yaml"
        path.write_text(yaml.safe_dump(policy), encoding="utf-8")
        command = [sys.executable, "-m", "evenlag", "run", f"--config={path}", "--publish", "--json"]
        self._start_process(_WATCH, [*command, "--watch", f"--every={self._watch_every_s}"])

    def _start_module(self, name: str, module: str, spec: Path) -> None:
        self._start_process(name, [sys.executable, "-m", module, str(spec)])

    def _start_process(self, name: str, command: Sequence[str]) -> None:
        with (self._folder / f"{name}.out").open("ab") as log:
            self._processes[name] = process = start_process(command, log=log)
        share_nice(process.pid)

    def _wait_until(self, second: float) -> None:
        """Wait until a second of the trace, and see that all that is to run does."""
        end_ns = self.begin_ns + round(1e9 * second)
        while (left_ns := end_ns - time.monotonic_ns()) > 0:
            time.sleep(min(1.0, left_ns / 1e9))
            self.check()

    def check(self) -> None:
        """Raise an error if a process has ended; the producer may, when all is sent."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None and (name, status) != ("producer", 0):
                tail = (self._folder / f"{name}.out").read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"{name} ended with status {status}:\n{tail}")

    def _report(self) -> dict[str, Any]:
        """Return the producer's report; an error if the run is void."""
        self._processes["producer"].wait(_PRODUCER_TIMEOUT_S)
        self.check()
        report: dict[str, Any] = json.loads(self._report_file.read_text(encoding="utf-8"))
        if not self._may_be_late:
            check_report(report)
        return {name: report[name] for name in _REPORTED}

    def _snapshot(self) -> Snapshot:
        lines = self._requests_file.read_text(encoding="ascii").splitlines()
        requests = {name: int(count) for name, count in (line.split() for line in lines)}
        # A scaler's children are the consumers.
        cpu = {
            name: (tree_cpu_s if name == _WATCH else cpu_s)(process.pid)
            for name, process in self._processes.items()
            if name in {_WATCH, *(each.name for each in self._contenders if each.balancer)}
        }
        newer = {each.name: each.group_type for each in self._contenders if each.client is Client.KIP848}
        return Snapshot(requests, cpu, self._epochs(newer) if newer else {})

    def _epochs(self, groups: Mapping[str, GroupType]) -> dict[str, int]:
        admin = KafkaAdminClient(**self.client)
        try:
            rows = describe_named_groups(admin, groups, RequestLimits(), frozenset({DEFAULT_HINT_TOPIC}))
        finally:
            admin.close()
        return {row["group_id"]: int(row["group_epoch"] or 0) for row in rows}

    def _stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            stop_process(process, timeout_s=_STOP_TIMEOUT_S)
            kill_process(process)

    def _measures(self, contender: Real, before: Snapshot, after: Snapshot) -> dict[str, Any]:
        folder, trace, begin_ns = self.journals(contender.name), self._trace, self.begin_ns
        starts = measures.read_starts(folder, trace, begin_ns)

        def grown(name: str) -> int:
            return after.requests.get(name, 0) - before.requests.get(name, 0)

        watched = [each for each in self._contenders if each.balancer is Balancer.WATCH]
        source = watched[0] if contender in watched else contender
        return {
            "contender": contender.name,
            **measures.waiting_measures(starts, trace),
            **self._owners(contender),
            "rebalances": self._rebalances(contender, before, after),
            "consumer_hours": measures.consumer_hours(folder, begin_ns, trace),
            "broker_requests": grown(_balancer(source)),
            "consumer_requests": grown(_consumers(contender)),
            "balancer_cpu_s": self._balancer_cpu_s(contender, before, after),
            "balanced_groups": max(1, len(watched)) if contender in watched else 1,
            "duplicates": starts.duplicates,
            "first_owner": measures.first_owners(folder, trace),
            **measures.late_starts(folder),
        }

    def _owners(self, contender: Real) -> dict[str, float]:
        if not contender.has_owners:
            return {"moves": 0, "unowned_s": 0.0, "overlaps": 0}
        return measures.ownership_measures(self.journals(contender.name), self._trace, self.begin_ns)

    def _rebalances(self, contender: Real, before: Snapshot, after: Snapshot) -> int:
        if contender.client is Client.KIP848:
            return after.epochs[contender.name] - before.epochs[contender.name]
        return measures.generations(self.journals(contender.name), self.begin_ns, self._trace)

    def _balancer_cpu_s(self, contender: Real, before: Snapshot, after: Snapshot) -> float:
        """Return the processor time of the balancer's process and of the leaders' assignors."""
        used_s = measures.assignor_cpu_s(self.journals(contender.name), self.begin_ns, self._trace)
        if contender.balancer is None:
            return used_s
        process = _WATCH if contender.balancer is Balancer.WATCH else contender.name
        return used_s + after.cpu_s[process] - before.cpu_s[process]


_REPORTED: Final = (
    "late_p99_ms", "late_worst_ms", "acknowledged_p50_ms", "acknowledged_p99_ms", "acknowledged_worst_ms",
)  # fmt: skip


def _consumers(contender: Real) -> str:
    """Return the name of the listener of a contender's consumers."""
    return contender.name.upper().replace("-", "_")


def _balancer(contender: Real) -> str:
    """Return the name of the listener of what balances a contender."""
    return f"{_consumers(contender)}_BALANCER"


def _texts(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification whose configs Kafka's and librdkafka's clients both take."""

    def text(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return spec | {"configs": {name: text(value) for name, value in spec["configs"].items()}}


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
