"""What evenlag is told: clusters, groups and limits, validated once when the policy is read.

Each value has its default, unit and range here. Nothing in these objects is secret: a secret is a
:class:`~evenlag.policy.secrets.SecretRef` until the moment it is used.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from assignor_core.objective import Load
from evenlag.enums import (
    DEFAULT_ASSIGNOR,
    Disclosure,
    IsolationLevel,
    Mode,
    ResetPolicy,
    check_pattern,
    matches_pattern,
)
from evenlag.policy.bootstrap_servers import check_server
from evenlag.policy.portable_settings import CommonMethods, GroupMethods, unpack
from evenlag.policy.secrets import SecretRef
from evenlag.policy.setting_types import (
    KafkaSetting,
    cron_expression,
    known_assignor,
    one_or_many,
    path_text,
    uses_load,
)

DEFAULT_HINT_TOPIC: Final = "evenlag-hints"

# Settings of kafka-python that hold a secret: a literal here would end in the policies table.
SECRET_KAFKA_SETTINGS: Final = frozenset({"sasl_plain_password", "ssl_password"})
# Objects of Python, for programs: OAUTHBEARER's tokens, a ready-made TLS context.
OBJECT_KAFKA_SETTINGS: Final = frozenset({"sasl_oauth_token_provider", "ssl_context"})
# Settings of kafka-python that evenlag itself looks at.
TIMEOUT_KAFKA_SETTINGS: Final = frozenset({"request_timeout_ms", "bootstrap_timeout_ms"})
# Set by evenlag itself, per connection.
RESERVED_KAFKA_SETTINGS: Final = frozenset({"bootstrap_servers", "transactional_id", "group_id", "client_id"})

_MAX_TIMEOUT_MS: Final = 600_000
HINT_TOPIC_PATTERN: Final = r"^[a-zA-Z0-9._-]{1,249}$"
CLUSTER_NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


class _Settings(CommonMethods, BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=False, allow_inf_nan=False)

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def changed(self, **values: Any) -> Self:
        """The same settings but for some values, which are known to be valid."""
        return self.model_copy(update=values)

    def __reduce__(self) -> tuple[Any, ...]:
        # What unpickles it may be an executor, which has no pydantic.
        return unpack, ("ShippedSettings", self.values())


class ReadingSettings(_Settings):
    """How gently a cluster is read, and when the work is spread over Spark's executors."""

    requests_per_s: float = Field(
        default=100, gt=0, le=100_000, allow_inf_nan=False, description="requests of a reading to all brokers"
    )
    connections_per_broker: int = Field(
        default=2, ge=1, le=64, description="executors that may be connected to a broker at once"
    )
    max_broker_failures: int = Field(
        default=3, ge=1, le=100, description="times that a broker may not answer; then it is left alone"
    )
    spread_from_rows: int = Field(
        default=500_000,
        ge=1,
        description="rows from which on executors read, not the driver",
    )


class PrivacySettings(_Settings):
    """What is written of what a reading sees that may tell of a person or a machine: docs/privacy.md."""

    hosts: Disclosure = Field(default=Disclosure.KEEP, description="client_host of members")
    client_ids: Disclosure = Field(default=Disclosure.KEEP, description="client_id of members")
    key: SecretRef | None = Field(default=None, description="what is hashed is hashed with this secret")

    @model_validator(mode="after")
    def _hashes_have_a_key(self) -> Self:
        if Disclosure.HASH in {self.hosts, self.client_ids} and self.key is None:
            raise ValueError(
                "hash needs a key, as {env: NAME} or {file: PATH}: there are so few hosts that anybody could "
                "try them all"
            )
        return self


class ClusterSettings(_Settings):
    """One Kafka cluster: how to reach it, when to run, where its hints go."""

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
        default=3_600, ge=60, le=604_800, description="how far back rates and time lag look"
    )
    rate_window_s: int = Field(default=900, ge=1, le=86_400, description="window of the rates")
    reading: ReadingSettings = ReadingSettings()

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


class GateLimits(_Settings):
    """Limits of the gates; a plan beyond one of them is set aside."""

    max_snapshot_age_s: int = Field(
        default=900, ge=1, le=86_400, description="how old the reading may be when it is decided upon"
    )
    cooldown_s: int = Field(default=600, ge=0, le=604_800, description="rest after a hint of the group")
    min_breaches: int = Field(
        default=1, ge=1, le=1_000, description="readings in a row that ask for a change before it is proposed"
    )


class BackOff(_Settings):
    """When plans are scored, and when a group whose plans do not pay off is left alone."""

    horizon_s: int = Field(
        default=1_800, ge=10, le=604_800, description="how long after its publishing a plan is scored"
    )
    after: int = Field(
        default=3, ge=0, le=1_000, description="plans in a row that did not pay off; 0: never back off"
    )
    rest_s: int = Field(default=86_400, ge=10, le=31_536_000, description="how long the group rests then")


class CapacityRule(_Settings):
    """What the members whose instance id matches can bear, relative to others (1)."""

    match: Annotated[str, AfterValidator(check_pattern), Field(min_length=1)]
    capacity: float = Field(gt=0, le=1_000_000, allow_inf_nan=False)


class GroupSettings(GroupMethods, _Settings):
    """What holds for the groups that a rule matches."""

    mode: Mode = Mode.SHADOW
    assignor: Annotated[str, AfterValidator(known_assignor)] = DEFAULT_ASSIGNOR
    load: Load = Field(default=Load.LAG, description="what is evened out: lag, the rate of arrivals, or both")
    capacities: tuple[CapacityRule, ...] = Field(
        default=(), description="what members can bear, by instance id; the first that matches holds, else 1"
    )
    max_moves: int = Field(default=1_000, ge=0, le=10_000_000, description="partitions that may change owner")
    count_slack: int = Field(default=0, ge=0, le=1_000_000, description="counts may differ by 1 + this")
    min_gain: float = Field(default=0.05, ge=0, lt=1, description="relative fall of the largest member lag")
    reset_policy: ResetPolicy | None = None
    isolation_level: IsolationLevel | None = None
    hint_ttl_s: int = Field(
        default=900, ge=10, le=604_800, description="how long a hint may start a rebalance"
    )
    approval_timeout_s: int = Field(
        default=3_600, ge=60, le=604_800, description="how long a plan may wait for a person; then it is no"
    )
    gates: GateLimits = GateLimits()
    back_off: BackOff = BackOff()

    @model_validator(mode="after")
    def _load_has_its_assignor(self) -> Self:
        for name, is_set in (("load", self.load is not Load.LAG), ("capacities", bool(self.capacities))):
            if is_set and not uses_load(self.assignor):
                raise ValueError(f"{name} has no effect: the assignor {self.assignor} does not use the load")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, ("ShippedGroupSettings", self.values())


class GroupRule(GroupSettings):
    """A rule: which groups (``match``), on which clusters (all when not given), and what holds for them.

    ``match`` is an exact name, a glob (``payments-*``), or a regular expression between slashes
    (``/payments-[0-9]+/``, the whole name).
    """

    match: Annotated[str, AfterValidator(check_pattern), Field(min_length=1)]
    clusters: Annotated[tuple[str, ...], BeforeValidator(one_or_many)] | None = None

    def matches(self, cluster: str, group_id: str) -> bool:
        """Tell whether the rule holds for a group of a cluster."""
        if self.clusters is not None and cluster not in self.clusters:
            return False
        return matches_pattern(self.match, group_id)

    @cached_property
    def settings(self) -> GroupSettings:
        """The rule without its ``match`` and ``clusters``."""
        return GroupSettings(**{name: getattr(self, name) for name in GroupSettings.model_fields})


def _known_comparison(name: str) -> str:
    from evenlag.errors import PolicyError
    from evenlag.policy.candidates import parse_candidate

    try:
        return parse_candidate(name).name
    except PolicyError as error:
        raise ValueError(str(error)) from error


class Pauses(_Settings):
    """For how long a partition stands still in a rebalance, in a replay.

    The defaults were measured on the hint client at a heartbeat interval of 3 s (docs/hint-client.md).
    """

    eager_s: float = Field(default=1.5, ge=0, le=3_600, description="EAGER: every partition of the group")
    moved_s: float = Field(default=1.7, ge=0, le=3_600, description="COOPERATIVE: what changes hands")
    stall_s: float = Field(default=0.14, ge=0, le=3_600, description="COOPERATIVE: all others")


class ComparisonSettings(_Settings):
    """What is compared day by day; without it there is no DAG that does."""

    policies: tuple[Annotated[str, AfterValidator(_known_comparison)], ...] = Field(
        default=("range", "cooperative-sticky", "lag-aware", "lag-aware-sticky"),
        min_length=1,
        description="NAME[:key=value,...]; what is not set comes from the group's rule",
    )
    schedule: Annotated[str, AfterValidator(cron_expression)] | None = Field(
        default="30 0 * * *", description="cron expression, null for manual runs only"
    )
    pauses: Pauses = Pauses()


class MaintenanceSettings(_Settings):
    """The lake's daily upkeep; what is null is not done."""

    schedule: Annotated[str, AfterValidator(cron_expression)] | None = Field(
        default="30 3 * * *", description="cron expression of table_maintenance, null for manual runs only"
    )
    target_file_mb: int | None = Field(
        default=256, ge=1, le=4_096, description="size of a closed day's files; null: nothing is compacted"
    )
    raw_days: int | None = Field(
        default=30,
        ge=9,
        le=36_500,
        description="days for which each reading is kept, then one lag an hour; null: for good",
    )
    orphan_days: int | None = Field(
        default=3,
        ge=3,
        le=365,
        description="age at which rows of readings and plans never finished go; null: they stay",
    )
    vacuum_days: int | None = Field(
        default=7, ge=7, le=365, description="how long files that were replaced are kept; null: for good"
    )


class Policy(_Settings):
    """Everything evenlag is told, from one file."""

    lake: Annotated[str, AfterValidator(path_text)] = Field(
        min_length=1, description="root folder of the Delta tables: a path or a Hadoop URI"
    )
    max_mode: Mode = Field(default=Mode.AUTO, description="no group's mode goes beyond this one")
    data_docs: Annotated[str, AfterValidator(path_text)] | None = Field(
        default=None, min_length=1, description="local folder for Great Expectations' pages; none without it"
    )
    audit_schedule: Annotated[str, AfterValidator(cron_expression)] | None = Field(
        default="12 * * * *", description="cron expression of the audit, null for manual runs only"
    )
    comparison: ComparisonSettings | None = Field(
        default=None, description="what is compared day by day; nothing without it"
    )
    maintenance: MaintenanceSettings = Field(
        default=MaintenanceSettings(), description="the lake's daily upkeep"
    )
    clusters: dict[Annotated[str, Field(pattern=CLUSTER_NAME_PATTERN)], ClusterSettings] = Field(min_length=1)
    groups: tuple[GroupRule, ...] = ()

    @model_validator(mode="after")
    def _known_clusters(self) -> Policy:
        for rule in self.groups:
            unknown = set(rule.clusters or ()) - set(self.clusters)
            if unknown:
                raise ValueError(
                    f"the rule for {rule.match!r} names clusters that are not there: {sorted(unknown)}"
                )
        return self

    def group_settings(self, cluster: str, group_id: str) -> GroupSettings:
        """What holds for a group: the first rule that matches, else the defaults (mode shadow)."""
        rule = self.rule_of(cluster, group_id)
        return self._at_most(GroupSettings() if rule is None else rule.settings)

    def rule_of(self, cluster: str, group_id: str) -> GroupRule | None:
        """The first rule that matches a group; None when the defaults hold."""
        return next((rule for rule in self.groups if rule.matches(cluster, group_id)), None)

    def _at_most(self, settings: GroupSettings) -> GroupSettings:
        if settings.mode.rank <= self.max_mode.rank:
            return settings
        return settings.changed(mode=self.max_mode)

    def __reduce__(self) -> tuple[Any, ...]:
        rules = tuple((rule.match, rule.clusters, self._at_most(rule.settings)) for rule in self.groups)
        return unpack, ("ShippedPolicy", {"rules": rules, "default": self._at_most(GroupSettings())})
