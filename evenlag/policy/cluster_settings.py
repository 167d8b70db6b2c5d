"""Settings of one Kafka cluster: connection, schedule, hint topic, and limits of its snapshots.

Each setting has its default, unit and range here. No value is secret: a secret is a
:class:`~evenlag.policy.secrets.SecretRef` until it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from evenlag.enums import CommandApprovals, Disclosure, OnFailure
from evenlag.policy.kafka_settings import check_kafka_settings, check_server
from evenlag.policy.portable_settings import Pseudonymizer
from evenlag.policy.secrets import SecretRef
from evenlag.policy.setting_types import (
    Approvers,
    KafkaSetting,
    Schedule,
    SettingsModel,
    one_or_many,
    setting,
)

DEFAULT_HINT_TOPIC: Final = "evenlag-hints"

# Settings that are references to the key of an HMAC.
HMAC_KEYS: Final = (
    "hint_signing_key",
    "previous_hint_signing_key",
    "approval_key",
    "previous_approval_key",
)
HINT_TOPIC_PATTERN: Final = r"^[a-zA-Z0-9._-]{1,249}$"
CLUSTER_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


class SnapshotSettings(SettingsModel):
    """Limits for reading a cluster."""

    requests_per_s: float = setting(
        100,
        "requests per second to all brokers together, retries included",
        gt=0,
        le=100_000,
        allow_inf_nan=False,
    )
    max_broker_failures: int = setting(
        3, "timeouts or refusals of a broker before it is skipped", ge=1, le=100
    )
    failover_s: float = setting(
        15.0, "how long a snapshot waits for the brokers that take over from one that fails", ge=0, le=600
    )


class QualitySettings(SettingsModel):
    """Limits of the checks of a snapshot, and what a failure leads to: docs/quality.md."""

    on_failure: OnFailure = setting(
        OnFailure.WARN, "a failed check raises an alert; stop: and no group is planned from the snapshot"
    )
    min_completeness: float = setting(
        0.995, "share of the partitions, and of the groups, that must be readable", ge=0, le=1
    )
    max_age_s: int = setting(900, "maximum age of the end offsets at the check", ge=1, le=86_400)


class PrivacySettings(SettingsModel):
    """How personal data in snapshots is stored: docs/privacy.md."""

    hosts: Disclosure = setting(Disclosure.KEEP, "client_host of members")
    client_ids: Disclosure = setting(Disclosure.KEEP, "client_id of members")
    key: SecretRef | None = setting(None, "secret key of the hash")

    @model_validator(mode="after")
    def _hashes_have_a_key(self) -> Self:
        if Disclosure.HASH in {self.hosts, self.client_ids} and self.key is None:
            raise ValueError(
                "hash needs a key, as {env: NAME} or {file: PATH}: there are so few hosts that anybody could "
                "try them all"
            )
        return self

    def pseudonymizer(self) -> Pseudonymizer:
        """Return what hides the columns of rows of ``members``; without a key if nothing is hashed."""
        wanted = {"client_host": self.hosts, "client_id": self.client_ids}
        columns = {name: how.value for name, how in wanted.items() if how is not Disclosure.KEEP}
        return Pseudonymizer(columns, self.key.resolve_key() if self.key and columns else b"")


class ClusterSettings(SettingsModel):
    """One Kafka cluster: connection, schedule, hint topic."""

    bootstrap_servers: Annotated[
        tuple[Annotated[str, AfterValidator(check_server)], ...],
        BeforeValidator(one_or_many),
        Field(min_length=1, description="brokers for the first connection, each as host:port"),
    ]
    kafka: Annotated[dict[str, KafkaSetting], AfterValidator(check_kafka_settings)] = Field(
        default_factory=dict, description="settings passed through to kafka-python, e.g. security_protocol"
    )
    schedule: Schedule = setting("*/5 * * * *", "cron expression, null for manual runs only")
    hint_topic: str = setting(
        DEFAULT_HINT_TOPIC,
        "topic for hints; the first publishing creates it, compacted",
        pattern=HINT_TOPIC_PATTERN,
    )
    hint_topic_partitions: int = setting(12, "its partitions, if evenlag creates it", ge=1, le=10_000)
    hint_topic_replication_factor: int = setting(
        -1, "replication, if evenlag creates it; -1: broker's default", ge=-1, le=32_767
    )
    hint_signing_key: SecretRef | None = setting(
        None, "master key that signs hints; null: they are not signed"
    )
    previous_hint_signing_key: SecretRef | None = setting(
        None, "during a key change: what it signed is still accepted"
    )
    approval_key: SecretRef | None = setting(
        None, "seals plans and approvals; null: a key derived from hint_signing_key"
    )
    previous_approval_key: SecretRef | None = setting(
        None, "during a key change: what it sealed is still accepted"
    )
    required_signing: StrictBool = setting(
        False, "nothing unsigned is published or followed, and hint_signing_key is required"
    )
    approvers: Approvers | None = setting(
        None,
        "who may approve plans of mode approve: ids of Airflow's users, or account:NAME for "
        "the command; null: whoever Airflow lets answer",
    )
    command_approvals: CommandApprovals = setting(
        CommandApprovals.ALLOW,
        "whether the command may approve plans: itself, through Airflow only, or not at all",
    )
    temporary_member_after_s: int | None = setting(
        2,
        "after how long without a reaction to a hint evenlag's temporary member makes a classic "
        "group rebalance; null: evenlag joins no group of either protocol",
        ge=0,
        le=60,
    )
    privacy: PrivacySettings = setting(PrivacySettings(), "how personal data of members is stored")
    fetch_from_followers: StrictBool = setting(
        False,
        "consumers with a client.rack read from a replica in it: the brokers have a replica.selector.class "
        "(KIP-392); false: all read from leaders",
    )
    request_timeout_ms: int = setting(
        30_000,
        "timeout of a request to a broker; a snapshot may take four times as long",
        ge=1_000,
        le=600_000,
    )
    history_window_s: int = setting(3_600, "history used for rates and time lag", ge=60, le=604_800)
    rate_window_s: int = setting(900, "window of the rates, within history_window_s", ge=1, le=86_400)
    snapshot: SnapshotSettings = setting(SnapshotSettings(), "limits for reading the cluster")
    quality: QualitySettings = setting(QualitySettings(), "checks of each snapshot")

    def secrets(self) -> dict[str, tuple[SecretRef, Callable[[], object]]]:
        """Return the references to secrets by setting, each with the method that reads and checks it."""
        found: dict[str, tuple[SecretRef, Callable[[], object]]] = {
            f"kafka.{name}": (value, value.resolve)
            for name, value in self.kafka.items()
            if isinstance(value, SecretRef)
        }
        keys = {name: getattr(self, name) for name in HMAC_KEYS} | {"privacy.key": self.privacy.key}
        return found | {name: (key, key.resolve_key) for name, key in keys.items() if key is not None}

    @model_validator(mode="after")
    def _keys_are_complete(self) -> Self:
        if self.required_signing and self.hint_signing_key is None:
            raise ValueError(
                "required_signing needs a hint_signing_key, as {env: NAME} or {file: PATH}: without one "
                "nothing may be published"
            )
        for name in ("hint_signing_key", "approval_key"):
            if getattr(self, f"previous_{name}") is not None and getattr(self, name) is None:
                raise ValueError(f"previous_{name} needs a {name}: the key that it was changed to")
        return self

    @model_validator(mode="after")
    def _windows_nest(self) -> ClusterSettings:
        if self.rate_window_s > self.history_window_s:
            raise ValueError(
                f"rate_window_s ({self.rate_window_s}) looks further back than "
                f"history_window_s ({self.history_window_s})"
            )
        return self
