"""Settings of one Kafka cluster: connection, schedule, hint topic, and limits of its snapshots.

Each setting has its default, unit and range here. No value is secret: a secret is a
:class:`~evenlag.policy.secrets.SecretRef` until it is used.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from evenlag.enums import Disclosure
from evenlag.policy.bootstrap_servers import check_server
from evenlag.policy.secrets import SecretRef
from evenlag.policy.setting_types import KafkaSetting, SettingsModel, cron_expression, one_or_many

DEFAULT_HINT_TOPIC: Final = "evenlag-hints"

# Settings of kafka-python that contain a secret: a literal would be stored in the table `policies`.
SECRET_KAFKA_SETTINGS: Final = frozenset({"sasl_plain_password", "ssl_password"})
# Settings that are Python objects: the token provider of OAUTHBEARER, a TLS context.
OBJECT_KAFKA_SETTINGS: Final = frozenset({"sasl_oauth_token_provider", "ssl_context"})
# Settings of kafka-python that evenlag itself uses.
TIMEOUT_KAFKA_SETTINGS: Final = frozenset({"request_timeout_ms", "bootstrap_timeout_ms"})
# Set by evenlag itself, per connection.
RESERVED_KAFKA_SETTINGS: Final = frozenset({"bootstrap_servers", "transactional_id", "group_id", "client_id"})

_MAX_TIMEOUT_MS: Final = 600_000
HINT_TOPIC_PATTERN: Final = r"^[a-zA-Z0-9._-]{1,249}$"
CLUSTER_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


class SnapshotSettings(SettingsModel):
    """Limits for reading a cluster, and when Spark's executors read it."""

    requests_per_s: float = Field(
        default=100,
        gt=0,
        le=100_000,
        allow_inf_nan=False,
        description="requests per second to all brokers together",
    )
    connections_per_broker: int = Field(
        default=2, ge=1, le=64, description="maximum number of executors connected to a broker"
    )
    max_broker_failures: int = Field(
        default=3, ge=1, le=100, description="timeouts of a broker before it is skipped"
    )
    spread_from_rows: int = Field(
        default=500_000,
        ge=1,
        description="rows from which executors read instead of the driver",
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
        Field(min_length=1),
    ]
    kafka: dict[str, KafkaSetting] = Field(
        default_factory=dict, description="settings passed through to kafka-python, e.g. security_protocol"
    )
    schedule: Annotated[str, AfterValidator(cron_expression)] | None = Field(
        default="*/5 * * * *", description="cron expression, null for manual runs only"
    )
    hint_topic: str = Field(default=DEFAULT_HINT_TOPIC, pattern=HINT_TOPIC_PATTERN)
    hint_topic_partitions: int = Field(default=12, ge=1, le=10_000)
    hint_topic_replication_factor: int = Field(default=-1, ge=-1, description="-1: the broker's default")
    hint_signing_key: SecretRef | None = None
    privacy: PrivacySettings = PrivacySettings()
    request_timeout_ms: int = Field(default=30_000, ge=1_000, le=600_000)
    history_window_s: int = Field(
        default=3_600, ge=60, le=604_800, description="history used for rates and time lag"
    )
    rate_window_s: int = Field(default=900, ge=1, le=86_400, description="window of the rates")
    snapshot: SnapshotSettings = SnapshotSettings()

    @field_validator("kafka")
    @classmethod
    def _no_literal_secret(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, setting in value.items():
            if name in RESERVED_KAFKA_SETTINGS:
                raise ValueError(f"{name} is set by evenlag, it does not belong under 'kafka'")
            if name in OBJECT_KAFKA_SETTINGS:
                raise ValueError(f"{name} takes an object, which a policy file cannot hold")
            if name in SECRET_KAFKA_SETTINGS and not isinstance(setting, SecretRef):
                raise ValueError(f"{name} is a secret: give it as {{env: NAME}} or {{file: PATH}}")
            is_time = type(setting) in (int, float) and 0 < setting <= _MAX_TIMEOUT_MS
            if name in TIMEOUT_KAFKA_SETTINGS and not is_time:
                raise ValueError(f"{name} is a time in milliseconds, above 0, to {_MAX_TIMEOUT_MS:,}")
        return value

    @model_validator(mode="after")
    def _windows_nest(self) -> ClusterSettings:
        if self.rate_window_s > self.history_window_s:
            raise ValueError(
                f"rate_window_s ({self.rate_window_s}) looks further back than "
                f"history_window_s ({self.history_window_s})"
            )
        return self
