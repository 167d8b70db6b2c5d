"""Candidates of a simulation: assignors with settings, as ``NAME[:key=value,…]``. No pyspark, no arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from assignor_core.objective import Load
from evenlag.errors import PolicyError
from evenlag.policy.gates import SIMULATED_GATES, GateSetting, RuleSetting
from evenlag.policy.portable_settings import canonical_text, plain_values

if TYPE_CHECKING:
    from assignor_core.assignors import Assignor, Parameter
    from evenlag.policy.group_settings import GroupSettings

OBSERVED: Final = "observed"
# Limits of the gates that a simulation applies: settings that a candidate with any assignor may change.
_LIMITS: Final = tuple(
    gate.limit for gate in SIMULATED_GATES if isinstance(gate.limit, RuleSetting | GateSetting)
)
_GATE_LIMITS: Final = tuple(limit.name for limit in _LIMITS if isinstance(limit, GateSetting))
_RULE_PARSERS: Final[dict[str, Callable[[str], Any]]] = {limit.name: limit.kind for limit in _LIMITS}
_LOAD: Final = "load"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An assignor with the settings that differ from the group's rule.

    name: ``NAME[:key=value,…]`` with sorted keys: equal candidates have equal names.
    changes: (key, value) of each setting, sorted by key.
    """

    name: str
    assignor: str
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def uses_lag(self) -> bool:
        """Whether it plans at every snapshot, and not only when the group rebalances anyway."""
        return _declared(self.assignor).uses_lag

    @property
    def protocol(self) -> str:
        """The rebalance protocol that its groups use."""
        return _declared(self.assignor).protocols[0]

    def settings_for(self, rule: GroupSettings) -> CandidateSettings:
        """Return the settings in effect for a group."""
        changed = dict(self.changes)
        declared = _declared(self.assignor)
        parameters = {
            parameter.name: changed.pop(parameter.name, parameter.in_simulations)
            for parameter in _own_parameters(declared)
            if parameter.name in changed or parameter.in_simulations is not None
        }
        if limits := _take_gate_limits(changed):
            changed["gates"] = rule.gates.changed(**limits)
        if _LOAD in changed:
            changed[_LOAD] = Load(changed[_LOAD])
        if not declared.uses_load:
            # The rule's load and capacities belong to another assignor.
            changed |= {_LOAD: Load.LAG, "capacities": ()}
        return CandidateSettings(rule.changed(**changed, assignor=self.assignor), parameters)


@dataclass(frozen=True, slots=True)
class CandidateSettings:
    """The settings of a candidate in one group.

    rule: The group's rule with the candidate's assignor and changes.
    parameters: Values of the assignor's parameters that a rule has no setting for, by name.
    """

    rule: GroupSettings
    parameters: Mapping[str, Any]

    def canonical_json(self) -> str:
        """Return the settings that affect a simulation as text: equal settings give equal text."""
        values: dict[str, Any] = {
            "assignor": self.rule.assignor,
            **{
                each.name: getattr(self.rule.gates if each.name in _GATE_LIMITS else self.rule, each.name)
                for each in _LIMITS
            },
            **self.parameters,
        }
        if _declared(self.rule.assignor).uses_load:
            values |= {_LOAD: self.rule.load.value, "capacities": plain_values(self.rule.capacities)}
        return canonical_text(values)


def parse_candidate(text: str) -> Candidate:
    """Parse ``NAME[:key=value,…]``.

    text: The name of an assignor, and settings: those of a rule that a simulation uses, ``load`` if the
        assignor uses the load, and the assignor's own parameters.

    Examples
    --------
    >>> parse_candidate("lag-aware-sticky: min_gain=0.10, count_slack=2").name
    'lag-aware-sticky:count_slack=2,min_gain=0.1'
    """
    from assignor_core.errors import AssignorError

    assignor, _, rest = text.strip().partition(":")
    assignor = assignor.strip()
    try:
        parsers = _parsers(_declared(assignor))
    except AssignorError as error:
        raise PolicyError(str(error)) from error
    changes: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, is_given, value = (piece.strip() for piece in part.partition("="))
        if key not in parsers or not is_given:
            raise PolicyError(
                f"{text}: {part!r} is not key=value with a key of {assignor}: {', '.join(sorted(parsers))}"
            )
        try:
            changes[key] = parsers[key](value)
        except ValueError:
            raise PolicyError(f"{text}: {key} cannot be {value!r}") from None
    _check(text, assignor, changes)
    ordered = tuple(sorted(changes.items()))
    settings = ",".join(f"{key}={value}" for key, value in ordered)
    return Candidate(f"{assignor}:{settings}" if settings else assignor, assignor, ordered)


def _declared(assignor: str) -> type[Assignor]:
    from assignor_core.assignors import find_assignor

    return find_assignor(assignor)


def _own_parameters(declared: type[Assignor]) -> tuple[Parameter, ...]:
    """The parameters that are not settings of a rule."""
    return tuple(parameter for parameter in declared.parameters if parameter.name not in _RULE_PARSERS)


def _parsers(declared: type[Assignor]) -> dict[str, Callable[[str], Any]]:
    own = {parameter.name: parameter.parse for parameter in _own_parameters(declared)}
    return _RULE_PARSERS | own | ({_LOAD: str} if declared.uses_load else {})


def _take_gate_limits(changes: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings that belong to a rule's ``gates``, and return them."""
    return {name: changes.pop(name) for name in _GATE_LIMITS if name in changes}


def _check(name: str, assignor: str, changes: dict[str, Any]) -> None:
    """Reject values out of range; no group's rule can make them valid."""
    from pydantic import ValidationError

    from assignor_core.errors import ProblemError
    from evenlag.policy.group_settings import GateLimits, GroupSettings

    given = dict(changes)
    try:
        for parameter in _own_parameters(_declared(assignor)):
            if parameter.name in given:
                parameter.check(given.pop(parameter.name))
        if limits := _take_gate_limits(given):
            given["gates"] = GateLimits(**limits)
        GroupSettings(**given, assignor=assignor)
    except ProblemError as error:
        raise PolicyError(f"{name}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = first["loc"][-1] if first["loc"] else assignor
        raise PolicyError(f"{name}: {key}: {first['msg'].removeprefix('Value error, ')}") from None
