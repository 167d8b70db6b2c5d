"""Reading on Spark executors, from the real broker: the rows of the driver, nothing twice, no secret told."""

from __future__ import annotations

import os
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from evenlag.errors import KafkaUnreachableError
from evenlag.kafka.admin_client import open_admin_client
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client, kafka_client_settings, request_limits
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, SNAPSHOTS
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.loader import parse_policy
from spark_jobs.steps import collect_snapshot as collecting
from spark_jobs.steps import distributed_read
from spark_jobs.steps.collect_snapshot import collect_snapshot
from spark_jobs.steps.distributed_read import read_distributed
from spark_jobs.steps.read_tasks import ReadTaskSpec
from tests.support.raw_member import RawMember

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evenlag.policy.settings import Policy
    from sandbox.kafka.broker import Broker
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.jvm]

SLOT = datetime(2026, 11, 21, 13, 5, tzinfo=UTC)
NUM_ROWS = {"offsets": 12, "commits": 36, "members": 3}
TIMES = {"snapshot_id", "log_start_read_at", "end_read_at", "read_at"}


@pytest.fixture
def cluster(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> ClusterSettings:
    """Return a cluster that asks for a password, and is read by as many tasks as there are cores."""
    assert broker.sasl_ssl is not None
    monkeypatch.setenv("SPREAD_PASSWORD", broker.sasl_ssl.password)
    kafka = broker.sasl_ssl.client_config() | {"sasl_plain_password": {"env": "SPREAD_PASSWORD"}}
    servers = kafka.pop("bootstrap_servers")
    monkeypatch.setattr(distributed_read, "_MIN_PARTITIONS", 1)
    monkeypatch.setattr(distributed_read, "_MIN_GROUPS", 1)
    return ClusterSettings.model_validate(
        {"bootstrap_servers": servers, "kafka": kafka, "snapshot": {"spread_from_rows": 1}}
    )


@pytest.fixture
def filled(cluster: ClusterSettings, unique: Callable[[str], str]) -> tuple[str, list[str]]:
    """Return a topic with 12 partitions and three groups that committed on it."""
    topic, groups = unique("orders"), [unique("billing") for _ in range(3)]
    commits = {TopicPartition(topic, number): OffsetAndMetadata(0, "", -1) for number in range(12)}
    with admin_client(cluster) as admin:
        admin.create_topics({topic: {"num_partitions": 12}}, wait_for_metadata=True)
        for group_id in groups:
            admin.alter_group_offsets(group_id, commits)
    return topic, groups


def policy_of(cluster: ClusterSettings) -> Policy:
    """Return a policy with this cluster, under the name ``c``."""
    text = 'lake: /nowhere\nclusters: {c: {bootstrap_servers: "localhost:9092"}}\n'
    parsed = parse_policy(text + 'groups: [{match: "*", mode: observe}]\n', environ={}).policy
    return parsed.model_copy(update={"clusters": {"c": cluster}})


def rows_of(lake: Lake, snapshot_id: str, topic: str, groups: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return a snapshot's rows of a topic and its groups by table, in the order of their keys."""
    found = {}
    for table in (OFFSETS, COMMITS, MEMBERS):
        rows = [row.asDict(recursive=True) for row in lake.read_snapshot(table, "c", snapshot_id).collect()]
        mine = [row for row in rows if row.get("topic") == topic or row.get("group_id") in groups]
        found[table.name] = sorted(mine, key=lambda row: [str(row.get(key)) for key in table.key])
    return found


def without_times(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {
        table: [{key: value for key, value in row.items() if key not in TIMES} for row in some]
        for table, some in rows.items()
    }


def test_executors_name_a_malformed_group_as_the_driver_does(
    lake: Lake, cluster: ClusterSettings, broker: Broker, unique: Callable[[str], str]
) -> None:
    group_id = unique("malformed")
    in_driver = cluster.model_copy(update={"snapshot": type(cluster.snapshot)()})
    with RawMember(broker.bootstrap_servers, group_id, session_timeout_ms=600_000) as member:
        member.join()
        member.sync_bytes(bytes.fromhex("0000ffffffffffffffff"))
        found = [
            collect_snapshot(lake, policy_of(each), "c", SLOT + timedelta(minutes=number), run_id="r")
            for number, each in enumerate((in_driver, cluster))
        ]
    reason = (
        f"assignment of {member.member_id!r}: the assignment cannot be decoded: the array of topics is null"
    )
    for each in found:
        assert {"kind": "group", "name": group_id, "error": reason} in each.rows.marker["problems"]
    driver, executors = (each.summary() for each in found)
    assert driver["num_unread_groups"] == executors["num_unread_groups"] >= 1
    assert executors["unread_group"] is not None


def test_executors_bring_the_rows_of_the_driver_in_the_safe_order_and_tell_no_secret(
    lake: Lake,
    cluster: ClusterSettings,
    filled: tuple[str, list[str]],
    broker: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    in_driver = cluster.model_copy(update={"snapshot": type(cluster.snapshot)()})
    first = collect_snapshot(lake, policy_of(in_driver), "c", SLOT, run_id="r").rows
    second = collect_snapshot(lake, policy_of(cluster), "c", SLOT + timedelta(minutes=5), run_id="r").rows
    spread = rows_of(lake, second.snapshot_id, *filled)
    assert without_times(spread) == without_times(rows_of(lake, first.snapshot_id, *filled))
    assert {table: len(rows) for table, rows in spread.items()} == {
        "offsets": 12,
        "commits": 36,
        "members": 3,
    }
    offsets = {row["partition"]: row for row in spread["offsets"]}
    for commit in spread["commits"]:
        row = offsets[commit["partition"]]
        assert row["log_start_read_at"] <= commit["read_at"] <= row["end_read_at"]

    marker = lake.read_snapshot(SNAPSHOTS, "c", second.snapshot_id).take(1)[0]
    assert marker.num_partitions == lake.read_snapshot(OFFSETS, "c", second.snapshot_id).count()
    assert (marker.num_unread_partitions, marker.completeness) == (0, 1.0)
    times = ("started_at", "log_start_read_at", "commits_read_at", "end_read_at", "finished_at")
    assert [marker[name] for name in times] == sorted(marker[name] for name in times)

    assert broker.sasl_ssl is not None
    password = broker.sasl_ssl.password
    for place, text in places_to_look(lake, caplog.text):
        assert password not in text, place


def places_to_look(lake: Lake, logged: str) -> Iterator[tuple[str, str]]:
    """Where a secret would show: Spark's settings, its plans and jobs, the log, and the lake's own files."""
    spark = lake.spark
    yield "conf", str(spark.sparkContext.getConf().getAll())
    yield "log", logged
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(number) for number in range(executions.size())]
    texts = [f"{plan.description()} {plan.details()} {plan.physicalPlanDescription()}" for plan in plans]
    assert any("MapInArrow" in text for text in texts), "the plans of the reading are not among these"
    yield from (("plan", text) for text in texts)
    files = [path for path in Path(lake.paths.root).rglob("*") if path.is_file()]
    yield from ((str(path), path.read_bytes().decode("latin-1")) for path in files)


@contextmanager
def dying_once(marker: str, settings: Mapping[str, Any]) -> Iterator[Any]:
    """Hold a client whose first use ends the executor's Python with its first answers in hand."""
    with open_admin_client(settings) as client:
        client.describe_topics()
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            yield client
        else:
            os._exit(1)


def test_a_task_that_dies_is_read_again_and_nothing_is_there_twice(
    lake: Lake, cluster: ClusterSettings, filled: tuple[str, list[str]], tmp_path: Path
) -> None:
    died = tmp_path / "died"
    limits = request_limits(cluster)
    with admin_client(cluster) as client:
        inventory = ClusterReader(client, limits=limits).take_inventory()
    spec = ReadTaskSpec(
        kafka_client_settings(cluster),
        limits,
        {"cluster": "c", "day": SLOT.date(), "snapshot_id": "20261121T130500000Z-00000000"},
        open_client=partial(dying_once, str(died)),
    )
    assert str(kafka_client_settings(cluster)["sasl_plain_password"]) not in repr(spec)
    reading = read_distributed(lake, inventory, spec, connections_per_broker=2)
    assert died.exists()
    assert reading.num_unread_partitions == 0
    rows = rows_of(lake, str(spec.head["snapshot_id"]), *filled)
    assert {table: len(some) for table, some in rows.items()} == NUM_ROWS


def test_executors_that_reach_no_broker_leave_no_snapshot(
    lake: Lake, cluster: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(settings: ClusterSettings) -> dict[str, Any]:
        """Return the settings of a machine without a way to the brokers."""
        shut = {"bootstrap_servers": ["127.0.0.1:1"], "bootstrap_timeout_ms": 200}
        return {**kafka_client_settings(settings), **shut}

    monkeypatch.setattr(collecting, "kafka_client_settings", elsewhere)
    policy = policy_of(cluster)
    with pytest.raises(KafkaUnreachableError, match="executors could not read Kafka"):
        collect_snapshot(lake, policy, "c", SLOT, run_id="r")
    assert lake.read(SNAPSHOTS).count() == 0
