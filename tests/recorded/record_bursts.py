"""Record two groups that are behind in bursts: ``python -m tests.recorded.record_bursts`` (eleven minutes).

The sandbox's real broker, consumer processes and producers. A snapshot is read each ten seconds by the
product's own reader; beside it, a plain admin client reads log start, end and committed offsets each second,
which is the truth between the snapshots. `PAYMENTS` has bursts, a hot partition and unequal members;
`REFUNDS` also has commits that are reset backwards and forwards, a deletion of records that it had not
processed, and a killed member. :mod:`tests.recorded.bursts` reads the result.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.structs import OffsetAndMetadata

from evenlag.kafka.connection import admin_client
from evenlag.live_lag.snapshot import LiveReader, policy_target
from evenlag.policy.loader import parse_policy
from sandbox.kafka.broker import Broker
from tests.recorded.bursts import CLUSTER, FOLDER, PAYMENTS, REFUNDS
from tests.support.faulty_workload import FaultyWorkload
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from evenlag.live_lag.snapshot import LiveSnapshot

_SNAPSHOT_S: Final = 10.0
_LENGTH_S: Final = 600.0
_POLICY: Final = """\
lake: /unused
clusters:
  {cluster}: {{bootstrap_servers: "{servers}", schedule: null}}
groups:
  - {{match: "*", mode: observe, reset_policy: earliest}}
"""
_LAG_COLUMNS: Final = (
    "snapshot_id", "group_id", "topic_id", "topic", "partition", "owner_member_id", "status", "lag_records",
    "committed_offset", "log_start_offset", "end_offset", "read_at", "time_lag_ms",
)  # fmt: skip
_MEMBER_COLUMNS: Final = (
    "snapshot_id", "group_id", "group_state", "group_type", "assignor", "member_id", "client_id",
    "group_instance_id", "subscription", "assignment", "error",
)  # fmt: skip
# The speeds of the members of each group, and records per second of its steady traffic.
_SPEEDS: Final[Mapping[str, tuple[float, ...]]] = {PAYMENTS: (150.0, 150.0, 75.0), REFUNDS: (120.0, 120.0)}
_PARTITIONS: Final = {PAYMENTS: 8, REFUNDS: 6}
_TRAFFIC: Final = {PAYMENTS: 90.0, REFUNDS: 60.0}
_HOT: Final = 2


class Group:
    """One group, and what happens to it."""

    def __init__(self, work: FaultyWorkload, admin: KafkaAdminClient) -> None:
        self.work = work
        self._admin = admin
        self.partitions = [TopicPartition(work.topic, number) for number in range(work.num_partitions)]

    def start(self) -> None:
        """Start all members."""
        for number, speed in enumerate(_SPEEDS[self.work.group_id]):
            self.work.start_consumer(f"consumer-{number}", records_per_s=speed)

    def offsets(self) -> Iterator[tuple[int, int, int, int | None]]:
        """Yield partition, log start, end and committed offset as they are now."""
        found = self._admin.list_group_offsets({self.work.group_id: None})[self.work.group_id]
        starts, ends = (
            self._admin.list_partition_offsets(dict.fromkeys(self.partitions, spec))
            for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
        )
        for each in self.partitions:
            committed = found[each].offset if each in found and found[each].offset >= 0 else None
            yield each.partition, starts[each].offset, ends[each].offset, committed

    def move_commits(self, by: int) -> None:
        """Stop the group, move its commits by so many records within the log, and start it again."""
        for name in self.work.consumers:
            self.work.stop_process(name)
        wanted = {
            TopicPartition(self.work.topic, number): OffsetAndMetadata(
                min(max((committed or 0) + by, start), end), "", -1
            )
            for number, start, end, committed in self.offsets()
        }

        def is_done() -> bool:
            errors = self._admin.alter_group_offsets(self.work.group_id, wanted)
            return not any(error.errno for error in errors.values())

        wait_until(is_done, what="the commits are altered")
        self.start()

    def delete_records(self, partition: int, share: float) -> None:
        """Delete this share of the records that a partition is behind, as retention would."""
        _, _, end, committed = list(self.offsets())[partition]
        until = (committed or 0) + round(share * (end - (committed or 0)))
        self._admin.delete_records({self.partitions[partition]: until})


def payments_script(group: Group) -> Iterator[tuple[float, Callable[[], object]]]:
    """Bursts each 20 s or so, and two on the hot partition that take a member most of a minute."""
    chance = random.Random(40)  # noqa: S311  # repeatable, no secret
    at_s = 20.0
    while at_s < _LENGTH_S - 20:
        partition, count = chance.randrange(8), chance.choice((300, 600, 1_200, 2_400))
        yield at_s, partial(group.work.fill, {partition: count})
        at_s += chance.uniform(10, 32)
    for hot_s in (130.0, 390.0):
        yield hot_s, partial(group.work.fill, {_HOT: 6_000})


def refunds_script(group: Group) -> Iterator[tuple[float, Callable[[], object]]]:
    """A reset by 700 records of each partition, a deletion, a killed member, and a reset to the end."""
    for at_s, counts in (
        (33.0, {1: 2_500}), (71.0, {4: 1_500, 5: 900}), (118.0, {0: 3_000}), (262.0, {3: 6_000, 1: 800}),
        (351.0, {5: 2_000}), (402.0, {2: 4_000, 0: 2_500}), (523.0, {1: 3_500}),
    ):  # fmt: skip
        yield at_s, partial(group.work.fill, counts)
    yield 183.0, lambda: group.move_commits(-700)
    yield 277.0, lambda: group.delete_records(3, 0.6)
    yield 336.0, lambda: group.work.kill("consumer-1")
    yield 372.0, lambda: group.work.start_consumer("consumer-1", records_per_s=_SPEEDS[REFUNDS][1])
    yield 447.0, lambda: group.move_commits(100_000)


def _play(script: list[tuple[float, Callable[[], object]]], begin_s: float, is_over: Event) -> None:
    for at_s, action in sorted(script, key=lambda each: each[0]):
        time.sleep(max(0.0, begin_s + at_s - time.monotonic()))
        action()
    # Processes end with the thread that started them.
    is_over.wait()


def _watch(groups: Mapping[str, Group], rows: list[tuple[Any, ...]], is_over: Event) -> None:
    due_s = time.monotonic()
    while not is_over.wait(max(0.0, due_s - time.monotonic())):
        due_s = max(due_s + 1.0, time.monotonic())
        for name, group in groups.items():
            at = datetime.now(UTC)
            rows += [(at, name, *each) for each in group.offsets()]


def record(folder: Path, target: Path) -> None:
    """Run the whole period in a folder, and save it."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker.start(folder / "broker"))
        client = {"bootstrap_servers": broker.bootstrap_servers}
        groups: dict[str, Group] = {}
        for name in _SPEEDS:
            admin = stack.enter_context(_admin(client))
            work = FaultyWorkload(
                client, folder / name, topic=f"{name}-topic", num_partitions=_PARTITIONS[name], group_id=name,
                consumer={"assignor": "range", "session_timeout_ms": 12_000},
            )  # fmt: skip
            groups[name] = Group(stack.enter_context(work), admin)
            groups[name].start()
        for name, group in groups.items():
            group.work.wait_until_owned()
            group.work.start_traffic(records_per_s=_TRAFFIC[name], skew=0.5)
        text = _POLICY.format(cluster=CLUSTER, servers=broker.bootstrap_servers)
        source = policy_target(parse_policy(text, environ={}).policy, CLUSTER)
        reader = LiveReader(stack.enter_context(admin_client(source.settings, source.client)), source)
        rows: list[tuple[Any, ...]] = []
        is_over = Event()
        admins = {
            name: Group(group.work, stack.enter_context(_admin(client))) for name, group in groups.items()
        }
        begin_s = time.monotonic()
        scripts = [list(payments_script(groups[PAYMENTS])), list(refunds_script(groups[REFUNDS]))]
        threads = [Thread(target=_play, args=(script, begin_s, is_over), daemon=True) for script in scripts]
        threads.append(Thread(target=_watch, args=(admins, rows, is_over), daemon=True))
        stack.callback(is_over.set)
        for thread in threads:
            thread.start()
        snapshots = []
        for number in range(round(_LENGTH_S / _SNAPSHOT_S) + 1):
            time.sleep(max(0.0, begin_s + number * _SNAPSHOT_S - time.monotonic()))
            snapshots.append(reader.read())
            sys.stdout.write(f"{number}: {snapshots[-1].lag['lag_records'].to_pylist()}\n")
            sys.stdout.flush()
        is_over.set()
        for thread in threads:
            thread.join()
        save(snapshots, rows, target)


def _admin(client: Mapping[str, Any]) -> Any:
    return closing(KafkaAdminClient(**client))


def save(snapshots: list[LiveSnapshot], seconds: list[tuple[Any, ...]], target: Path) -> None:
    """Write what a replay reads of the snapshots, and the offsets of each second."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target.mkdir(parents=True, exist_ok=True)
    ids = [f"{number:03d}" for number in range(len(snapshots))]
    tables = {
        "lag": _numbered([each.lag for each in snapshots], ids, _LAG_COLUMNS),
        "members": _numbered([each.members for each in snapshots], ids, _MEMBER_COLUMNS),
        "snapshots": pa.table(
            {
                "snapshot_id": ids,
                "end_read_at": [each.ends_read_at for each in snapshots],
            }
        ),
        "seconds": pa.table(
            dict(
                zip(
                    ("at", "group_id", "partition", "log_start", "end", "committed"),
                    zip(*seconds, strict=True),
                    strict=True,
                )
            )
        ),
    }
    for name, rows in tables.items():
        pq.write_table(rows, target / f"{name}.parquet", compression="zstd", compression_level=19)


def _numbered(tables: list[pa.Table], ids: list[str], columns: tuple[str, ...]) -> pa.Table:
    import pyarrow as pa

    numbered = [
        rows.append_column("snapshot_id", pa.array([name] * rows.num_rows, pa.string()))
        for name, rows in zip(ids, tables, strict=True)
    ]
    return pa.concat_tables(numbered).select(columns)


def main(argv: list[str]) -> int:
    """Record into the repository, or elsewhere."""
    parser = argparse.ArgumentParser(prog="tests.recorded.record_bursts", description=__doc__)
    parser.add_argument("--target", type=Path, default=FOLDER, help="where the recording goes")
    arguments = parser.parse_args(argv)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as temporary:
        record(Path(temporary), arguments.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
