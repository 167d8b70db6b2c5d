"""Connections of Airflow's Kafka provider, in place of a cluster's brokers and credentials in the policy.

A connection is read while a task runs. Its keys, which are librdkafka's, become the variables that override
settings of the cluster: in the environment of the task's job or, during a step, of the task itself. So the
policy refers to a secret by the name of its variable, as it does to any other.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from evenlag.airflow.compat import AirflowFailException
from evenlag.formatting import did_you_mean
from evenlag.policy.kafka_settings import (
    LIBRDKAFKA_NAMES,
    SECRET_KAFKA_SETTINGS,
    check_kafka_value,
    check_server,
)
from evenlag.policy.loader import cluster_variable, on_one_line, replaced_environment
from evenlag.redaction import remember_secret
from evenlag.safe_text import printable

CONNECTION_TYPE: Final = "kafka"
_SERVERS: Final = "bootstrap.servers"
_SAME_NAMES: Final = (
    "client_dns_lookup", "connections_max_idle_ms", "metadata_max_age_ms", "reconnect_backoff_max_ms",
    "reconnect_backoff_ms", "request_timeout_ms", "retry_backoff_ms",
)  # fmt: skip
SETTINGS_BY_KEY: Final = {
    **{key: setting for setting, key in LIBRDKAFKA_NAMES.items()},
    **{setting.replace("_", "."): setting for setting in _SAME_NAMES},
    _SERVERS: "bootstrap_servers",
    "sasl.mechanisms": "sasl_mechanism",
    "socket.timeout.ms": "request_timeout_ms",
    "ssl.endpoint.identification.algorithm": "ssl_check_hostname",
}
# Of consumers, as the provider's examples have them: evenlag names its clients and groups itself.
IGNORED_KEYS: Final = frozenset({"auto.offset.reset", "client.id", "enable.auto.commit", "group.id"})
_CHECKS_HOSTNAME: Final = {"https": True, "none": False}

# The brokers of the connections that this process has read, by cluster, as the variable that sets them.
# Lineage is collected in a fork of the process, which cannot read connections.
SERVERS_READ: Final[dict[str | None, dict[str, str]]] = {}


def kafka_connection(kafka_conn_ids: Mapping[str, str], cluster: str) -> AbstractContextManager[None]:
    """Apply the connection of a cluster, if it has one, until the end of the ``with`` block."""
    return replaced_environment(connection_variables(kafka_conn_ids, cluster))


def connection_variables(kafka_conn_ids: Mapping[str, str], cluster: str | None) -> dict[str, str]:
    """Read the connection of a cluster as the variables of its settings; empty if it has none."""
    if cluster is None or cluster not in kafka_conn_ids:
        return {}
    name = printable(f"the Airflow connection {kafka_conn_ids[cluster]!r} of the cluster {cluster!r}")
    try:
        connection = BaseHook.get_connection(kafka_conn_ids[cluster])
    except Exception as error:
        raise AirflowFailException(f"{name} cannot be read ({type(error).__name__}): make it") from error
    extra = connection.extra_dejson
    if connection.conn_type != CONNECTION_TYPE or not isinstance(extra, dict) or _SERVERS not in extra:
        raise AirflowFailException(
            f"{name} has the type {printable(str(connection.conn_type))!r}: make it of type "
            f"{CONNECTION_TYPE!r} (Apache Kafka), with a JSON object as extra that has {_SERVERS!r}"
        )
    found: dict[str, str] = {}
    # Of two names for a setting, librdkafka's own comes last and applies.
    for key in sorted(extra.keys() - IGNORED_KEYS):
        try:
            variable, text = override_of(cluster, key, extra[key])
        except ValueError as error:
            raise AirflowFailException(printable(f"{name}: the key {key!r:.60}: {error}")) from None
        found[variable] = text
    servers = cluster_variable(cluster, "bootstrap_servers")
    SERVERS_READ[cluster] = {servers: found[servers]}
    return found


def override_of(cluster: str, key: str, value: Any) -> tuple[str, str]:
    """Return the variable, with its text, that gives a cluster what a key of a connection says."""
    setting = SETTINGS_BY_KEY.get(key)
    if setting is None:
        hint = did_you_mean(key, SETTINGS_BY_KEY)
        raise ValueError(f"evenlag does not take it{hint}; remove it, or make a connection for evenlag alone")
    if setting == "bootstrap_servers":
        for server in str(value).split(","):
            check_server(server.strip())
        return cluster_variable(cluster, setting), on_one_line(value)
    variable = cluster_variable(cluster, "kafka", setting)
    if setting in SECRET_KAFKA_SETTINGS:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError("it must be text, and not empty")
        remember_secret(value)
        mask_secret(value)
        return variable, value
    if setting == "ssl_check_hostname":
        if str(value) not in _CHECKS_HOSTNAME:
            raise ValueError("it must be https or none")
        value = _CHECKS_HOSTNAME[value]
    elif setting == "security_protocol":
        value = str(value).upper()
    elif setting.endswith("_ms") and str(value).isdecimal():
        value = int(value)
    check_kafka_value(setting, value)
    return variable, on_one_line(value)
