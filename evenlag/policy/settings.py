"""The complete policy: the lake, its maintenance, comparisons, clusters and rules for groups.

The policy is validated once, when it is read. Each setting has its default, unit and range here, in
:mod:`~evenlag.policy.cluster_settings` or in :mod:`~evenlag.policy.group_settings`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from evenlag.enums import Mode
from evenlag.policy.cluster_settings import CLUSTER_NAME_PATTERN, ClusterSettings
from evenlag.policy.group_settings import GroupRule, GroupSettings
from evenlag.policy.portable_settings import unpack
from evenlag.policy.setting_types import SettingsModel, cron_expression, path_text


def _known_comparison(name: str) -> str:
    from evenlag.errors import PolicyError
    from evenlag.policy.candidates import parse_candidate

    try:
        return parse_candidate(name).name
    except PolicyError as error:
        raise ValueError(str(error)) from error


class Pauses(SettingsModel):
    """How long a simulated rebalance pauses a partition.

    The defaults were measured on the hint client at a heartbeat interval of 3 s (docs/hint-client.md).
    """

    eager_s: float = Field(default=1.5, ge=0, le=3_600, description="EAGER: every partition of the group")
    moved_s: float = Field(default=1.7, ge=0, le=3_600, description="COOPERATIVE: what changes hands")
    stall_s: float = Field(default=0.14, ge=0, le=3_600, description="COOPERATIVE: all others")


class ComparisonSettings(SettingsModel):
    """Candidates of the daily comparison; without it there is no comparison DAG."""

    policies: tuple[Annotated[str, AfterValidator(_known_comparison)], ...] = Field(
        default=("range", "cooperative-sticky", "lag-aware", "lag-aware-sticky"),
        min_length=1,
        description="NAME[:key=value,...]; what is not set comes from the group's rule",
    )
    schedule: Annotated[str, AfterValidator(cron_expression)] | None = Field(
        default="30 0 * * *", description="cron expression, null for manual runs only"
    )
    pauses: Pauses = Pauses()


class MaintenanceSettings(SettingsModel):
    """Daily maintenance of the lake; null disables the step of a setting, or the schedule."""

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
        description="days for which every snapshot is kept, then one an hour; null: permanently",
    )
    orphan_days: int | None = Field(
        default=3,
        ge=3,
        le=365,
        description="age at which rows of unfinished snapshots and plans are deleted; null: never",
    )
    vacuum_days: int | None = Field(
        default=7, ge=7, le=365, description="how long files that were replaced are kept; null: for good"
    )


class Policy(SettingsModel):
    """The complete policy file."""

    lake: Annotated[str, AfterValidator(path_text)] = Field(
        min_length=1, description="root folder of the Delta tables: a path or a Hadoop URI"
    )
    max_mode: Mode = Field(default=Mode.AUTO, description="upper limit for the mode of every group")
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
        """Return the settings of a group: of the first rule that matches, else the defaults (mode shadow).

        Parameters
        ----------
        cluster
            The cluster's name.
        group_id
            The group.

        Returns
        -------
        GroupSettings
            The settings in effect; their mode is at most ``max_mode``.
        """
        rule = self.rule_of(cluster, group_id)
        return self._at_most(GroupSettings() if rule is None else rule.settings)

    def rule_of(self, cluster: str, group_id: str) -> GroupRule | None:
        """Return the first rule that matches a group; None if the defaults apply.

        Parameters
        ----------
        cluster
            The cluster's name.
        group_id
            The group.

        Returns
        -------
        GroupRule or None
            The rule.
        """
        return next((rule for rule in self.groups if rule.matches(cluster, group_id)), None)

    def _at_most(self, settings: GroupSettings) -> GroupSettings:
        if settings.mode.rank <= self.max_mode.rank:
            return settings
        return settings.changed(mode=self.max_mode)

    def __reduce__(self) -> tuple[Any, ...]:
        rules = tuple((rule.match, rule.clusters, self._at_most(rule.settings)) for rule in self.groups)
        return unpack, ("PortablePolicy", {"rules": rules, "default": self._at_most(GroupSettings())})
