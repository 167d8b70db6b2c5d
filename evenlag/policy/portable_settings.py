"""Settings as executors get them: plain values with the settings' own methods.

Settings are validated where the policy is read, by pydantic, which executors do not have. Pickled, a settings
object becomes one of these: the same attributes, the same methods, nothing to validate.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from evenlag.enums import matches_pattern

if TYPE_CHECKING:
    from collections.abc import Mapping


class CommonMethods:
    """What each kind of settings can do, as validated and as portable values."""

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        raise NotImplementedError

    def canonical_json(self) -> str:
        """The settings as text: equal settings, equal text."""
        return json.dumps(plain_values(self), sort_keys=True, separators=(",", ":"))


class GroupMethods(CommonMethods):
    """What the settings of a group can do, as validated and as portable values."""

    def capacity_of(self, instance_id: str | None) -> float:
        """What a member can bear, relative to others: 1 without an instance id or a rule that matches."""
        for rule in self.values()["capacities"] if instance_id is not None else ():
            if matches_pattern(rule.match, str(instance_id)):
                return float(rule.capacity)
        return 1.0


class PortableSettings(CommonMethods):
    """Settings of any kind: their values as attributes, which stay as they are."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def values(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(self.__dict__)

    def changed(self, **values: Any) -> Self:
        """The same settings but for some values."""
        return type(self)(**self.values() | values)

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not there; it tells a type checker that any name may be.
        raise AttributeError(f"{type(self).__name__} has no setting {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"settings do not change: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.canonical_json())


class PortableGroupSettings(GroupMethods, PortableSettings):
    """What holds for a group."""


class PortablePolicy(PortableSettings):
    """The rules of a policy, resolved: what its clusters need to be reached does not travel.

    Attributes
    ----------
    rules
        (match, clusters or None, settings under the policy's ``max_mode``), in order.
    default
        What holds for a group that no rule matches.
    """

    def group_settings(self, cluster: str, group_id: str) -> PortableGroupSettings:
        """What holds for a group: the first rule that matches, else the defaults."""
        found: PortableGroupSettings = next(
            (
                settings
                for match, clusters, settings in self.rules
                if (clusters is None or cluster in clusters) and matches_pattern(match, group_id)
            ),
            self.default,
        )
        return found


_KINDS = {kind.__name__: kind for kind in (PortableSettings, PortableGroupSettings, PortablePolicy)}


def unpack(kind: str, values: Mapping[str, Any]) -> PortableSettings:
    """Make what a pickled settings object becomes; called by ``pickle``."""
    return _KINDS[kind](**values)


def plain_values(value: Any) -> Any:
    """Settings as what JSON knows: the same for validated and for portable ones."""
    if isinstance(value, CommonMethods):
        return {name: plain_values(item) for name, item in value.values().items()}
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_values(item) for item in value]
    return value.value if isinstance(value, Enum) else value
