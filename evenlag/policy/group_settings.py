"""Settings of consumer groups: mode, assignor, limits of the gates, and the rules that select groups.

Each setting has its default, unit and range here.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from assignor_core.objective import Load
from evenlag.enums import DEFAULT_ASSIGNOR, IsolationLevel, Mode, OnChange
from evenlag.name_patterns import check_pattern, matches_pattern
from evenlag.policy.gates import GATE_SETTINGS
from evenlag.policy.portable_settings import GroupMethods, unpack
from evenlag.policy.setting_types import (
    Approvers,
    ResetSetting,
    SettingsModel,
    known_assignor,
    one_or_many,
    uses_load,
)

if TYPE_CHECKING:

    class _GateSettings(SettingsModel):
        def __getattr__(self, name: str) -> Any: ...

else:
    # Declared by the entries of GATES.
    _GateSettings = create_model(
        "_GateSettings",
        __base__=SettingsModel,
        **{
            limit.name: (
                limit.kind,
                Field(
                    default=limit.default,
                    description=limit.description,
                    ge=limit.ge,
                    gt=limit.gt,
                    le=limit.le,
                    lt=limit.lt,
                ),
            )
            for limit in GATE_SETTINGS
        },
    )


class GateLimits(_GateSettings):
    """Limits of the gates; a plan that exceeds one is rejected."""

    min_breaches: int = Field(
        default=1, ge=1, le=1_000, description="consecutive snapshots that must require a change for a plan"
    )


class BackOff(SettingsModel):
    """When plans are evaluated, and when planning pauses for a group whose plans did not help."""

    horizon_s: int = Field(
        default=1_800, ge=10, le=604_800, description="time from publishing to the evaluation of a plan"
    )
    after: int = Field(
        default=3, ge=0, le=1_000, description="consecutive plans that did not pay off; 0: never back off"
    )
    rest_s: int = Field(
        default=86_400,
        ge=10,
        le=31_536_000,
        description="how long the group backs off, from the slot of the last evaluation",
    )


class CapacityRule(SettingsModel):
    """Capacity of the members whose instance id matches, relative to the other members (1)."""

    match: Annotated[str, AfterValidator(check_pattern), Field(min_length=1)] = Field(
        description="an instance id, a glob, or a regular expression between slashes"
    )
    capacity: float = Field(
        gt=0,
        le=1_000_000,
        allow_inf_nan=False,
        description="what such a member can process, relative to others",
    )


class GroupSettings(GroupMethods, SettingsModel):
    """Settings of the groups that a rule matches."""

    mode: Mode = Field(default=Mode.SHADOW, description="what evenlag may do for the groups")
    assignor: Annotated[str, AfterValidator(known_assignor)] = Field(
        default=DEFAULT_ASSIGNOR, description="the assignor that plans them"
    )
    load: Load = Field(
        default=Load.LAG, description="load to balance: lag, arrival rate, or the sum of the shares of both"
    )
    capacities: tuple[CapacityRule, ...] = Field(
        default=(), description="capacity of members by instance id: of the first match, else 1"
    )
    max_moves: int = Field(
        default=1_000, ge=0, le=10_000_000, description="maximum number of partitions that leave a live owner"
    )
    count_slack: int = Field(
        default=0, ge=0, le=1_000_000, description="partition counts of members may differ by 1 + this"
    )
    min_gain: float = Field(
        default=0.05, ge=0, lt=1, description="minimum relative decrease of the largest member load"
    )
    reset_policy: ResetSetting | None = Field(
        default=None, description="auto.offset.reset of their consumers, which Kafka does not report"
    )
    isolation_level: IsolationLevel | None = Field(
        default=None, description="isolation.level of their consumers, which Kafka does not report"
    )
    hint_ttl_s: int = Field(
        default=900,
        ge=10,
        le=604_800,
        description="how long a hint may start a rebalance, and the maximum age of a plan at publishing",
    )
    on_change: OnChange | None = Field(
        default=None,
        description="how members place partitions when they change: by loads that are published, or by "
        "counts; null: loads in mode auto, counts in mode approve",
    )
    loads_valid_minutes: int = Field(
        default=30, ge=1, le=1_440, description="how long published loads hold, from their measurement"
    )
    approval_timeout_s: int = Field(
        default=3_600, ge=60, le=604_800, description="how long a plan waits for approval before it expires"
    )
    gates: GateLimits = Field(default=GateLimits(), description="limits that a plan must keep")
    back_off: BackOff = Field(
        default=BackOff(), description="when a group whose plans did not help is planned in shadow"
    )

    @model_validator(mode="after")
    def _load_has_its_assignor(self) -> Self:
        for name, is_set in (("load", self.load is not Load.LAG), ("capacities", bool(self.capacities))):
            if is_set and not uses_load(self.assignor):
                raise ValueError(f"{name} has no effect: the assignor {self.assignor} does not use the load")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return unpack, ("PortableGroupSettings", self.values())


class GroupRule(GroupSettings):
    """A rule: the groups (``match``) and clusters (all if not set) that it applies to, and their settings.

    ``match`` is an exact name, a glob (``payments-*``), or a regular expression between slashes
    (``/payments-[0-9]+/``) that must match the complete name.
    """

    match: Annotated[str, AfterValidator(check_pattern), Field(min_length=1)] = Field(
        description="a group id, a glob (payments-*), or a regular expression between slashes"
    )
    clusters: Annotated[tuple[str, ...], BeforeValidator(one_or_many)] | None = Field(
        default=None, description="clusters that the rule is for; null: all"
    )
    # Not a setting of the groups: who decides changes no plan, and resets no count of the back-off.
    approvers: Approvers | None = Field(
        default=None, description="who may approve plans of these groups; null: the cluster's approvers"
    )

    def matches(self, cluster: str, group_id: str) -> bool:
        """Return whether the rule matches a group of a cluster."""
        if self.clusters is not None and cluster not in self.clusters:
            return False
        return matches_pattern(self.match, group_id)

    @cached_property
    def settings(self) -> GroupSettings:
        """The rule without its ``match``, ``clusters`` and ``approvers``."""
        return GroupSettings(**{name: getattr(self, name) for name in GroupSettings.model_fields})
