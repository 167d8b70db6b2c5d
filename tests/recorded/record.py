"""Record a period again: ``python -m tests.recorded.record`` (ten minutes; needs nothing but `make setup`).

The sandbox's real broker, consumer processes and producers; the pipeline's own jobs read, plan and publish.
A snapshot stands for five minutes of a production cluster and comes every few seconds: hours in minutes, at
the moments that they really had. What happens is :data:`SCRIPT`; what was seen and what the consumers noted
goes to ``tests/recorded/data``, and :mod:`tests.recorded.period` reads it.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaAdminClient

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import POLICIES, TABLES
from evenlag.policy.loader import load_policy
from evenlag.publishing.publish import publish_hints
from sandbox.kafka.broker import Broker
from sandbox.workload.journal import read_journal
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.collect_snapshot import collect_snapshot
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.recorded.period import BILLING, CLUSTER, FOLDER, JOURNAL_EVENTS, ORDERS, PARCELS, SHIPPING
from tests.support.faulty_workload import FaultyWorkload

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from evenlag.policy.loader import LoadedPolicy

NUM_PARTITIONS: Final = 12
MORE_PARTITIONS: Final = 15
POLICY: Final = """\
lake: {lake}
clusters:
  {cluster}:
    bootstrap_servers: "{servers}"
    temporary_member_after_s: null
    schedule: null
    rate_window_s: 60
    history_window_s: 600
groups:
  - match: {billing}
    mode: auto
    reset_policy: earliest
    min_gain: 0.1
    hint_ttl_s: 120
    gates: {{cooldown_s: 5}}
    back_off: {{horizon_s: 40}}
  - match: {shipping}
    mode: shadow
    reset_policy: earliest
"""
COLLECT, OBSERVE, DECIDE = "collect", "observe", "decide"
# Seconds from one snapshot to the next, at least: a snapshot itself takes some on a small machine.
_INTERVAL_S: Final = 5.0
_CONSUMER: Final = {
    "records_per_s": 60.0,
    "session_timeout_ms": 30_000,
    "extra": {"metadata_max_age_ms": 2000, "allow_auto_create_topics": False},
}


class Recorder:
    """The stage: two groups of processes, a lake, and the jobs that fill it.

    spark, loaded, broker: The session, the policy, and the broker that both groups are on.
    billing: Four members on `ORDERS` that follow hints, two of them static.
    shipping: Three members of `PARCELS` with two partitions, on an assignor of the client's own.
    """

    def __init__(
        self,
        spark: SparkSession,
        loaded: LoadedPolicy,
        broker: Broker,
        billing: FaultyWorkload,
        shipping: FaultyWorkload,
    ) -> None:
        self._spark, self._loaded, self._broker = spark, loaded, broker
        self.billing, self.shipping = billing, shipping
        self.num_slots = 0

    def read(self, how: str = COLLECT) -> None:
        """Take a snapshot: collect it only, `OBSERVE` it as a run does, or `DECIDE` and publish as well."""
        began, slot = time.monotonic(), datetime.now(UTC)
        run_id = f"recorded-{self.num_slots:03d}"
        if how == COLLECT:
            lake = Lake(self._spark, self._loaded.policy.lake)
            collect_snapshot(lake, self._loaded.policy, CLUSTER, slot, run_id=run_id)
        else:
            run_observe(self._spark, self._loaded, CLUSTER, slot, run_id)
        if how == DECIDE:
            counts = run_decide(self._spark, self._loaded, CLUSTER, slot, run_id)
            report = publish_hints(self._loaded, CLUSTER, slot, run_id)
            sys.stdout.write(f"  decide {counts}\n  publish {report}\n")
        self.num_slots += 1
        took_s = time.monotonic() - began
        sys.stdout.write(f"{slot:%H:%M:%S} reading {self.num_slots}, {how}, {took_s:.1f} s\n")
        sys.stdout.flush()
        time.sleep(max(0.0, _INTERVAL_S - took_s))

    def note(self, what: str) -> None:
        """Record in the journals what is done to the groups now."""
        sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S} {what}\n")
        self.billing.note("done", what=what)
        self.shipping.note("done", what=what)

    # What happens. -------------------------------------------------------------------------------------

    def hot_spot(self) -> None:
        """Put most of a backlog on the partitions of one member: even by count, uneven by lag."""
        owners = self.billing.owners()
        unlucky = max(sorted(owners), key=lambda name: len(owners[name]))
        heavy = dict(zip(sorted(owners[unlucky]), (5000, 4000, 3000, 1000), strict=False))
        self.billing.fill(heavy)

    def join(self) -> None:
        """Let a member join that was never there."""
        self.billing.start_consumer("consumer-4")

    def leave(self) -> None:
        """Let a dynamic member leave in order."""
        self.billing.stop_process("consumer-3")

    def bounce(self) -> None:
        """Restart a static member within its session: the group does not rebalance."""
        self.billing.stop_process("consumer-0")
        self.billing.start_consumer("consumer-0", is_static=True)

    def die(self) -> None:
        """Kill a dynamic member (-9): it holds its partitions until its session ends."""
        self.billing.kill("consumer-2")

    def come_back(self) -> None:
        """Start the killed member again, as a supervisor does."""
        self.billing.start_consumer("consumer-2")

    def add_partitions(self) -> None:
        """Add partitions to the topic."""
        admin = KafkaAdminClient(bootstrap_servers=self._broker.bootstrap_servers)
        admin.create_partitions({ORDERS: MORE_PARTITIONS})
        admin.close()
        self.billing.num_partitions = MORE_PARTITIONS
        self.billing.fill(dict.fromkeys(range(NUM_PARTITIONS, MORE_PARTITIONS), 300))

    def stop_shipping(self) -> None:
        """Stop the whole second group: nobody holds its partitions."""
        for name in self.shipping.consumers:
            self.shipping.stop_process(name)

    def change_assignor(self) -> None:
        """Start the second group again on another assignor."""
        for number in range(2):
            self.shipping.start_consumer(f"consumer-{number}", assignor="range")

    def freeze(self) -> None:
        """Freeze a static member for less than its session: its partitions stand still."""
        self.billing.pause("consumer-1")

    def thaw(self) -> None:
        """Let the frozen member go on."""
        self.billing.resume("consumer-1")


_C, _O, _D = COLLECT, OBSERVE, DECIDE
# What happens, and the snapshots that follow.
SCRIPT: Final[tuple[tuple[str | None, tuple[str, ...]], ...]] = (
    (None, (_C, _C, _C)),
    ("hot_spot", (_C, _D, _C, _C, _O, _C)),
    ("join", (_C, _C, _C)),
    ("bounce", (_C, _C, _C)),
    ("leave", (_C, _C, _C)),
    ("hot_spot", (_C, _D, _C, _C, _O)),
    ("die", (_C, _C, _C, _C, _C)),
    ("come_back", (_C, _C, _C)),
    ("add_partitions", (_C, _C, _C)),
    ("hot_spot", (_C, _D, _C, _C, _O)),
    ("stop_shipping", (_C, _C)),
    ("change_assignor", (_C, _C)),
    ("freeze", (_C,)),
    ("thaw", (_C, _C)),
    (None, (_D, _C, _O)),
)


def play(recorder: Recorder) -> None:
    """Do what the script says."""
    for name, readings in SCRIPT:
        if name is not None:
            action: Callable[[], None] = getattr(recorder, name)
            recorder.note(name)
            action()
        for how in readings:
            recorder.read(how)


def save(lake: Path, workloads: dict[str, FaultyWorkload], target: Path) -> None:
    """Write the lake's tables as Parquet and the journals as JSON lines, sorted, so that equal is equal."""
    import pyarrow.parquet as pq

    target.mkdir(parents=True, exist_ok=True)
    for stale in target.iterdir():
        stale.unlink()
    reader = LakeReader(str(lake))
    for table in TABLES.values():
        # A policy's text names folders of the machine that it was recorded on.
        if table is not POLICIES and reader.exists(table):
            keys = [(name, "ascending") for name in ("slot", *table.key) if name in table.column_names]
            rows = reader.read(table).sort_by(list(dict(keys).items()))
            pq.write_table(rows, target / f"{table.name}.parquet", compression="zstd", compression_level=19)
    for group_id, workload in workloads.items():
        events = [event for path in workload.journals for event in read_journal(path)[0]]
        kept = [event for event in events if event["event"] in JOURNAL_EVENTS]
        kept.sort(key=lambda event: float(event["at_s"]))
        lines = "".join(json.dumps(event, sort_keys=True) + "\n" for event in kept)
        (target / f"{group_id}.jsonl").write_text(lines, encoding="utf-8")


def record(folder: Path, target: Path) -> None:
    """Run the whole period in a folder, and save it."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker.start(folder / "broker"))
        client = {"bootstrap_servers": broker.bootstrap_servers}
        config = folder / "evenlag.yaml"
        text = POLICY.format(
            lake=folder / "lake",
            cluster=CLUSTER,
            servers=broker.bootstrap_servers,
            billing=BILLING,
            shipping=SHIPPING,
        )
        config.write_text(text, encoding="utf-8")
        loaded = load_policy(config)

        def workload(group_id: str, topic: str, num_partitions: int, **fields: Any) -> FaultyWorkload:
            made = FaultyWorkload(
                client,
                folder / group_id,
                topic=topic,
                num_partitions=num_partitions,
                group_id=group_id,
                consumer={**_CONSUMER, **fields},
            )
            return stack.enter_context(made)

        billing = workload(BILLING, ORDERS, NUM_PARTITIONS)
        shipping = workload(SHIPPING, PARCELS, 2, assignor="cooperative-sticky")
        for number in range(4):
            billing.start_consumer(f"consumer-{number}", is_static=number < 2)
        shipping.start_consumers(3)
        billing.start_traffic(records_per_s=150, skew=0.8)
        shipping.start_traffic(records_per_s=30, skew=0.5)
        billing.wait_until_owned()
        spark = build_session("recorded period")
        stack.callback(spark.stop)
        # The first reading of a session takes half a minute: not on the stage.
        elsewhere = loaded.policy.model_copy(update={"lake": str(folder / "warm-up")})
        run_observe(spark, replace(loaded, policy=elsewhere), CLUSTER, datetime.now(UTC), "warm-up")
        recorder = Recorder(spark, loaded, broker, billing, shipping)
        play(recorder)
        for each in (billing, shipping):
            each.stop()
        save(folder / "lake", {BILLING: billing, SHIPPING: shipping}, target)


def main(argv: list[str]) -> int:
    """Record into the repository, or elsewhere."""
    parser = argparse.ArgumentParser(prog="tests.recorded.record", description=__doc__)
    parser.add_argument("--target", type=Path, default=FOLDER, help="where the recording goes")
    parser.add_argument("--keep", type=Path, help="an empty folder for the broker and the lake, to look at")
    arguments = parser.parse_args(argv)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as temporary:
        record(arguments.keep or Path(temporary), arguments.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
