"""A cycle over 300 groups of which 30 are malformed, each in another way: 270 are counted, 30 are named."""

from __future__ import annotations

import json
import struct
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata
from typer.testing import CliRunner

from evenlag.cli import job_runner
from evenlag.cli.app import app
from evenlag.kafka.connection import admin_client
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS
from evenlag.policy.loader import load_policy
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.support.brokers import settings_of
from tests.support.commits import commit_offsets
from tests.support.raw_member import RawMember

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.jvm]

NUM_GOOD, NUM_BAD, NUM_WITH_MEMBERS = 270, 30, 5
NUM_RECORDS = 10


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def bad_assignments(topic: bytes) -> list[bytes]:
    one, number = struct.pack(">hi", 0, 1), struct.pack(">i", 0)
    good = one + text(topic) + struct.pack(">ii", 1, 0)
    return [
        b"",
        b"\0",
        bytes.fromhex("0000ffffffffffffffff"),
        bytes.fromhex("ffff00000000ffffffff"),
        bytes.fromhex("00007fffffff"),
        one,
        one + struct.pack(">h", -1) + number,
        one + struct.pack(">h", 32_767) + topic,
        one + text(b"\xc3\x28") + number,
        one + text(b"\xed\xa0\x80") + number,
        one + text(topic) + struct.pack(">i", -1),
        one + text(topic) + struct.pack(">i", -2_147_483_648),
        one + text(topic) + struct.pack(">i", 1_073_741_824),
        one + text(topic) + struct.pack(">ii", 1, -1),
        one + text(topic) + struct.pack(">iii", 2, 0, -2_147_483_648),
        struct.pack(">hi", 0, 2) + good[6:],
        *(good[:end] for end in range(3, len(good), max(1, len(good) // 14))),
    ][:NUM_BAD]


class InThisProcess:
    """Runs the steps of a cycle in the session of the test, in place of a job of its own."""

    def __init__(self, spark: SparkSession, policy: Path) -> None:
        self._spark, self._loaded = spark, load_policy(policy)

    def __call__(self, _job: str, arguments: Sequence[str], *_: Any, **__: Any) -> dict[str, Any]:
        shown = dict(argument.lstrip("-").partition("=")[::2] for argument in arguments)
        slot = datetime.fromisoformat(shown["slot"])
        return {
            step.__name__.removeprefix("run_"): step(self._spark, self._loaded, "c", slot, shown["run-id"])
            for step in (run_observe, run_decide)
        }


def test_270_groups_are_counted_and_30_malformed_ones_are_named(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, prefix = unique("orders"), unique("app")
    good = [f"{prefix}-good-{number:03}" for number in range(NUM_GOOD)]
    bad = [f"{prefix}-bad-{number:02}" for number in range(NUM_BAD)]
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"lake: {tmp_path / 'lake'}\nclusters: {{c: {{bootstrap_servers: '{broker.bootstrap_servers}'}}}}\n"
        f"groups: [{{match: '{prefix}-*', mode: shadow}}]\n"
    )
    with admin_client(settings_of(broker)) as admin, ExitStack() as stack:
        admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        for number in range(2 * NUM_RECORDS):
            producer.send(topic, b"x", partition=number % 2)
        producer.close()

        def join(group_id: str) -> RawMember:
            member = RawMember(broker.bootstrap_servers, group_id, topics=[topic], session_timeout_ms=900_000)
            stack.enter_context(member).join()
            return member

        for number, group_id in enumerate([*good, *bad]):
            offset = OffsetAndMetadata(number % (NUM_RECORDS + 1), "", -1)
            commit_offsets(admin, group_id, {TopicPartition(topic, n): offset for n in range(2)})
        for group_id in good[:NUM_WITH_MEMBERS]:
            join(group_id).sync([(topic, [0, 1])])
        for group_id, assignment in zip(bad, bad_assignments(topic.encode()), strict=True):
            join(group_id).sync_bytes(assignment)
        monkeypatch.setattr(job_runner, "run_job", InThisProcess(spark, policy))
        answer = CliRunner().invoke(app, ["run", "--config", str(policy)])
        live = CliRunner().invoke(app, ["lag", "--live", "--config", str(policy), "--json"])
        exported = tmp_path / "lag.csv"
        file = CliRunner().invoke(app, ["lag", "--live", "--config", str(policy), "--export", str(exported)])
    assert answer.exit_code == 0, answer.output
    (line,) = [line for line in answer.stdout.replace("\n", " ").split(". ") if "could not be read" in line]
    assert f"{NUM_BAD} of" in line

    reader = LakeReader(str(tmp_path / "lake"))
    lags: dict[str, int] = {}
    for row in reader.read(LAG).to_pylist():
        if row["group_id"] in good:
            lags[row["group_id"]] = lags.get(row["group_id"], 0) + row["lag_records"]
    assert lags == {name: 2 * (NUM_RECORDS - number % (NUM_RECORDS + 1)) for number, name in enumerate(good)}

    (marker,) = reader.read(SNAPSHOTS).to_pylist()
    named = {problem["name"]: problem["error"] for problem in marker["problems"]}
    assert set(bad) <= named.keys()
    assert not named.keys() & set(good)
    members = [row for row in reader.read(MEMBERS).to_pylist() if row["group_id"] in bad]
    assert {(tuple(row["subscription"]), row["error"]) for row in members} == {((topic,), None)}
    assert all(row["assignment_error"] in named[row["group_id"]] for row in members)

    assert live.exit_code == 0, live.output
    content = json.loads(live.stdout)
    assert {*good, *bad} <= {row["group_id"] for row in content["groups"]}
    assert set(bad) <= {problem["name"] for problem in content["problems"]}
    assert file.exit_code == 0, file.output
    assert all(f",{name}," in exported.read_text() for name in (*good, *bad))
