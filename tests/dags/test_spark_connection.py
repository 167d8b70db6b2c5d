"""The address of a Spark Connect server in Airflow's connection, as the provider and the client read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.airflow.spark_task import server_of
from evenlag.spark_connect import ConnectionFaultError

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a/token=with;parts?and%signs"


def connection(**fields: Any) -> Any:
    from airflow.sdk import Connection

    return Connection(conn_id="spark_default", conn_type="spark_connect", **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"host": "localhost", "port": 15002},
        {"host": "sc://spark.internal"},
        {"host": "spark.internal", "login": "evenlag", "password": "t0ken-1", "extra": {"use_ssl": True}},
        {"host": "spark.internal", "port": 443, "extra": {"use_ssl": "false"}},
    ],
)
def test_the_client_reads_what_it_reads_of_the_provider_s_url(
    fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    stored = {"conn_type": "spark_connect"} | fields
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(stored))
    extra = {"extra": json.dumps(fields["extra"])} if "extra" in fields else {}

    theirs = DefaultChannelBuilder(SparkConnectHook("spark_default").get_connection_url())
    ours = DefaultChannelBuilder(server_of(connection(**fields | extra)).url)

    for name in ("endpoint", "token", "userId", "use_ssl", "secure"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_a_token_may_have_any_characters() -> None:
    from pyspark.errors import PySparkValueError
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    server = server_of(connection(host="localhost", port=15002, password=TOKEN))

    assert DefaultChannelBuilder(server.url).token == TOKEN
    assert DefaultChannelBuilder(server.url).endpoint == "localhost:15002"
    assert server.secrets[0] == TOKEN
    assert server.secrets[1] in server.url
    assert "token" not in server.name + repr(server)
    # What the provider's quoting gives: the client takes the token for a path, and tells it.
    with pytest.raises(PySparkValueError, match="path component"):
        DefaultChannelBuilder("sc://localhost:15002/;token=a/token")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "names no server"),
        ({"host": "spark://master"}, "spark://"),
        ({"host": "server/path"}, "more than a host"),
        ({"host": "server/;token=s3cret-token"}, "more than a host"),
        ({"host": "s3cret-token@server"}, "more than a host"),
        ({"host": "server:1", "port": 2}, "no address"),
        ({"host": "server:port"}, "no address"),
        ({"host": "server", "extra": '{"use_ssl": "yes"}'}, "use_ssl"),
        ({"host": "server", "extra": '{"use_ssl": 1}'}, "use_ssl"),
    ],
)
def test_what_would_be_ignored_or_misread_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConnectionFaultError, match=message) as caught:
        server_of(connection(**fields))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "endpoint"), [("::1", "[::1]:15002"), ("[::1]", "[::1]:15002"), ("sc://h/", "h:15002")]
)
def test_hosts_are_written_in_many_ways(host: str, endpoint: str) -> None:
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    server = server_of(connection(host=host, port=15002))
    assert DefaultChannelBuilder(server.url).endpoint == server.address == endpoint


def test_without_a_port_the_address_is_the_client_s() -> None:
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    server = server_of(connection(host="h"))
    assert server.address == DefaultChannelBuilder(server.url).endpoint


def test_a_submitting_task_refuses_a_changed_jar_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.airflow.compat import AirflowFailException
    from evenlag.airflow.spark_task import SparkJobOperator

    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[*]"}))
    jar = tmp_path / "io.delta_delta-storage-4.4.0.jar"
    jar.write_bytes(b"something else")
    task = SparkJobOperator(
        task_id="decide", conn_id="spark_default", config="none.yaml", application="cycle.py", jars=str(jar)
    )
    with pytest.raises(AirflowFailException, match=r"delta-storage-4\.4\.0\.jar has SHA-256"):
        task.execute({})
