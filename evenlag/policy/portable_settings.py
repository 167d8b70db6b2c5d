"""Settings for executors: plain values with the methods of the settings.

pydantic validates settings where the policy is read; executors do not have pydantic. A pickled settings
object becomes one of these: the same attributes and methods, without validation.
"""

import hashlib
import hmac
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Self

from assignor_core.objective import Load
from evenlag.enums import Disclosure, Mode, OnChange
from evenlag.name_patterns import matches_pattern
from evenlag.policy.gates import count_slack_of

MEASURED: Final = "measured"
"""The value of ``capacities`` that stands for measured speeds."""


class CommonMethods:
    """Methods of all kinds of settings, validated and portable."""

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        raise NotImplementedError

    def canonical_json(self) -> str:
        """Return the settings as text: equal settings give equal text."""
        return canonical_text(plain_values(self))


class GroupMethods(CommonMethods):
    """Methods of the settings of a group, validated and portable."""

    @property
    def publishes_loads(self) -> bool:
        """Whether loads are published: in mode ``approve`` only if the rule asks for it.

        A person approves each plan in that mode, and loads move partitions without a plan.
        """
        values = self.values()
        if values["mode"] is Mode.AUTO:
            return values["on_change"] is not OnChange.COUNTS
        return values["mode"] is Mode.APPROVE and values["on_change"] is OnChange.LOADS

    @property
    def slack(self) -> int:
        """By how much more than 1 partition counts of members may differ."""
        return count_slack_of(self.values())

    @property
    def plan_horizon_s(self) -> int:
        """How far ahead plans look."""
        values = self.values()
        chosen = values["horizon_s"]
        return int(values["back_off"].horizon_s if chosen is None else chosen)

    def capacity_of(self, instance_id: str | None) -> float:
        """Return a member's capacity relative to others: 1 without an instance id or a matching rule."""
        [found] = self.configured_capacities([instance_id])
        return 1.0 if math.isnan(found) else found

    def configured_capacities(self, instance_ids: Iterable[str | None]) -> list[float]:
        """Return the capacity that a rule gives each member; NaN without one."""
        rules = self.values()["capacities"]

        def of_member(instance_id: str | None) -> float:
            if instance_id is None or rules == MEASURED:
                return math.nan
            found = (rule.capacity for rule in rules if matches_pattern(rule.match, str(instance_id)))
            return float(next(found, math.nan))

        return list(map(of_member, instance_ids))

    @property
    def uses_measured_speeds(self) -> bool:
        """Whether the speeds that were measured count for the members without a configured capacity."""
        values = self.values()
        is_asked = values["capacities"] == MEASURED
        return is_asked or values["load"] is Load.TIME or values["mode"] is Mode.SHADOW


class PortableSettings(CommonMethods):
    """Settings of any kind, with their values as attributes. Immutable."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return dict(self.__dict__)

    def changed(self, **values: Any) -> Self:
        """Return a copy of the settings with some values changed."""
        return type(self)(**self.values() | values)

    def __getattr__(self, name: str) -> Any:
        # Called for missing names only; declares to type checkers that any name may exist.
        raise AttributeError(f"{type(self).__name__} has no setting {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.canonical_json())


class PortableGroupSettings(GroupMethods, PortableSettings):
    """Settings in effect for a group."""


class PortablePolicy(PortableSettings):
    """The resolved rules of a policy, without the connection settings of its clusters.

    rules: (match, clusters or None, settings limited by the policy's ``max_mode``), in order.
    default: Settings of a group that no rule matches.
    """

    def group_settings(self, cluster: str, group_id: str) -> PortableGroupSettings:
        """Return the settings of a group: of the first rule that matches, else the defaults."""
        found: PortableGroupSettings = next(
            (
                settings
                for match, clusters, settings in self.rules
                if (clusters is None or cluster in clusters) and matches_pattern(match, group_id)
            ),
            self.default,
        )
        return found


def plain_values(value: Any) -> Any:
    """Return settings as JSON values: equal for validated and portable settings."""
    if isinstance(value, CommonMethods):
        return {name: plain_values(item) for name, item in value.values().items()}
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def canonical_text(values: Any) -> str:
    """Return JSON values as text: equal values give equal text."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


# The prefix distinguishes hashes from names. 80 bits keep a hash short enough for people to compare.
PREFIX: Final = "~"
_HEX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Pseudonymizer:
    """Hides columns of rows. Plain values only, so that a task's closure can carry it to an executor.

    columns: What to do with a column, by its name; other columns stay.
    """

    columns: Mapping[str, str]
    key: bytes = field(default=b"", repr=False)

    def apply(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return copies of the rows with hidden columns, the same rows if there are none; null stays null."""
        if not self.columns:
            return rows
        copies = [dict(row) for row in rows]
        for name, how in self.columns.items():
            hidden: dict[str, str | None] = {}
            for row in copies:
                value = row.get(name)
                if value is None:
                    continue
                # Many members, few hosts: each host is hashed once.
                if value not in hidden:
                    hidden[value] = self._hash(name, value) if how == Disclosure.HASH else None
                row[name] = hidden[value]
        return copies

    def _hash(self, name: str, value: str) -> str:
        """Hash a value; the same value in two columns has two hashes."""
        digest = hmac.new(self.key, f"{name}\0{value}".encode(), hashlib.sha256).hexdigest()
        return PREFIX + digest[:_HEX_DIGITS]
