"""Access to one Kafka cluster for several checks: one connection, and each request is sent once."""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from evenlag.enums import Mode
from evenlag.errors import KafkaUnreachableError
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.connection import request_limits, request_timeout_s
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import describe_groups, list_groups
from evenlag.kafka.topic_metadata import read_metadata

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.settings import Policy
    from evenlag.publishing.hint_topic import TopicState


class NotConnectedError(Exception):
    """Raised when a check needs a connection and there is none."""


class KafkaView:
    """A cluster and its lake, for checks that run in sequence in one thread.

    timeout_ms: Request timeout in milliseconds; the policy's own timeout applies if it is shorter.
    """

    def __init__(self, policy: Policy, name: str, reader: LakeReader, *, timeout_ms: int) -> None:
        self.policy = policy
        self.name = name
        self.reader = reader
        given = policy.clusters[name]
        limit = {"request_timeout_ms": min(round(1000 * request_timeout_s(given)), timeout_ms)}
        self.settings: ClusterSettings = given.model_copy(update={**limit, "kafka": {**given.kafka, **limit}})
        self._client: Any = None

    @property
    def servers(self) -> tuple[str, ...]:
        """The bootstrap servers."""
        return self.settings.bootstrap_servers

    @property
    def publishes(self) -> bool:
        """Whether a rule allows evenlag to publish hints to this cluster."""
        ceiling = self.policy.max_mode.rank
        return any(
            min(rule.mode.rank, ceiling) >= Mode.APPROVE.rank and self.name in (rule.clusters or (self.name,))
            for rule in self.policy.groups
        )

    def connect(self) -> None:
        """Open the connection."""
        from kafka.admin import KafkaAdminClient

        from evenlag.kafka.connection import kafka_client_settings, kafka_errors

        with kafka_errors(self.settings):
            client = KafkaAdminClient(**kafka_client_settings(self.settings))
            client.describe_cluster()
            self._client = client

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    @property
    def client(self) -> Any:
        """The admin client."""
        if self._client is None:
            raise NotConnectedError
        return self._client

    @cached_property
    def cluster(self) -> dict[str, Any]:
        """The cluster's description, with the operations that evenlag is authorized for."""
        described: dict[str, Any] = self.client.describe_cluster()
        return described

    @cached_property
    def hint_topic(self) -> dict[str, Any]:
        """The hint topic's metadata. ``error_code`` 3: it does not exist; 29: not authorized."""
        described = self.client.describe_topics([self.settings.hint_topic])
        return dict(described[0])

    @cached_property
    def hint_topic_state(self) -> TopicState:
        """The current records of the hint topic."""
        from evenlag.publishing.hint_topic import read_hint_topic

        return read_hint_topic(self.settings)

    @cached_property
    def groups(self) -> dict[str, dict[str, Any]]:
        """The groups by id; a group that could not be described has an ``error``.

        A group has ``group_type, protocol_type, group_state, protocol_data`` (the selected assignor),
        ``error, authorized_operations`` and ``members``, each with its ``member_id`` and ``subscription``.
        """
        calls = BrokerCalls(self.client, request_limits(self.settings))
        listed, failed = list_groups(calls)
        if failed:
            raise KafkaUnreachableError(f"groups cannot be listed: {'; '.join(failed.values())}")
        coordinators = find_coordinators(calls, sorted(listed))
        groups: dict[str, dict[str, Any]] = {}
        topics = cache(lambda: read_metadata(calls, frozenset({self.settings.hint_topic})).partitions.names)
        for row in describe_groups(calls, listed, coordinators, topics, with_operations=True):
            group = groups.setdefault(
                row["group_id"],
                {
                    "group_type": row["group_type"],
                    "protocol_type": row["protocol_type"],
                    "group_state": row["group_state"],
                    "protocol_data": row["assignor"],
                    "error": row["error"],
                    "authorized_operations": row.get("authorized_operations"),
                    "members": [],
                },
            )
            if row.get("member_id") is not None:
                group["members"].append({name: row[name] for name in ("member_id", "subscription")})
        return groups

    def settings_of_topic(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Return settings of the hint topic by name; None: not visible."""
        return self._configs("TOPIC", self.settings.hint_topic, names)

    def settings_of_broker(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """Return settings of the first listed broker by name; None: not visible."""
        return self._configs("BROKER", str(self.cluster["brokers"][0]["broker_id"]), names)

    def _configs(self, kind: str, name: str, wanted: tuple[str, ...]) -> dict[str, str | None]:
        from kafka.admin import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType[kind], name)
        described = self.client.describe_configs([resource], config_filter="all")
        rows = described.get(kind.lower(), {}).get(name, {})
        return {key: rows.get(key, {}).get("value") for key in wanted}
