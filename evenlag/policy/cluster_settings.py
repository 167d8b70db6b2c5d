"""Settings of one Kafka cluster: connection, schedule, hint topic, and limits of its snapshots.

Each setting has its default, unit and range here. No value is secret: a secret is a
:class:`~evenlag.policy.secrets.SecretRef` until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, field_validator, model_validator

from evenlag.enums import CommandApprovals, Disclosure, OnFailure
from evenlag.policy.kafka_settings import check_kafka_settings, check_server
from evenlag.policy.secrets import SecretRef
from evenlag.policy.setting_types import Approvers, KafkaSetting, SettingsModel, cron_expression, one_or_many

if TYPE_CHECKING:
    from collections.abc import Callable

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

    requests_per_s: float = Field(
        default=100,
        gt=0,
        le=100_000,
        allow_inf_nan=False,
        description="requests per second to all brokers together, retries included",
    )
    max_broker_failures: int = Field(
        default=3, ge=1, le=100, description="timeouts or refusals of a broker before it is skipped"
    )
    failover_s: float = Field(
        default=15.0,
        ge=0,
        le=600,
        description="how long a snapshot waits for the brokers that take over from one that fails",
    )


class QualitySettings(SettingsModel):
    """Limits of the checks of a snapshot, and what a failure leads to: docs/quality.md."""

    on_failure: OnFailure = Field(
        default=OnFailure.WARN,
        description="a failed check raises an alert; stop: and no group is planned from the snapshot",
    )
    min_completeness: float = Field(
        default=0.995,
        ge=0,
        le=1,
        description="share of the partitions, and of the groups, that must be readable",
    )
    max_age_s: int = Field(
        default=900, ge=1, le=86_400, description="maximum age of the end offsets at the check"
    )


class PrivacySettings(SettingsModel):
    """How personal data in snapshots is stored: docs/privacy.md."""

    hosts: Disclosure = Field(default=Disclosure.KEEP, description="client_host of members")
    client_ids: Disclosure = Field(default=Disclosure.KEEP, description="client_id of members")
    key: SecretRef | None = Field(default=None, description="secret key of the hash")

    @model_validator(mode="after")
    def _hashes_have_a_key(self) -> Self:
        if Disclosure.HASH in {self.hosts, self.client_ids} and self.key is None:
            raise ValueError(
                "hash needs a key, as {env: NAME} or {file: PATH}: there are so few hosts that anybody could "
                "try them all"
            )
        return self


class ClusterSettings(SettingsModel):
    """One Kafka cluster: connection, schedule, hint topic."""

    bootstrap_servers: Annotated[
        tuple[Annotated[str, AfterValidator(check_server)], ...],
        BeforeValidator(one_or_many),
        Field(min_length=1, description="brokers for the first connection, each as host:port"),
    ]
    kafka: dict[str, KafkaSetting] = Field(
        default_factory=dict, description="settings passed through to kafka-python, e.g. security_protocol"
    )
    schedule: Annotated[str, AfterValidator(cron_expression)] | None = Field(
        default="*/5 * * * *", description="cron expression, null for manual runs only"
    )
    hint_topic: str = Field(
        default=DEFAULT_HINT_TOPIC,
        pattern=HINT_TOPIC_PATTERN,
        description="topic for hints; the first publishing creates it, compacted",
    )
    hint_topic_partitions: int = Field(
        default=12, ge=1, le=10_000, description="its partitions, if evenlag creates it"
    )
    hint_topic_replication_factor: int = Field(
        default=-1, ge=-1, description="its replication, if evenlag creates it; -1: the broker's default"
    )
    hint_signing_key: SecretRef | None = Field(
        default=None, description="master key that signs hints; null: they are not signed"
    )
    previous_hint_signing_key: SecretRef | None = Field(
        default=None, description="during a key change: what it signed is still accepted"
    )
    approval_key: SecretRef | None = Field(
        default=None, description="seals plans and approvals; null: a key derived from hint_signing_key"
    )
    previous_approval_key: SecretRef | None = Field(
        default=None, description="during a key change: what it sealed is still accepted"
    )
    required_signing: StrictBool = Field(
        default=False,
        description="nothing unsigned is published or followed, and hint_signing_key is required",
    )
    approvers: Approvers | None = Field(
        default=None,
        description="who may approve plans of mode approve: ids of Airflow's users, or account:NAME for "
        "the command; null: whoever Airflow lets answer",
    )
    command_approvals: CommandApprovals = Field(
        default=CommandApprovals.ALLOW,
        description="whether the command may approve plans: itself, through Airflow only, or not at all",
    )
    temporary_member_after_s: int | None = Field(
        default=15,
        ge=0,
        le=60,
        description="how long a classic group has to follow a hint by itself before evenlag's temporary "
        "member makes it rebalance; null: evenlag joins no group of either protocol",
    )
    privacy: PrivacySettings = Field(
        default=PrivacySettings(), description="how personal data of members is stored"
    )
    request_timeout_ms: int = Field(
        default=30_000,
        ge=1_000,
        le=600_000,
        description="timeout of a request to a broker; a snapshot may take four times as long",
    )
    history_window_s: int = Field(
        default=3_600, ge=60, le=604_800, description="history used for rates and time lag"
    )
    rate_window_s: int = Field(
        default=900, ge=1, le=86_400, description="window of the rates, within history_window_s"
    )
    snapshot: SnapshotSettings = Field(
        default=SnapshotSettings(), description="limits for reading the cluster"
    )
    quality: QualitySettings = Field(default=QualitySettings(), description="checks of each snapshot")

    def secrets(self) -> dict[str, tuple[SecretRef, Callable[[], object]]]:
        """Return the references to secrets by setting, each with the method that reads and checks it."""
        found: dict[str, tuple[SecretRef, Callable[[], object]]] = {
            f"kafka.{name}": (value, value.resolve)
            for name, value in self.kafka.items()
            if isinstance(value, SecretRef)
        }
        keys = {name: getattr(self, name) for name in HMAC_KEYS} | {"privacy.key": self.privacy.key}
        return found | {name: (key, key.resolve_key) for name, key in keys.items() if key is not None}

    @field_validator("kafka")
    @classmethod
    def _no_literal_secret(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_kafka_settings(value)
        return value

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
