"""The policy, broker, Spark and Airflow of the demo and of ``make airflow``."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sandbox.airflow.instance import Airflow
from sandbox.demo.console import Story
from sandbox.kafka.broker import Broker
from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS, build_plugin
from sandbox.spark.connect_server import ConnectServer

POLICY: Final = """\
# Written by the demo; the same file tells Airflow which DAG to make and the jobs what to do.
lake: {lake}
audit_schedule: null          # by hand; hourly without this line
maintenance: {{schedule: null}}  # by hand; daily without this line
clusters:
  {cluster}:
    bootstrap_servers: {bootstrap_servers}
    schedule: null            # by hand; in production a cron expression
groups:
  - match: {group}
    mode: auto                # publish what passes the gates; the default is shadow: plan and score only
    reset_policy: earliest
"""


def write_policy(folder: Path, broker: Broker, cluster: str, group_id: str) -> Path:
    """Return the file of a new policy in the demo's folder, for Airflow and the jobs with this broker."""
    path = folder / "evenlag.yaml"
    path.write_text(
        POLICY.format(
            lake=folder / "lake", cluster=cluster, bootstrap_servers=broker.bootstrap_servers, group=group_id
        ),
        encoding="utf-8",
    )
    return path


CONSUMER: Final = "consumer"
JAVA: Final = "java"
# Kafka's defaults suit groups of thousands: members receive a target within five seconds.
_PROPERTIES: Final = {
    "group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


def start_demo_broker(folder: Path, protocol: str) -> Broker:
    """Start the demo's broker in its own folder."""
    if protocol != CONSUMER:
        return Broker.start(folder / "broker")
    jar = build_plugin(folder / "plugin")
    return Broker.start(folder / "broker", properties=_PROPERTIES, class_path=[jar])


def start_airflow(stack: ExitStack, folder: Path, policy: Path, dag_id: str, story: Story) -> Airflow:
    """Start Airflow and the Spark Connect server that its tasks use, side by side."""
    server = stack.enter_context(ConnectServer.start(folder / "spark"))
    with story.step("Airflow: page, scheduler, DAG processor") as tell:
        environment = {"AIRFLOW_CONN_SPARK_DEFAULT": server.connection()}
        airflow = stack.enter_context(
            Airflow.start(folder / "airflow", policy=policy, environment=environment, on_step=tell)
        )
        airflow.rest.wait_for_dag(dag_id)
        tell(airflow.url)
    with story.step("Spark: one Connect server for all tasks") as tell:
        server.wait_until_ready()
        tell(server.url)
    return airflow
