"""Changes that must not depend on what is on the hint topic: they are written first, and then it is read.

The earlier state is read afterwards: records from the written offsets on are left out.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeVar

from evenlag.errors import FencedPublisherError
from evenlag.kafka.connection import admin_client, kafka_cluster_id
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.hint_topic import TopicState, foreign_keys, read_hint_topic
from evenlag.publishing.writing.hint_publisher import Written, hint_publisher
from evenlag.publishing.writing.topic_settings import compression_warning, ensure_hint_topic

_Result = TypeVar("_Result")
_LOG = named_logger(__name__)

_FENCED_TRIES: Final = 3
_FENCED_PAUSE_S: Final = 2.0
_NO_TOPIC: Final = TopicState(exists=False, hints={}, unreadable={})


@dataclass(frozen=True, slots=True)
class Seen:
    """The topic's state before a write; without records if it is `unread` for a reason."""

    state: TopicState
    unread: str | None = None


def write_stop(settings: ClusterSettings, value: bytes | None) -> tuple[Seen, int, str | None]:
    """Write or remove the stop in all partitions. A missing topic is created; any that exists is written to.

    Returns the state before, the number of partitions, and why consumers may not see the change.
    """
    with admin_client(settings) as client:
        ensure_hint_topic(client, settings, is_checked=False)
        cluster_id = kafka_cluster_id(client)
    with hint_publisher(cluster_id, settings) as publisher:
        written = publisher.write_stop(value)
    seen = _read_before(settings, written, ())
    return seen, len(written), _hidden_by_compression(settings)


def write_tombstones(settings: ClusterSettings, group_id: str) -> Seen:
    """Write tombstones for a group's hint and loads."""
    with admin_client(settings) as client:
        if settings.hint_topic not in client.list_topics():
            return Seen(_NO_TOPIC)
        cluster_id = kafka_cluster_id(client)
    with hint_publisher(cluster_id, settings) as publisher:
        written = publisher.withdraw(group_id)
    return _read_before(settings, written, {group_id})


def write_foreign_tombstones(settings: ClusterSettings) -> None:
    """Write tombstones for all records that nobody reads, in several transactions. The topic exists."""
    with admin_client(settings) as client:
        cluster_id = kafka_cluster_id(client)
    with hint_publisher(cluster_id, settings) as publisher:
        for keys in foreign_keys(settings):
            publisher.write_tombstones(keys)


def _read_before(settings: ClusterSettings, written: Written, groups: Collection[str]) -> Seen:
    """Read the state before a write, which has its effect whatever is on the topic."""
    try:
        return Seen(read_hint_topic(settings, groups, before=written))
    except Exception as error:  # noqa: BLE001 - as above: it is reported with the result
        _LOG.warning("the hint topic was written, and cannot be read: %s", error)
        return Seen(_NO_TOPIC, f"{type(error).__name__}: {error}")


def _hidden_by_compression(settings: ClusterSettings) -> str | None:
    """Why consumers skip what was written: brokers compress it; None when they do not."""
    try:
        with admin_client(settings) as client:
            return compression_warning(client, settings)
    except Exception as error:  # noqa: BLE001 - a warning that cannot be given changes nothing
        _LOG.info("settings of the hint topic do not show: %s", error)
        return None


def try_again_when_fenced(act: Callable[[], _Result]) -> _Result:
    """Run ``act`` again when another publisher has fenced it; every try reads the topic again."""
    for _ in range(_FENCED_TRIES - 1):
        try:
            return act()
        except FencedPublisherError:
            _LOG.info("another publisher came in between; trying again")
            time.sleep(_FENCED_PAUSE_S)
    return act()
