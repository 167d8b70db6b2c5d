"""Settings of consumer groups: mode, assignor, limits of the gates, and the rules that select groups.

Each setting has its default, unit and range here.
"""

from __future__ import annotations

import json
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from assignor_core.objective import Load
from evenlag.enums import DEFAULT_ASSIGNOR, IsolationLevel, Mode, OnChange
from evenlag.name_patterns import check_pattern, matches_pattern
from evenlag.policy.gates import GATE_SETTINGS, UNLIMITED, cooldown_of, count_slack_of
from evenlag.policy.portable_settings import GroupMethods, PortableGroupSettings, canonical_text, plain_values
from evenlag.policy.setting_types import (
    Approvers,
    ResetSetting,
    SettingsModel,
    known_assignor,
    one_or_many,
    setting,
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
                limit.kind if limit.default is not None else limit.kind | None,
                setting(limit.default, limit.description, ge=limit.ge, le=limit.le),
            )
            for limit in GATE_SETTINGS
        },
    )


class GateLimits(_GateSettings):
    """Limits of the gates; a plan that exceeds one is rejected."""

    min_breaches: int = setting(
        1, "consecutive snapshots that must require a change for a plan", ge=1, le=1_000
    )


class BackOff(SettingsModel):
    """When plans are evaluated, and when planning pauses for a group whose plans did not help."""

    horizon_s: int = setting(1_800, "time from publishing to the evaluation of a plan", ge=10, le=604_800)
    after: int = setting(3, "consecutive plans that did not pay off; 0: never back off", ge=0, le=1_000)
    rest_s: int = setting(
        86_400, "how long the group backs off, from the slot of the last evaluation", ge=10, le=31_536_000
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


def _none_if_null(value: Any) -> Any:
    return () if value is None else value


class GroupSettings(GroupMethods, SettingsModel):
    """Settings of the groups that a rule matches."""

    mode: Mode = setting(Mode.SHADOW, "what evenlag may do for the groups")
    assignor: Annotated[str, AfterValidator(known_assignor)] = setting(
        DEFAULT_ASSIGNOR, "the assignor that plans them"
    )
    load: Load = setting(
        Load.LAG,
        "load to balance: lag, arrival rate, the sum of the shares of both, or the time that records wait",
    )
    capacities: Annotated[tuple[CapacityRule, ...] | Literal["measured"], BeforeValidator(_none_if_null)] = (
        setting(
            (),
            "capacity of members by instance id, of the first match; the speed of others is measured in mode "
            "`shadow` and with `load: time`, or if the value is `measured`, else 1",
        )
    )
    max_moves: int = setting(
        1_000, "maximum number of partitions that leave a live owner", ge=0, le=10_000_000
    )
    count_slack: int | None = setting(
        None,
        "partition counts of members may differ by 1 + this; null: 0, unlimited with `load: time`",
        ge=0,
        le=UNLIMITED,
    )
    min_gain: float = setting(
        0.05,
        "minimum relative decrease of the largest member load, or with `load: time` of the record-seconds of "
        "what can be processed within the horizon",
        ge=0,
        lt=1,
    )
    min_saved_record_s: float = setting(
        100.0,
        "minimum record-seconds that a plan must save, less what it costs, where speeds are known",
        ge=0,
        le=1e15,
    )
    move_cost_s: float = setting(
        0.0,
        "how long a moved partition is not processed beyond the rebalance, e.g. to restore caches and state",
        ge=0,
        le=86_400,
    )
    horizon_s: int | None = setting(
        None, "how far ahead plans look; null: back_off.horizon_s", ge=10, le=604_800
    )
    rack_tolerance: float = setting(
        0.02,
        "share by which the largest member load may exceed the least found, so that members read less load "
        "across racks",
        ge=0,
        lt=1,
    )
    together: tuple[Annotated[tuple[str, ...], Field(min_length=2)], ...] = setting(
        (), "lists of topics whose equal partition numbers stay with one member, as with range"
    )
    reset_policy: ResetSetting | None = setting(
        None, "auto.offset.reset of their consumers, which Kafka does not report"
    )
    isolation_level: IsolationLevel | None = setting(
        None, "isolation.level of their consumers, which Kafka does not report"
    )
    target_wait_s: int | None = setting(
        None,
        "how long records may wait, for plans with `load: time`, advice and alerts; null: no target",
        ge=1,
        le=604_800,
    )
    hint_ttl_s: int = setting(
        900,
        "how long a hint may start a rebalance, and the maximum age of a plan at publishing",
        ge=10,
        le=604_800,
    )
    on_change: OnChange | None = setting(
        None,
        "how members place partitions when they change: by loads that are published, or by "
        "counts; null: loads in mode auto, counts in mode approve",
    )
    loads_valid_minutes: int = setting(
        30, "how long published loads hold, from their measurement", ge=1, le=1_440
    )
    approval_timeout_s: int = setting(
        3_600, "how long a plan waits for approval before it expires", ge=60, le=604_800
    )
    gates: GateLimits = setting(GateLimits(), "limits that a plan must keep")
    back_off: BackOff = setting(BackOff(), "when a group whose plans did not help is planned in shadow")

    @model_validator(mode="after")
    def _load_has_its_assignor(self) -> Self:
        for name, is_set in (("load", self.load is not Load.LAG), ("capacities", bool(self.capacities))):
            if is_set and not uses_load(self.assignor):
                raise ValueError(f"{name} has no effect: the assignor {self.assignor} does not use the load")
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PortableGroupSettings, **self.values()), ()


class GroupRule(GroupSettings):
    """A rule: the groups (``match``) and clusters (all if not set) that it applies to, and their settings.

    ``match`` is an exact name, a glob (``payments-*``), or a regular expression between slashes
    (``/payments-[0-9]+/``) that must match the complete name.
    """

    match: Annotated[str, AfterValidator(check_pattern), Field(min_length=1)] = Field(
        description="a group id, a glob (payments-*), or a regular expression between slashes"
    )
    clusters: Annotated[tuple[str, ...], BeforeValidator(one_or_many)] | None = setting(
        None, "clusters that the rule is for; null: all"
    )
    # Not a setting of the groups: who decides changes no plan, and resets no count of the back-off.
    approvers: Approvers | None = setting(
        None, "who may approve plans of these groups; null: the cluster's approvers"
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


def complete_settings_text(text: str) -> str:
    """Complete the canonical text of an earlier version by the defaults of the settings that it had not yet.

    So settings that nobody has set compare as equal before and after an upgrade.
    """
    found = json.loads(text)
    for name, default in plain_values(GroupSettings()).items():
        found[name] = (
            {**default, **found.get(name, {})} if isinstance(default, dict) else found.get(name, default)
        )
    # Nulls that stand for a default compare as what they stand for.
    found["count_slack"] = count_slack_of(found)
    found["gates"]["cooldown_s"] = cooldown_of(found, None)
    return canonical_text(found)
