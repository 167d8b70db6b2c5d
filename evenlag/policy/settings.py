"""The complete policy: the lake, its maintenance, comparisons, clusters and rules for groups.

The policy is validated once, when it is read. Each setting has its default, unit and range here, in
:mod:`~evenlag.policy.cluster_settings` or in :mod:`~evenlag.policy.group_settings`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, model_validator

from evenlag.enums import CommandApprovals, Mode
from evenlag.errors import SecretError
from evenlag.lake_schemes import lake_root
from evenlag.policy.cluster_settings import CLUSTER_NAME_PATTERN, ClusterSettings
from evenlag.policy.group_settings import GroupRule, GroupSettings
from evenlag.policy.portable_settings import PortablePolicy
from evenlag.policy.secrets import SecretRef
from evenlag.policy.setting_types import ACCOUNT_PREFIX, Schedule, SettingsModel, path_text, setting

CYCLE_DAG: Final = "lag_rebalance"
"""Id, without prefix, of the DAG that runs the cycles of all clusters; begins those of one cluster."""


def _known_comparison(name: str) -> str:
    from assignor_core.errors import ForeignAssignorError
    from evenlag.errors import PolicyError
    from evenlag.policy.candidates import parse_candidate

    try:
        return parse_candidate(name).name
    except PolicyError as error:
        if isinstance(error.__cause__, ForeignAssignorError):
            # Only the comparison fails.
            return name
        raise ValueError(str(error)) from error


class Pauses(SettingsModel):
    """How long a simulated rebalance pauses a partition.

    The defaults were measured on the hint client at a heartbeat interval of 3 s (docs/hint-client.md).
    """

    eager_s: float = setting(1.5, "EAGER: every partition of the group", ge=0, le=3_600)
    moved_s: float = setting(1.7, "COOPERATIVE: what changes hands", ge=0, le=3_600)
    stall_s: float = setting(0.14, "COOPERATIVE: all others", ge=0, le=3_600)


class ComparisonSettings(SettingsModel):
    """Candidates of the daily comparison; without it there is no comparison DAG."""

    policies: tuple[Annotated[str, AfterValidator(_known_comparison)], ...] = setting(
        ("range", "cooperative-sticky", "lag-aware", "lag-aware-sticky"),
        "NAME[:key=value,...]; what is not set comes from the group's rule",
        min_length=1,
    )
    schedule: Schedule = setting("30 0 * * *", "cron expression, null for manual runs only")
    pauses: Pauses = setting(Pauses(), "how long a simulated rebalance pauses partitions")


# Retention in days of the tables that no other setting limits; None: permanently. The order is that of the
# deletion: what names a plan or an audited day goes before it. `policies` is not here: a text is recorded
# once, under the day of its first use, and may be in use still.
RETENTION_DAYS: Final[dict[str, int | None]] = {
    "plan_assignments": None,
    "gate_results": None,
    "approval_requests": None,
    "outcomes": None,
    "plan_evaluations": None,
    "plans": None,
    "plan_events": None,
    "decisions": None,
    "memberships": None,
    "ownership": None,
    "audited_snapshots": None,
    "downsampled_days": None,
    "comparisons": 400,
    "replays": 400,
    "continuous_replays": 400,
    "runs": 400,
    "alerts": 400,
    "table_health": 400,
    "quality_results": 92,
    "hourly_rates": 92,
    "forecasts": 30,
    "speeds": 30,
    "advice": 92,
    "control_actions": 400,
}
# A consumer follows no hint with a smaller sequence number than it has seen since it started.
_SEQUENCE_DAYS: Final = 365
# A table, what must not be kept longer than it, and why.
_KEPT_AS_LONG: Final = (
    (
        "plans",
        (
            "plan_assignments",
            "gate_results",
            "approval_requests",
            "outcomes",
            "plan_evaluations",
            "plan_events",
        ),
        "their rows belong to a plan",
    ),
    ("plan_events", ("plans",), "a plan without events would look new"),
    ("audited_snapshots", ("memberships", "ownership"), "without it a day counts as not audited"),
    ("memberships", ("audited_snapshots", "ownership"), "an audited day has its intervals"),
    ("ownership", ("audited_snapshots", "memberships"), "an audited day has its intervals"),
)


def _known_retention(given: Any) -> Any:
    """Complete a mapping of retentions by the defaults."""
    if not isinstance(given, Mapping):
        return given
    if unknown := sorted(set(map(str, given)) - set(RETENTION_DAYS)):
        known = ", ".join(sorted(RETENTION_DAYS))
        raise ValueError(f"no retention can be set for {', '.join(unknown)}; it can for {known}")
    return RETENTION_DAYS | dict(given)


def _days(value: int | None) -> str:
    return "permanently" if value is None else f"{value} days"


def _is_shorter(one: int | None, other: int | None) -> bool:
    return one is not None and (other is None or one < other)


class MaintenanceSettings(SettingsModel):
    """Daily maintenance of the lake; null disables the step of a setting, or the schedule."""

    schedule: Schedule = setting(
        "30 3 * * *", "cron expression of table_maintenance, null for manual runs only"
    )
    target_file_mb: int | None = setting(
        256, "size of a closed day's files; null: nothing is compacted", ge=1, le=4_096
    )
    raw_days: int | None = setting(
        30, "days for which every snapshot is kept, then one an hour; null: permanently", ge=9, le=36_500
    )
    hourly_days: int | None = setting(
        92, "days for which the hourly snapshots and their lag are kept; null: permanently", ge=9, le=36_500
    )
    retention_days: Annotated[
        dict[str, Annotated[int, Field(ge=30, le=36_500)] | None], BeforeValidator(_known_retention)
    ] = setting(RETENTION_DAYS, "days by table for the other tables; null: permanently")
    orphan_days: int | None = setting(
        3, "age at which rows of unfinished snapshots are deleted; null: never", ge=3, le=365
    )
    vacuum_days: int | None = setting(
        1, "how long the files of replaced rows stay after they were written; null: permanently", ge=1, le=365
    )

    @model_validator(mode="after")
    def _long_enough(self) -> MaintenanceSettings:
        kept = self.retention_days
        if self.raw_days is not None:
            if _is_shorter(self.hourly_days, self.raw_days):
                raise ValueError(
                    f"hourly_days is {self.hourly_days}: it must not be less than raw_days, which is "
                    f"{self.raw_days}"
                )
            for name in ("audited_snapshots", "downsampled_days"):
                if _is_shorter(kept[name], self.hourly_days):
                    raise ValueError(
                        f"retention_days: {name} is kept {_days(kept[name])}: it must not be less than "
                        f"hourly_days ({_days(self.hourly_days)}), or days are audited again without members"
                    )
        if _is_shorter(kept["plan_events"], _SEQUENCE_DAYS):
            raise ValueError(
                f"retention_days: plan_events is kept {_days(kept['plan_events'])}: it must be kept at least "
                f"{_SEQUENCE_DAYS} days, because the sequence numbers of hints continue from it"
            )
        for name, others, reason in _KEPT_AS_LONG:
            for other in others:
                if _is_shorter(kept[name], kept[other]):
                    raise ValueError(
                        f"retention_days: {name} is kept {_days(kept[name])}, and {other} "
                        f"{_days(kept[other])}: {name} must be kept as long, because {reason}"
                    )
        return self


class StorageSettings(SettingsModel):
    """How a lake on S3 is reached; what is not set comes from the environment, or from the machine."""

    endpoint: str | None = setting(
        None, "address of a store that is not AWS", pattern=r"^https?://[^\s/@]+/?$"
    )
    region: str | None = setting(None, "region of the bucket", min_length=1)
    path_style: StrictBool = setting(True, "with an endpoint: the bucket is in the path")
    access_key_id: SecretRef | None = setting(None, "id of the access key")
    secret_access_key: SecretRef | None = setting(None, "its secret part")
    session_token: SecretRef | None = setting(None, "for a temporary access key")

    @model_validator(mode="after")
    def _whole_key(self) -> StorageSettings:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("access_key_id and secret_access_key belong together: set both, or none")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("session_token needs access_key_id and secret_access_key")
        return self

    def variables(self) -> dict[str, str]:
        """Return these settings as variables of Spark and deltalake, without secrets that are not here."""
        found = {}
        if self.region is not None:
            found["AWS_REGION"] = self.region
        if self.endpoint is not None:
            found["AWS_ENDPOINT_URL"] = self.endpoint
            found["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false" if self.path_style else "true"
            found["AWS_ALLOW_HTTP"] = "true" if self.endpoint.startswith("http:") else "false"
        for name in ("access_key_id", "secret_access_key", "session_token"):
            reference = getattr(self, name)
            if isinstance(reference, SecretRef):
                reference.require_allowed()
                with suppress(SecretError):
                    found[f"AWS_{name.upper()}"] = reference.resolve()
        return found


class Policy(SettingsModel):
    """The complete policy file."""

    lake: Annotated[str, AfterValidator(path_text), AfterValidator(lake_root)] = Field(
        min_length=1,
        description="root of the Delta tables: an absolute path, or a URI that Spark and deltalake both know",
    )
    storage: StorageSettings | None = setting(None, "access to S3; else by the environment")
    max_mode: Mode = setting(Mode.AUTO, "upper limit for the mode of every group")
    data_docs: Annotated[str, AfterValidator(path_text)] | None = setting(
        None, "local folder for the Data Docs", min_length=1
    )
    audit_schedule: Schedule = setting(
        "12 * * * *", "cron expression of the audit, null for manual runs only"
    )
    group_clusters: StrictBool = setting(
        default=False,
        description="whether one DAG, `lag_rebalance`, runs the cycles of all clusters, a Spark job a run",
    )
    comparison: ComparisonSettings | None = setting(
        None, "candidates of the daily comparison; without it there is no DAG plan_comparison"
    )
    maintenance: MaintenanceSettings = setting(MaintenanceSettings(), "daily maintenance of the lake")
    clusters: dict[Annotated[str, Field(pattern=CLUSTER_NAME_PATTERN)], ClusterSettings] = Field(
        min_length=1, description="the Kafka clusters by name"
    )
    groups: tuple[GroupRule, ...] = setting((), "rules: the first that matches applies")

    @model_validator(mode="after")
    def _known_clusters(self) -> Policy:
        for rule in self.groups:
            unknown = set(rule.clusters or ()) - set(self.clusters)
            if unknown:
                raise ValueError(
                    f"the rule for {rule.match!r} names clusters that are not there: {sorted(unknown)}"
                )
        return self

    @model_validator(mode="after")
    def _somebody_may_approve(self) -> Policy:
        for name, cluster in self.clusters.items():
            if cluster.command_approvals is CommandApprovals.ALLOW:
                continue
            rules = [rule for rule in self.groups if rule.clusters is None or name in rule.clusters]
            for approvers in (cluster.approvers, *(rule.approvers for rule in rules)):
                if approvers and all(one.startswith(ACCOUNT_PREFIX) for one in approvers):
                    raise ValueError(
                        f"nobody could approve plans of {name}: the approvers {', '.join(approvers)} are "
                        f"accounts, and command_approvals is {cluster.command_approvals.value}"
                    )
        return self

    @model_validator(mode="after")
    def _one_schedule(self) -> Policy:
        schedules = {cluster.schedule: name for name, cluster in self.clusters.items()}
        if self.group_clusters and len(schedules) > 1:
            first, second, *_ = schedules.values()
            raise ValueError(
                f"group_clusters: {first} and {second} have different schedules: make them equal, or use a "
                "policy file for each schedule"
            )
        return self

    def cycle_dag(self, cluster: str) -> str:
        """Return the id, without prefix, of the DAG that runs the cycles of a cluster."""
        return CYCLE_DAG if self.group_clusters else f"{CYCLE_DAG}__{cluster}"

    def approvers_of(self, cluster: str, group_id: str) -> tuple[str, ...] | None:
        """Return who may approve plans of a group: by its rule, else its cluster; None: nobody is named."""
        rule = self.rule_of(cluster, group_id)
        if rule is not None and rule.approvers is not None:
            return rule.approvers
        return self.clusters[cluster].approvers if cluster in self.clusters else None

    def group_settings(self, cluster: str, group_id: str) -> GroupSettings:
        """Return the settings of a group: of the first rule that matches, else the defaults (mode shadow)."""
        rule = self.rule_of(cluster, group_id)
        return self._at_most(GroupSettings() if rule is None else rule.settings)

    def rule_of(self, cluster: str, group_id: str) -> GroupRule | None:
        """Return the first rule that matches a group; None if the defaults apply."""
        return next((rule for rule in self.groups if rule.matches(cluster, group_id)), None)

    def secrets(
        self, clusters: Iterable[str] | None = None
    ) -> dict[str, tuple[SecretRef, Callable[[], object]]]:
        """Return the references to secrets of some clusters, or of all, by place, with what reads each."""
        storage = self.storage.values() if self.storage else {}
        found: dict[str, tuple[SecretRef, Callable[[], object]]] = {
            f"storage.{name}": (value, value.resolve)
            for name, value in storage.items()
            if isinstance(value, SecretRef)
        }
        for name in self.clusters if clusters is None else clusters:
            found |= {f"clusters.{name}.{key}": each for key, each in self.clusters[name].secrets().items()}
        return found

    def modes(self, cluster: str) -> set[Mode]:
        """Return the modes that the rules give to groups of a cluster."""
        return {
            min(rule.mode, self.max_mode, key=lambda mode: mode.rank)
            for rule in self.groups
            if cluster in (rule.clusters or (cluster,))
        }

    def publishes_to(self, cluster: str) -> bool:
        """Return whether a rule lets hints be published to a cluster."""
        return not self.modes(cluster) <= {Mode.OBSERVE, Mode.SHADOW}

    def _at_most(self, settings: GroupSettings) -> GroupSettings:
        if settings.mode.rank <= self.max_mode.rank:
            return settings
        return settings.changed(mode=self.max_mode)

    def __reduce__(self) -> tuple[Any, ...]:
        rules = tuple((rule.match, rule.clusters, self._at_most(rule.settings)) for rule in self.groups)
        return partial(PortablePolicy, rules=rules, default=self._at_most(GroupSettings())), ()


def render_schema() -> str:
    """Render the JSON schema of the policy file, for editors: sorted keys, and a newline at the end."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(),
        "title": "evenlag policy",
    }
    # Not required in the file: EVENLAG_LAKE may set it.
    schema["required"] = [name for name in schema["required"] if name != "lake"]
    _take_lists_as_text(schema["$defs"])
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _take_lists_as_text(definitions: dict[str, Any]) -> None:
    """Allow lists of clusters, brokers and approvers as one comma-separated text, too."""
    for model, name in (
        ("ClusterSettings", "bootstrap_servers"),
        ("ClusterSettings", "approvers"),
        ("GroupRule", "clusters"),
        ("GroupRule", "approvers"),
    ):
        field = definitions[model]["properties"][name]
        choices = field.pop("anyOf", None)
        if choices is None:
            array = {key: field.pop(key) for key in ("items", "minItems", "type") if key in field}
            choices = [array]
        field["anyOf"] = [*choices, {"type": "string", "minLength": 1}]
