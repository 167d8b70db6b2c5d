"""Cycles of many clusters in one run of `spark_jobs.cycle`: an error or a delay stays with its cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from argparse import Namespace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest

from evenlag.errors import JobError, KafkaUnreachableError, PolicyError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from sandbox.processes import free_ports
from sandbox.workload.workload import Workload
from spark_jobs.cycle import JOB, run_clusters
from spark_jobs.runtime.entry_point import IncompleteJobError
from spark_jobs.runtime.progress import no_progress
from spark_jobs.runtime.session import temporary_conf
from spark_jobs.runtime.session_conf import LARGE_LOCAL_CONF, LOCAL_CONF

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker
    from spark_jobs.runtime.entry_point import JobWork

POLICY = """\
lake: {lake}
clusters:
  north: {{bootstrap_servers: "{servers}", hint_topic: evenlag-hints, schedule: null}}
  south: {{bootstrap_servers: "{servers}", hint_topic: others, schedule: null}}
  gone: {{bootstrap_servers: "{gone}", schedule: null, kafka: {{bootstrap_timeout_ms: 2000}}}}
groups:
  - {{match: {group}, mode: auto, reset_policy: earliest, clusters: [north]}}
  - {{match: "*", mode: observe}}
"""


def test_what_fails_or_takes_too_long_is_named_and_the_others_are_done() -> None:
    is_over = threading.Event()

    def work(cluster: str) -> dict[str, Any]:
        if cluster == "slow":
            is_over.wait(600)
        if cluster == "gone":
            raise KafkaUnreachableError("no broker answered")
        if cluster == "buggy":
            raise ZeroDivisionError("a bug")
        return {"observe": cluster}

    with pytest.raises(IncompleteJobError) as raised:
        run_clusters(["a", "slow", "gone", "buggy", "b"], work, 5)
    is_over.set()
    assert raised.value.result == {"a": {"observe": "a"}, "b": {"observe": "b"}}
    assert str(raised.value) == (
        "3 of 5 clusters failed: slow: its cycle took longer than 5 s; gone: no broker answered; "
        "buggy: ZeroDivisionError: a bug"
    )
    # One of them may pass.
    assert (raised.value.retriable, raised.value.exit_code) == (True, KafkaUnreachableError.exit_code)


def test_where_all_errors_stay_nothing_is_tried_again() -> None:
    def work(_: str) -> dict[str, Any]:
        raise PolicyError("no secret")

    with pytest.raises(JobError) as raised:
        run_clusters(["a", "b"], work, 60)
    assert (raised.value.retriable, raised.value.exit_code) == (False, 2)


def test_a_cluster_that_has_left_the_policy_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DAG is of an earlier policy for a while."""
    policy = tmp_path / "evenlag.yaml"
    policy.write_text(
        POLICY.format(lake=tmp_path / "lake", servers="kafka:9092", gone="kafka:9092", group="g"), "utf-8"
    )
    monkeypatch.setattr("spark_jobs.steps.cycle_steps.run_observe", lambda *_: {"num_groups": 1})

    def run(*clusters: str) -> Any:
        arguments = Namespace(
            config=str(policy), cluster=list(clusters), steps=["observe"], slot=datetime.now(UTC),
            run_id="one", limit_s=60.0,
        )  # fmt: skip
        return cast("JobWork", JOB.prepare(arguments)).run(cast("SparkSession", None), no_progress)

    with pytest.raises(
        IncompleteJobError, match=r"1 of 3 clusters failed: left: .*no cluster 'left'"
    ) as raised:
        run("north", "left", "south")
    assert raised.value.result == {name: {"observe": {"num_groups": 1}} for name in ("north", "south")}
    for clusters in (["left"], ["left", "also-left"]):
        with pytest.raises(PolicyError, match=r"the policy has no cluster 'left'"):
            run(*clusters)


class _Conf(dict[str, str]):
    """Settings of a session."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def unset(self, key: str) -> None:
        del self[key]


class _Session:
    def __init__(self) -> None:
        self.conf = _Conf(LOCAL_CONF)


def test_two_large_clusters_at_the_same_time_leave_the_session_as_it_was() -> None:
    session = _Session()
    spark = cast("SparkSession", session)
    first, second = (temporary_conf(spark, LARGE_LOCAL_CONF) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert session.conf.items() >= LARGE_LOCAL_CONF.items()
    second.__exit__(None, None, None)
    assert session.conf == LOCAL_CONF


@pytest.mark.extended
@pytest.mark.broker
@pytest.mark.jvm
def test_one_run_publishes_for_its_clusters_though_one_is_gone(
    broker: Broker, unique: Callable[[str], str], tmp_path: Path
) -> None:
    group, lake = unique("grouped"), tmp_path / "lake"
    client = {"bootstrap_servers": broker.bootstrap_servers}
    policy = tmp_path / "evenlag.yaml"
    gone = f"127.0.0.1:{free_ports(1)[0]}"
    policy.write_text(
        POLICY.format(lake=lake, servers=broker.bootstrap_servers, gone=gone, group=group), encoding="utf-8"
    )
    command = [sys.executable, "-m", "spark_jobs.cycle", "observe", "decide", "publish"]
    for name in ("north", "south", "gone"):
        command += ["--cluster", name]
    slot = datetime.now(UTC).isoformat()
    command += [
        "--config",
        str(policy),
        "--slot",
        slot,
        "--run-id",
        "one",
        "--limit-s",
        "1500",
        "--events-fd",
    ]
    with Workload(
        client, tmp_path / "workload", topic=unique("t"), group_id=group, num_partitions=4,
        hint_topic="evenlag-hints", consumer={"records_per_s": 1.0, "session_timeout_ms": 120_000},
    ) as workload:  # fmt: skip
        workload.start_consumers(2)
        heavy = min(workload.wait_until_owned().values(), key=min)
        workload.fill(dict.fromkeys(heavy, 2000))
        answers = [_run(command) for _ in range(2)]
    first, again = answers
    for code, result, error in answers:
        assert code == 3
        assert result.keys() == {"north", "south"}
        assert error.startswith("1 of 3 clusters failed: gone: ")
    assert first[1]["north"]["publish"]["published"] == 1
    assert (first[1]["south"]["decide"]["plans"], first[1]["south"]["publish"]["published"]) == (0, 0)
    # What was done before is left as it is.
    assert [again[1][name]["observe"]["is_new"] for name in ("north", "south")] == [False, False]
    events = LakeReader(str(lake)).read(PLAN_EVENTS, columns=["cluster", "event", "run_id"]).to_pylist()
    published = [event for event in events if event["event"] == "PUBLISHED"]
    assert [(event["cluster"], event["run_id"]) for event in published] == [("north", "one")]


def _run(command: list[str]) -> tuple[int, dict[str, Any], str]:
    """Run a job; return its exit code, its result and its error."""
    reading, writing = os.pipe()
    with subprocess.Popen([*command, str(writing)], pass_fds=[writing]) as process:
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as lines:
            events = [json.loads(line) for line in lines]
    by_kind = {event["event"]: event for event in events}
    return process.returncode, by_kind["result"]["result"], by_kind["error"]["message"]
