"""Spark and Airflow of the demo and of ``make airflow``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.airflow.instance import Airflow
from sandbox.spark import jvm_class_archive
from sandbox.spark.connect_server import ConnectServer

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from sandbox.demo.console import Story


def prepare_spark(policy: Path, cluster: str, folder: Path, story: Story) -> None:
    """Train Spark's class archive if it is wanted and does not exist for this Java and this Spark."""
    if not jvm_class_archive.is_wanted() or jvm_class_archive.archive_file("connect").is_file():
        return
    with story.step("Getting Spark to start faster from now on, once") as tell:
        made = jvm_class_archive.train(policy, cluster, folder / "training", kind="connect")
        tell("its classes are kept ready" if made else "that did not work; it only takes longer")


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
