"""A run for many clusters in a whole Airflow: what a cluster that is gone leaves to the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLAN_EVENTS
from sandbox.airflow.instance import Airflow
from sandbox.airflow.rest import AirflowError, DagRun
from sandbox.processes import free_ports
from sandbox.workload.workload import Workload
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.kafka.broker import Broker
    from sandbox.spark.connect_server import ConnectServer

POLICY = """\
lake: {lake}
audit_schedule: null
group_clusters: true
clusters:
  north: {{bootstrap_servers: "{servers}", hint_topic: evenlag-hints, schedule: null}}
  south: {{bootstrap_servers: "{servers}", hint_topic: others, schedule: null}}
  gone: {{bootstrap_servers: "{gone}", schedule: null, kafka: {{bootstrap_timeout_ms: 2000}}}}
groups:
  - {{match: {group}, mode: auto, reset_policy: earliest, clusters: [north]}}
  - {{match: {group}, mode: approve, reset_policy: earliest, clusters: [south]}}
  - {{match: "*", mode: observe}}
"""

pytestmark = [pytest.mark.extended, pytest.mark.airflow, pytest.mark.broker, pytest.mark.timeout(3_600)]


def test_a_cluster_that_is_gone_holds_nothing_of_the_others(
    broker: Broker, connect_server: ConnectServer, unique: Callable[[str], str], tmp_path: Path
) -> None:
    group, lake, policy = unique("grouped"), tmp_path / "lake", tmp_path / "evenlag.yaml"
    gone = f"127.0.0.1:{free_ports(1)[0]}"
    policy.write_text(
        POLICY.format(lake=lake, servers=broker.bootstrap_servers, gone=gone, group=group), encoding="utf-8"
    )
    environment = {"AIRFLOW_CONN_SPARK_DEFAULT": connect_server.connection()}
    with (
        Workload(
            {"bootstrap_servers": broker.bootstrap_servers}, tmp_path / "workload", topic=unique("t"),
            group_id=group, num_partitions=4, hint_topic="evenlag-hints",
            consumer={"records_per_s": 1.0, "session_timeout_ms": 120_000},
        ) as workload,
        Airflow.start(tmp_path / "airflow", policy=policy, environment=environment) as airflow,
    ):  # fmt: skip
        workload.start_consumers(2)
        workload.fill(dict.fromkeys(min(workload.wait_until_owned().values(), key=min), 2000))
        rest = airflow.rest
        for dag in ("lag_rebalance", "plan_approval"):
            rest.wait_for_dag(dag)
        run = rest.trigger("lag_rebalance")
        with pytest.raises(AirflowError, match=r"1 of 3 clusters failed: gone: "):
            rest.wait(run)
        assert {name: run.task_states[name] for name in ("cycles", "report_all", "find_waiting")} == {
            "cycles": "failed", "report_all": "success", "find_waiting": "success",
        }  # fmt: skip
        assert run.task_states["completed"] == "upstream_failed"

        events = LakeReader(str(lake)).read(PLAN_EVENTS, columns=["cluster", "event", "plan_id"]).to_pylist()
        assert [event["cluster"] for event in events if event["event"] == "PUBLISHED"] == ["north"]
        [waiting] = [
            event["plan_id"]
            for event in events
            if (event["cluster"], event["event"]) == ("south", "PROPOSED")
        ]
        asked = DagRun("plan_approval", f"approval__{waiting}")
        wait_until(lambda: "approve_plan" in rest.refresh(asked).task_states, what="nobody is asked")
        updated = rest.get("assets/events", limit=100)["asset_events"]
    assert sorted((event["uri"], event["extra"]["count"]) for event in updated) == [
        ("evenlag://north/hints", 1),
        ("evenlag://north/plans", 1),
        ("evenlag://north/snapshots", 1),
        ("evenlag://south/plans", 1),
        ("evenlag://south/snapshots", 1),
    ]
    assert {event["source_run_id"] for event in updated} == {run.run_id}
