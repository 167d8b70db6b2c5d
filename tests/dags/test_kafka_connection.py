"""Connections of Airflow's Kafka provider instead of brokers and credentials in the policy."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from evenlag.airflow import tasks
from evenlag.airflow.compat import AirflowFailException
from evenlag.airflow.kafka_connection import (
    IGNORED_KEYS,
    SETTINGS_BY_KEY,
    connection_variables,
    kafka_connection,
)
from evenlag.airflow.spark_task import SparkJobOperator
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import POLICIES, SNAPSHOTS, TABLES
from evenlag.policy.kafka_settings import LITERAL_KAFKA_SETTINGS, SECRET_KAFKA_SETTINGS
from evenlag.policy.loader import LoadedPolicy, load_policy, parse_policy
from evenlag.policy.secrets import SecretRef
from tests.support.lineage import names_of, read_completed_tasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

    from sandbox.spark.connect_server import ConnectServer
    from tests.support.brokers import SecureBrokers

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "airflow.md"
IDS = {"or.ders": "kafka_orders"}
PASSWORD = "s3cret: {pass} #1"
VARIABLE = "EVENLAG_CLUSTER__OR_DERS__KAFKA__"
POLICY = """\
lake: {lake}
clusters:
  or.ders:
    bootstrap_servers: of-the-connection:9092
    schedule: null
  other: {{bootstrap_servers: "other:9092", schedule: null}}
"""
LOGIN = {
    "bootstrap.servers": "a:9093, b:9093",
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "evenlag",
    "sasl.password": PASSWORD,
}
# By key of a connection: a value of librdkafka's, and what kafka-python gets.
VALUES: dict[str, tuple[Any, Any]] = {
    "bootstrap.servers": ("a:9093,b:9093", ("a:9093", "b:9093")),
    "client.dns.lookup": ("use_all_dns_ips", "use_all_dns_ips"),
    "connections.max.idle.ms": (60000, 60000),
    "metadata.max.age.ms": (300000, 300000),
    "reconnect.backoff.max.ms": (10000, 10000),
    "reconnect.backoff.ms": ("100", 100),
    "request.timeout.ms": (20000, 20000),
    "retry.backoff.ms": (250, 250),
    "sasl.kerberos.service.name": ("kafka", "kafka"),
    "sasl.mechanism": ("SCRAM-SHA-256", "SCRAM-SHA-256"),
    "sasl.mechanisms": ("SCRAM-SHA-512", "SCRAM-SHA-512"),
    "sasl.password": (PASSWORD, SecretRef(env=f"{VARIABLE}SASL_PLAIN_PASSWORD")),
    "sasl.username": ("12345", "12345"),
    "security.protocol": ("sasl_ssl", "SASL_SSL"),
    "socket.timeout.ms": ("30000", 30000),
    "ssl.ca.location": ("/etc/ssl/é: ca.pem", "/etc/ssl/é: ca.pem"),
    "ssl.certificate.location": ("/c.pem", "/c.pem"),
    "ssl.endpoint.identification.algorithm": ("none", False),
    "ssl.key.location": ("/k.pem", "/k.pem"),
    "ssl.key.password": (PASSWORD, SecretRef(env=f"{VARIABLE}SSL_PASSWORD")),
}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes Airflow's connection, with this extra."""

    def make(extra: Any, conn_type: str = "kafka") -> None:
        stored = json.dumps({"conn_type": conn_type, "extra": extra})
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_ORDERS", stored)

    return make


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "evenlag.yaml"
    path.write_text(POLICY.format(lake=tmp_path / "lake"), encoding="utf-8")
    return path


def policy_of(variables: dict[str, str]) -> LoadedPolicy:
    return parse_policy(POLICY.format(lake="/lake"), environ=variables)


def test_each_key_becomes_a_setting_of_the_cluster(connect: Callable[..., None]) -> None:
    assert VALUES.keys() == SETTINGS_BY_KEY.keys()
    for key, (given, expected) in VALUES.items():
        connect(LOGIN | {"sasl.mechanism": "GSSAPI"} | {key: given})
        cluster = policy_of(connection_variables(IDS, "or.ders")).policy.clusters["or.ders"]
        found = cluster.bootstrap_servers if key == "bootstrap.servers" else None
        assert (found or cluster.kafka[SETTINGS_BY_KEY[key]]) == expected, key
    settings = set(SETTINGS_BY_KEY.values()) - {"bootstrap_servers"}
    assert settings <= LITERAL_KAFKA_SETTINGS | SECRET_KAFKA_SETTINGS


def librdkafka_fault(key: str) -> str:
    """Return what librdkafka says of a key with a value that most keys do not have."""
    confluent = pytest.importorskip("confluent_kafka")
    try:
        # Without a protocol, no file is read and nobody logs in.
        confluent.Consumer({"group.id": "g", key: "x"}).close()
    except confluent.KafkaException as error:
        return str(error)
    return ""


def test_every_key_is_one_of_librdkafka_and_the_page_lists_it() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "No such configuration property" in librdkafka_fault("ssl.cafile")
    for key in (*SETTINGS_BY_KEY, *IGNORED_KEYS):
        assert "No such configuration property" not in librdkafka_fault(key), key
        assert f"`{key}`" in page, key


def test_what_the_connection_lacks_stays_the_policy_s_and_other_clusters_have_none(
    connect: Callable[..., None],
) -> None:
    connect({"bootstrap.servers": "a:1", "group.id": "g", "client.id": "c", "enable.auto.commit": False})
    variables = connection_variables(IDS, "or.ders")
    assert variables == {"EVENLAG_CLUSTER__OR_DERS__BOOTSTRAP_SERVERS": "a:1"}
    clusters = policy_of(variables).policy.clusters
    assert clusters["other"].bootstrap_servers == ("other:9092",)
    assert connection_variables(IDS, "other") == connection_variables({}, "or.ders") == {}


def test_the_recorded_policy_refers_to_the_password_by_its_variable(connect: Callable[..., None]) -> None:
    connect(LOGIN)
    loaded = policy_of(connection_variables(IDS, "or.ders"))
    assert "s3cret" not in loaded.text
    assert f"{{env: {VARIABLE}SASL_PLAIN_PASSWORD}}" in loaded.text


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            LOGIN | {"sasl.pasword": PASSWORD},
            "'sasl.pasword': evenlag does not take it; did you mean 'sasl.p",
        ),
        (LOGIN | {"zzz": 1}, "'zzz': evenlag does not take it; remove it, or make a connection for evenlag"),
        (LOGIN | {"error_cb": "module.s3cret"}, "'error_cb': evenlag does not take it"),
        (
            LOGIN | {"sasl.oauthbearer.config": PASSWORD},
            "'sasl.oauthbearer.config': evenlag does not take it",
        ),
        (LOGIN | {"sasl.mechanism": "OAUTHBEARER"}, "sasl_mechanism: 'OAUTHBEARER' is none of PLAIN"),
        (LOGIN | {"sasl.password": 5}, "'sasl.password': it must be text, and not empty"),
        (LOGIN | {"sasl.password": ""}, "'sasl.password': it must be text, and not empty"),
        (LOGIN | {"ssl.key.password": "s3cret\0"}, "'ssl.key.password': it must be text, and not empty"),
        (LOGIN | {"sasl.username": ["s3cret"]}, "'sasl.username': sasl_plain_username must be text"),
        (LOGIN | {"security.protocol": "TLS"}, "'security.protocol': security_protocol: 'TLS' is none of"),
        (LOGIN | {"socket.timeout.ms": True}, "'socket.timeout.ms': request_timeout_ms is a time"),
        (LOGIN | {"retry.backoff.ms": "s3cret"}, "'retry.backoff.ms': retry_backoff_ms is a time"),
        (LOGIN | {"ssl.endpoint.identification.algorithm": None}, "algorithm': it must be https or none"),
        (LOGIN | {"ssl.endpoint.identification.algorithm": False}, "algorithm': it must be https or none"),
        (LOGIN | {"bootstrap.servers": "a:x"}, "'bootstrap.servers': 'a:x' has no port"),
        (LOGIN | {"bootstrap.servers": ["a:1"]}, "is no address of a broker"),
        ({}, "a JSON object as extra that has 'bootstrap.servers'"),
        (["bootstrap.servers"], "a JSON object as extra that has 'bootstrap.servers'"),
        ("bootstrap.servers", "a JSON object as extra that has 'bootstrap.servers'"),
    ],
)
def test_what_evenlag_cannot_use_is_refused_in_one_line(
    extra: Any, message: str, connect: Callable[..., None]
) -> None:
    connect(extra)
    with pytest.raises(AirflowFailException) as caught:
        connection_variables(IDS, "or.ders")
    [line] = str(caught.value).splitlines()
    assert line.startswith("the Airflow connection 'kafka_orders' of the cluster 'or.ders'")
    assert message in line
    assert "s3cret" not in line


def test_a_connection_that_is_missing_or_of_another_type_is_refused(
    connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(LOGIN, conn_type="http")
    with pytest.raises(AirflowFailException, match="has the type 'http': make it of type 'kafka'"):
        connection_variables(IDS, "or.ders")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_ORDERS", '{"conn_type": "kafka"')
    with pytest.raises(AirflowFailException, match=r"'kafka_orders'.* cannot be read \(\w+\): make it"):
        connection_variables(IDS, "or.ders")


def test_the_environment_is_as_before_also_after_an_error(
    connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(LOGIN)
    monkeypatch.setenv(f"{VARIABLE}SECURITY_PROTOCOL", "SSL")
    before = dict(os.environ)
    with kafka_connection(IDS, "or.ders"):
        assert os.environ[f"{VARIABLE}SECURITY_PROTOCOL"] == "SASL_SSL"
        assert os.environ[f"{VARIABLE}SASL_PLAIN_PASSWORD"] == PASSWORD
    assert dict(os.environ) == before
    with pytest.raises(KeyError), kafka_connection(IDS, "or.ders"):
        raise KeyError
    assert dict(os.environ) == before


def test_airflow_masks_the_secrets(connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    from evenlag.airflow import kafka_connection as module
    from evenlag.redaction import redact

    masked: list[str] = []
    monkeypatch.setattr(module, "mask_secret", masked.append)
    connect(LOGIN)
    connection_variables(IDS, "or.ders")
    assert masked == [PASSWORD]
    assert redact(f"refused: {PASSWORD}") == "refused: ***"


def test_a_dag_file_reads_no_connection_and_operators_have_its_id_only(
    config: Path, connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import BaseHook
    from airflow.serialization.serialized_objects import DagSerialization

    monkeypatch.setattr(
        BaseHook, "get_connection", lambda _: pytest.fail("it is read while a file is parsed")
    )
    connect(LOGIN)
    dags = dags_of(config, kafka_conn_ids=IDS)
    stored = {dag_id: json.dumps(DagSerialization.to_dict(dag), default=str) for dag_id, dag in dags.items()}
    assert "kafka_orders" in stored["lag_rebalance__or.ders"]
    assert "kafka_orders" in stored["plan_approval"]
    assert "s3cret" not in str(stored)
    users = {
        f"{dag_id}.{task.task_id}"
        for dag_id, dag in dags.items()
        for task in dag.tasks
        if isinstance(task, SparkJobOperator) and set(task.clusters) & set(task.kafka_conn_ids)
    }
    # Audit, comparison and maintenance connect to no broker.
    assert users == {"lag_rebalance__or.ders.observe", "lag_rebalance__or.ders.decide"}


def dags_of(config: Path, **options: Any) -> dict[str, Any]:
    """The DAGs of a DAG file of its own."""
    file = config.with_name("dags.py")
    file.write_text(
        f"from evenlag.airflow import make_dags\n\nMADE = make_dags({str(config)!r}, **{options!r})\n",
        "utf-8",
    )
    made: dict[str, Any] = runpy.run_path(str(file))["MADE"]
    return made


def observe_task(config: Path, **options: Any) -> Any:
    return dags_of(config, **options)["lag_rebalance__or.ders"].get_task("observe")


@pytest.mark.parametrize("spark", ["spark_connect", "spark"])
def test_a_job_has_the_settings_in_its_environment_and_nowhere_else(
    spark: str,
    config: Path,
    connect: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment, arguments = tmp_path / "environment", tmp_path / "arguments"
    text = f'#!/bin/sh\nenv -0 > {environment}\necho "$@" > {arguments}\n'
    for name in ("python", "spark-submit"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("EVENLAG_SPARK_PYTHON", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": spark, "host": "localhost"}))
    connect(LOGIN)
    task = observe_task(config, kafka_conn_ids=IDS)
    before = dict(os.environ)

    task.pre_execute(cast("Context", {}))
    type(task).execute.__wrapped__(task, {})

    assert dict(os.environ) == before
    given = dict(each.split("=", 1) for each in environment.read_text("utf-8").split("\0") if each)
    assert given[f"{VARIABLE}SASL_PLAIN_PASSWORD"] == PASSWORD
    cluster = parse_policy(config.read_text("utf-8"), environ=given).policy.clusters["or.ders"]
    assert cluster.bootstrap_servers == ("a:9093", "b:9093")
    assert cluster.kafka["sasl_plain_username"] == "evenlag"
    assert "observe" in arguments.read_text("utf-8")
    assert "s3cret" not in arguments.read_text("utf-8")


def test_a_driver_that_the_environment_does_not_reach_is_refused(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(stored))
    with pytest.raises(
        AirflowFailException, match=r"deploy mode cluster does not get 'kafka_orders'"
    ) as caught:
        observe_task(config, kafka_conn_ids=IDS).pre_execute(cast("Context", {}))
    assert len(str(caught.value).splitlines()) == 1
    observe_task(config).pre_execute(cast("Context", {}))


@pytest.mark.parametrize("step", ["publish", "publish_plan"])
def test_publishing_uses_the_connection_of_the_plan_s_cluster(
    step: str, config: Path, connect: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.publishing import publish

    seen: list[Any] = []

    def note(loaded: LoadedPolicy, cluster: str, *_: Any, **__: Any) -> Any:
        settings = loaded.policy.clusters[cluster]
        seen.append((settings.bootstrap_servers, settings.secrets()["kafka.sasl_plain_password"][1]()))
        return SimpleNamespace(published=(), expired=(), held=(), not_taken_up=(), summary=dict)

    slot = "2026-11-21T13:05:00+00:00"
    run = SimpleNamespace(run_type="manual", run_after=SimpleNamespace(isoformat=lambda: slot), run_id="r")
    context = {"dag_run": run, "run_id": "r", "params": {"cluster": "or.ders", "plan_id": "3f" * 32}}
    monkeypatch.setattr(publish, "publish_hints", note)
    monkeypatch.setattr(tasks, "get_current_context", lambda: context)
    connect(LOGIN)
    before = dict(os.environ)

    first = "or.ders" if step == "publish" else slot
    getattr(tasks, step).function(str(config), first, "", IDS)

    assert seen == [(("a:9093", "b:9093"), PASSWORD)]
    assert dict(os.environ) == before


RUN = """
import os
from airflow.utils.db import initdb
initdb()
from airflow.models import Connection
from airflow.utils.session import create_session
with create_session() as session:
    stored = os.environ.pop("TEST_EXTRA")
    session.add(Connection(conn_id="kafka_orders", conn_type="kafka", extra=stored))
from evenlag.airflow import make_dags
made = make_dags(only=["lag_rebalance"], kafka_conn_ids={"or.ders": "kafka_orders"})
before = dict(os.environ)
run = made["lag_rebalance__or.ders"].test()
print("LEFT", sorted(name for name in os.environ.keys() - before.keys() if name.startswith("EVENLAG_")))
print("RUN", run.run_id, run.state)
"""


@pytest.mark.extended
@pytest.mark.airflow
@pytest.mark.broker
def test_a_cycle_reads_a_secured_cluster_by_a_connection_of_airflow_s_database(
    broker: SecureBrokers,
    connect_server: ConnectServer,
    unique: Callable[[str], str],
    config: Path,
    tmp_path: Path,
) -> None:
    from cryptography.fernet import Fernet
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    secure = broker.sasl_ssl
    assert secure is not None
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic(unique("orders"), 2, 1)])
    arguments, python, events = tmp_path / "arguments", tmp_path / "python", tmp_path / "events.jsonl"
    python.write_text(f'#!/bin/sh\necho "$@" >> {arguments}\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    extra = {
        "bootstrap.servers": secure.bootstrap_servers,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(secure.ca_file),
        "sasl.mechanisms": "PLAIN",
        "sasl.username": secure.username,
        "sasl.password": secure.password,
        "group.id": "another-dag-s",
    }
    environment = {name: value for name, value in os.environ.items() if name != "EVENLAG_SECRETS"} | {
        "TEST_EXTRA": json.dumps(extra),
        "PYTHONPATH": str(REPOSITORY),
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        # Airflow encrypts its connections: nothing else in its database has the password.
        "AIRFLOW__CORE__FERNET_KEY": Fernet.generate_key().decode(),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(events), "append": True}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": connect_server.connection(),
        "EVENLAG_CONFIG": str(config),
        "EVENLAG_SPARK_PYTHON": str(python),
    }
    command = [sys.executable, "-c", RUN]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    output = ran.stdout + ran.stderr
    runs = [line.split()[1:] for line in ran.stdout.splitlines() if line.startswith("RUN ")]
    assert [state for _, state in runs] == ["success"], output[-6_000:]
    assert "LEFT []" in ran.stdout

    lake = LakeReader(load_policy(config).policy.lake)
    [snapshot] = lake.read(SNAPSHOTS).to_pylist()
    assert (snapshot["cluster"], snapshot["kafka_cluster_id"]) == ("or.ders", broker.cluster_id)
    [kept] = lake.read(POLICIES, columns=["text"]).to_pylist()
    assert secure.bootstrap_servers in kept["text"]
    assert f"{{env: {VARIABLE}SASL_PLAIN_PASSWORD}}" in kept["text"]
    assert "observe" in arguments.read_text(encoding="utf-8")
    texts = [output, *(str(lake.read(table).to_pylist()) for table in TABLES.values() if lake.exists(table))]
    assert not [text for text in texts if secure.password in text]
    # Logs, arguments, lineage, the files of the lake, and the database with its XComs and rendered fields.
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"airflow.db", "arguments"} <= {path.name for path in files}
    assert not [path for path in files if secure.password.encode() in path.read_bytes()]

    if events.exists():  # the optional provider, which the lock has
        reported = read_completed_tasks(events, runs[0][0])["observe"]
        server = secure.bootstrap_servers.split(",")[0]
        assert (f"kafka://{server}", "__consumer_offsets") in names_of(reported["inputs"])
