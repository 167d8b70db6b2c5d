"""What is compared: assignors with settings, as ``NAME[:key=value,…]``; no pyspark, no arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import DEFAULT_ASSIGNOR, Load
from evenlag.errors import PolicyError
from evenlag.policy.gate_contract import GateSetting, RuleSetting
from evenlag.policy.gates import SIMULATED_GATES
from evenlag.policy.portable_settings import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlag.policy.settings import GroupSettings

OBSERVED: Final = "observed"
# Limits of the gates that a simulation applies.
_LIMITS: Final = tuple(
    gate.limit for gate in SIMULATED_GATES if isinstance(gate.limit, RuleSetting | GateSetting)
)
_GATE_LIMITS: Final = tuple(limit.name for limit in _LIMITS if isinstance(limit, GateSetting))
_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    **{limit.name: limit.kind for limit in _LIMITS},
    "load": str,
    "effort": int,
}
# These go with lag-aware-sticky only.
_OWN_KEYS: Final = ("load", "effort")
# What plans by lag is asked at every reading; any other assignor at rebalances only, as in Kafka.
_PLANS_BY_LAG: Final = frozenset({"lag-aware", DEFAULT_ASSIGNOR})


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """An assignor with what is set for it; all else comes from the group's rule.

    Attributes
    ----------
    name
        ``NAME[:key=value,…]`` with the keys in order: equal policies, equal names.
    assignor
        Its name.
    changes
        (key, value) of what is set, in order of the keys.
    """

    name: str
    assignor: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def plans_by_lag(self) -> bool:
        """Whether it is asked at every reading, and not only when the group rebalances anyway."""
        return self.assignor in _PLANS_BY_LAG

    def settings_for(self, rule: GroupSettings) -> CandidateSettings:
        """The settings in effect for a group whose rule is given; the values were checked with the name."""
        changed = dict(self.changes)
        effort = changed.pop("effort", 0)
        if limits := _take_gate_limits(changed):
            changed["gates"] = rule.gates.changed(**limits)
        if "load" in changed:
            changed["load"] = Load(changed["load"])
        if self.assignor != DEFAULT_ASSIGNOR:
            # Only lag-aware-sticky knows these; the rule is for it, or has none of them.
            changed |= {"load": Load.LAG, "capacities": ()}
        return CandidateSettings(rule.changed(**changed, assignor=self.assignor), effort)


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """What a policy works by in one group.

    Attributes
    ----------
    rule
        The group's rule with the assignor and what is set for it.
    effort
        How long `lag-aware-sticky` searches: see its parameter of that name.
    """

    rule: GroupSettings
    effort: int = 0

    def canonical_json(self) -> str:
        """What matters to a comparison, as text: equal settings, equal text."""
        told: dict[str, Any] = {
            "assignor": self.rule.assignor,
            **{
                limit.name: getattr(
                    self.rule.gates if isinstance(limit, GateSetting) else self.rule, limit.name
                )
                for limit in _LIMITS
            },
        }
        if self.rule.assignor == DEFAULT_ASSIGNOR:
            capacities = plain_values(self.rule.capacities)
            told |= {"load": self.rule.load.value, "capacities": capacities, "effort": self.effort}
        return json.dumps(told, sort_keys=True, separators=(",", ":"))


def parse_policy_name(text: str) -> ComparedPolicy:
    """Read ``NAME[:key=value,…]``.

    Raises
    ------
    PolicyError
        When there is no such assignor or key, or a value is not valid; it says which, and what there is.

    Examples
    --------
    >>> parse_policy_name("lag-aware-sticky: min_gain=0.10, count_slack=2").name
    'lag-aware-sticky:count_slack=2,min_gain=0.1'
    """
    from assignor_core.assignors import get_assignor
    from assignor_core.errors import UnknownAssignorError

    assignor, _, rest = text.strip().partition(":")
    assignor = assignor.strip()
    try:
        get_assignor(assignor)
    except UnknownAssignorError as error:
        raise PolicyError(str(error)) from error
    changes: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, is_given, value = (piece.strip() for piece in part.partition("="))
        if key not in _PARSERS or not is_given:
            raise PolicyError(
                f"{text}: {part!r} is not key=value with a key of: {', '.join(sorted(_PARSERS))}"
            )
        if key in _OWN_KEYS and assignor != DEFAULT_ASSIGNOR:
            raise PolicyError(f"{text}: {key} goes with the assignor {DEFAULT_ASSIGNOR}")
        try:
            changes[key] = _PARSERS[key](value)
        except ValueError:
            raise PolicyError(f"{text}: {key} cannot be {value!r}") from None
    _check(text, assignor, changes)
    ordered = tuple(sorted(changes.items()))
    told = ",".join(f"{key}={value}" for key, value in ordered)
    return ComparedPolicy(f"{assignor}:{told}" if told else assignor, assignor, ordered)


def _take_gate_limits(changes: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings that belong into a rule's ``gates``, and return them."""
    return {name: changes.pop(name) for name in _GATE_LIMITS if name in changes}


def _check(name: str, assignor: str, changes: dict[str, Any]) -> None:
    """Refuse a value that is out of its range; what a group's rule has cannot make it a valid one."""
    from pydantic import ValidationError

    from evenlag.policy.settings import GateLimits, GroupSettings

    given = dict(changes)
    if given.pop("effort", 0) < 0:
        raise PolicyError(f"{name}: effort cannot be negative: {changes['effort']}")
    try:
        if limits := _take_gate_limits(given):
            given["gates"] = GateLimits(**limits)
        GroupSettings(**given, assignor=assignor)
    except ValidationError as error:
        first = error.errors()[0]
        key = first["loc"][-1] if first["loc"] else assignor
        raise PolicyError(f"{name}: {key}: {first['msg'].removeprefix('Value error, ')}") from None
