"""One cluster's Kafka as several checks look at it: one connection, and each thing asked once."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupType, Mode
from evenlag.kafka.connection import reading_limits, request_timeout_s
from evenlag.kafka.groups import describe_consumer_groups

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.settings import Policy

_DESCRIBED_AT_ONCE: Final = 500


class NotConnectedError(Exception):
    """Raised when a check needs the connection that there is not."""


class KafkaView:
    """A cluster and its lake, for checks that follow each other in one thread.

    Parameters
    ----------
    policy, name
        The policy, and the cluster's name in it.
    reader
        The lake.
    timeout_ms
        How long a request may take; the policy's own limit holds when it is shorter.
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
        """The brokers to begin with."""
        return self.settings.bootstrap_servers

    @property
    def publishes(self) -> bool:
        """Whether a rule lets hints be published here."""
        ceiling = self.policy.max_mode.rank
        return any(
            min(rule.mode.rank, ceiling) >= Mode.APPROVE.rank and self.name in (rule.clusters or (self.name,))
            for rule in self.policy.groups
        )

    def connect(self) -> None:
        """Make the connection.

        Raises
        ------
        KafkaUnreachableError, KafkaAuthenticationError
            As ``kafka_connection`` tells.
        """
        from kafka.admin import KafkaAdminClient

        from evenlag.kafka.connection import kafka_client_settings, kafka_errors

        with kafka_errors(self.settings):
            client = KafkaAdminClient(**kafka_client_settings(self.settings))
            client.describe_cluster()
            self._client = client

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()

    @property
    def client(self) -> Any:
        """The admin client.

        Raises
        ------
        NotConnectedError
            When there is no connection.
        """
        if self._client is None:
            raise NotConnectedError
        return self._client

    @cached_property
    def cluster(self) -> dict[str, Any]:
        """What the cluster tells of itself, with what evenlag may do to it."""
        described: dict[str, Any] = self.client.describe_cluster()
        return described

    @cached_property
    def hint_topic(self) -> dict[str, Any]:
        """The hint topic's metadata; its ``error_code`` is 3: not there, 29: may not be seen."""
        described = self.client.describe_topics([self.settings.hint_topic])
        return dict(described[0])

    @cached_property
    def groups(self) -> dict[str, dict[str, Any]]:
        """The consumer groups by name, as they describe themselves; what could not be is left out.

        Those of the consumer protocol stand here in the form of the classic ones, with ``group_type``.
        """
        by_type: dict[str, list[str]] = defaultdict(list)
        for row in self.client.list_groups():
            if (row.get("protocol_type") or "") in {"consumer", ""}:
                by_type[str(row.get("group_type") or GroupType.CLASSIC).lower()].append(row["group_id"])
        names = by_type[GroupType.CLASSIC]
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(names), _DESCRIBED_AT_ONCE):
            found.update(self.client.describe_groups(names[start : start + _DESCRIBED_AT_ONCE]))
        return found | self._describe_newer(by_type[GroupType.CONSUMER])

    def _describe_newer(self, names: list[str]) -> dict[str, dict[str, Any]]:
        if not names:
            return {}
        found: dict[str, dict[str, Any]] = {}
        for row in describe_consumer_groups(self.client, names, reading_limits(self.settings)):
            group = found.setdefault(
                row["group_id"],
                {
                    "group_type": GroupType.CONSUMER,
                    "group_state": row["group_state"],
                    "protocol_data": row["assignor"],
                    "error": row["error"],
                    "members": [],
                },
            )
            if row.get("member_id") is not None:
                group["members"].append({"member_metadata": {"topics": row["subscription"] or []}})
        return found

    def settings_of_topic(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """The hint topic's settings of these names."""
        return self._configs("TOPIC", self.settings.hint_topic, names)

    def settings_of_broker(self, names: tuple[str, ...]) -> dict[str, str | None]:
        """A broker's settings of these names: the first one's that the cluster lists."""
        return self._configs("BROKER", str(self.cluster["brokers"][0]["broker_id"]), names)

    def _configs(self, kind: str, name: str, wanted: tuple[str, ...]) -> dict[str, str | None]:
        from kafka.admin import ConfigResource, ConfigResourceType

        resource = ConfigResource(ConfigResourceType[kind], name)
        described = self.client.describe_configs([resource], config_filter="all")
        rows = described.get(kind.lower(), {}).get(name, {})
        return {key: rows.get(key, {}).get("value") for key in wanted}
