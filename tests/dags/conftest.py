"""The DAG files parsed once, with an Airflow home of their own and no database."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import uuid
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# Airflow makes its home when it is first imported, so it is set before any test module is.
_HOME = tempfile.mkdtemp(prefix="evenlag-airflow-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"
# Half a minute for a file, and less than one for a parse, is what a busy machine may take.
os.environ["AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT"] = "300"
os.environ["AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT"] = "300"

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.dag_processing.dagbag import DagBag
    from pyspark.sql import SparkSession

    from sandbox.airflow.instance import Airflow
    from sandbox.kafka.broker import Broker
    from tests.support.live_plan import LiveGroup

DAGS_FOLDER = Path(__file__).resolve().parents[2] / "dags"
_AFTER_THE_FOLDER = ExitStack()

POLICY = """\
lake: {lake}
data_docs: {lake}-docs
comparison: {{}}
clusters:
  orders:
    bootstrap_servers: broker-1:9092,broker-2:9092
    schedule: "*/5 * * * *"
    kafka:
      security_protocol: SASL_SSL
      sasl_mechanism: PLAIN
      sasl_plain_username: evenlag
      sasl_plain_password: {{env: ORDERS_PASSWORD}}
    hint_signing_key: {{env: ORDERS_SIGNING_KEY}}
  by-hand:
    bootstrap_servers: other:9092
    schedule: null
groups:
  - match: payments-*
    mode: auto
  - match: refunds
    clusters: orders
    mode: approve
"""


@pytest.fixture(scope="session")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    path = folder / "evenlag.yaml"
    path.write_text(POLICY.format(lake=folder / "lake"), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def dag_bag(policy_file: Path) -> DagBag:
    from airflow.dag_processing.dagbag import DagBag

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENLAG_CONFIG", str(policy_file))
        patch.setenv("ORDERS_PASSWORD", "s3cret-orders-password")
        return DagBag(dag_folder=str(DAGS_FOLDER))


@pytest.fixture(scope="session")
def live_group(
    broker: Broker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveGroup]:
    """Return a group of consumers whose policy is the whole Airflow's."""
    from tests.support.live_plan import LiveGroup

    unique = uuid.uuid4().hex[:8]
    made = LiveGroup(broker, spark, tmp_path_factory.mktemp("live"), lambda stem: f"{stem}-{unique}")
    long_ago = datetime(2026, 1, 2, tzinfo=UTC)
    # As the whole Airflow knows them; mallory, whom it knows too, is none.
    made.rule_keys = "approvers: [evenlag, ada]"
    made.set_mode("approve")
    made.snapshot(long_ago, f"{long_ago:%Y%m%dT%H%M%S}000Z-aaaaaaaa", completeness=0.9)
    yield made
    made.close()


@pytest.fixture(scope="session")
def airflow(live_group: LiveGroup, tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """Return a whole Airflow: it costs half a minute, so there is one for the tests of this folder."""
    from sandbox.airflow.instance import Airflow
    from tests.support.processes import wait_until_gone

    folder = tmp_path_factory.mktemp("sandbox-airflow")
    environment = {
        # A test checks that the missing connection is reported at once, without waiting for a timeout.
        "AIRFLOW_CONN_SPARK_DEFAULT": "",
        # A test that makes a connection to Spark Connect writes this program.
        "EVENLAG_SPARK_PYTHON": str(folder / "jobs-python"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "evenlag:admin,ada:op,mallory:admin",
        # Nobody changes the DAG files: parsed every 30 s, they would take half a core.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "EVENLAG_NOTIFIER": "tests.support.file_notifier:FileNotifier",
        "TEST_NOTIFIED_FILE": str(live_group.notified),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(live_group.lineage), "append": True}
        ),
    }

    def none_is_left() -> None:
        wait_until_gone(str(folder))

    _AFTER_THE_FOLDER.callback(none_is_left)
    return _AFTER_THE_FOLDER.enter_context(
        Airflow.start(folder / "home", policy=live_group.config, environment=environment)
    )


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the whole Airflow after this folder's last test: idle, it parses the DAG files all the time."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _AFTER_THE_FOLDER.close()
