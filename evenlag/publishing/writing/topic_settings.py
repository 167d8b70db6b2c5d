"""Settings of the hint topic: exactly compacted, and never compressed.

With ``cleanup.policy=compact,delete`` retention removes hints and ``control/stop``. A compressed batch has no
bound on what it expands to, so brokers store what producers send uncompressed, and readers skip the rest.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import kafka.errors
from kafka.admin import ConfigResource, ConfigResourceType

from evenlag.errors import PublishError
from evenlag.kafka.broker_requests import no_answer_errors
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)

# Size of a record beside key and value: Kafka's record and batch headers, at most.
_RECORD_HEADER_BYTES: Final = 100
_RETRY_S: Final = 15.0
_PAUSE_S: Final = 0.25
_COMPRESSION: Final = "compression.type"
# The brokers store a batch as its producer has sent it.
_AS_PRODUCED: Final = "producer"
REQUIRED_SETTINGS: Final = {"cleanup.policy": "compact", _COMPRESSION: "uncompressed"}
_WHY: Final = {
    "cleanup.policy": "retention would remove hints and control/stop",
    _COMPRESSION: "a compressed batch could fill the memory of every reader",
}


def new_topic(cluster: ClusterSettings) -> dict[str, Any]:
    """Return the hint topic as it is created."""
    return {
        "num_partitions": cluster.hint_topic_partitions,
        "replication_factor": cluster.hint_topic_replication_factor,
        "configs": dict(REQUIRED_SETTINGS),
    }


def ensure_hint_topic(client: Any, cluster: ClusterSettings, *, is_checked: bool = True) -> None:
    """Create the hint topic unless it exists.

    While a broker ends, the client may still choose it: the request is repeated to others for some seconds.

    is_checked: Whether a topic that exists must have the required settings. Stopping hints works without.
    """
    deadline = time.monotonic() + min(_RETRY_S, cluster.request_timeout_ms / 1000)
    while True:
        try:
            return _ensure(client, cluster, is_checked=is_checked)
        except no_answer_errors():
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)


def _ensure(client: Any, cluster: ClusterSettings, *, is_checked: bool) -> None:
    name = cluster.hint_topic
    try:
        if name not in client.list_topics():
            client.create_topics({name: new_topic(cluster)}, wait_for_metadata=True)
            return
    except kafka.errors.TopicAlreadyExistsError:
        _LOG.info("the topic %s was created meanwhile", name)
    if is_checked:
        _check(client, cluster)


def wrong_settings(settings: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """Return the visible settings of the hint topic that are not as required, each with what is wrong."""
    return [
        (name, f"{name}={settings[name]}, not {wanted}: {_WHY[name]}")
        for name, wanted in REQUIRED_SETTINGS.items()
        if settings.get(name) is not None and settings[name] != wanted
    ]


def alter_command(servers: tuple[str, ...], topic: str, names: tuple[str, ...]) -> str:
    """Return the command that gives the hint topic its required settings."""
    wanted = ",".join(f"{name}={REQUIRED_SETTINGS[name]}" for name in names)
    return (
        f"kafka-configs.sh --bootstrap-server {','.join(servers)} --alter --entity-type topics "
        f"--entity-name {topic} --add-config {wanted}"
    )


def compression_warning(client: Any, cluster: ClusterSettings) -> str | None:
    """Return why readers skip what is written to the hint topic: brokers compress it; else None."""
    name = cluster.hint_topic
    value = _read_settings(client, name).get(_COMPRESSION)
    if value in (None, REQUIRED_SETTINGS[_COMPRESSION], _AS_PRODUCED):
        return None
    command = alter_command(cluster.bootstrap_servers, name, (_COMPRESSION,))
    return f"the topic {name} has {_COMPRESSION}={value}, so readers skip it. Run {command}, then repeat this"


def read_max_bytes(client: Any, name: str) -> int | None:
    """Return the topic's ``max.message.bytes``; None when it does not exist, or is not reported."""
    try:
        value = _read_settings(client, name).get("max.message.bytes")
    except kafka.errors.KafkaError as error:
        _LOG.info("max.message.bytes of %s does not show: %s", name, error)
        return None
    return None if value is None else int(value)


def size_problem(key: bytes, value: bytes, max_bytes: int | None) -> str | None:
    """Return why the topic does not take a record; None if it fits, or the limit is not known."""
    size = len(value) + len(key) + _RECORD_HEADER_BYTES
    if max_bytes is None or size <= max_bytes:
        return None
    return f"{size} bytes, the hint topic allows {max_bytes} per record"


def _check(client: Any, cluster: ClusterSettings) -> None:
    name = cluster.hint_topic
    settings = _read_settings(client, name)
    hidden = [setting for setting in REQUIRED_SETTINGS if settings.get(setting) is None]
    if hidden:
        raise PublishError(
            f"{', '.join(hidden)} of the topic {name} cannot be read: evenlag lacks the ACL operation "
            "DescribeConfigs on it"
        )
    if wrong := wrong_settings(settings):
        reasons = "; ".join(reason for _, reason in wrong)
        command = alter_command(cluster.bootstrap_servers, name, tuple(setting for setting, _ in wrong))
        raise PublishError(
            f"the topic {name} has {reasons}. Run {command}, or name another hint_topic in the policy"
        )


def _read_settings(client: Any, name: str) -> dict[str, str | None]:
    described = client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")
    found = described.get("topic", {}).get(name, {})
    values = {
        setting: found.get(setting, {}).get("value") for setting in (*REQUIRED_SETTINGS, "max.message.bytes")
    }
    return {setting: None if value is None else str(value) for setting, value in values.items()}
