"""The gates: a plan must pass all of them before it may be approved.

To add a gate, add an entry here and its failing plan to the tests. Derived from an entry: its setting in a
rule's ``gates``, its expectation, its rows in ``gate_results``, whether a failure raises an alert, how a
simulation applies it, and its rows in ``docs/gates.md``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from assignor_core.objective import Load
from evenlag.enums import EVENLAG_ASSIGNOR, HINTABLE_TYPES, GroupState, Mode


class Comparison(StrEnum):
    """How an observed value must compare to its limit."""

    EQUAL = "equal"
    AT_MOST = "at_most"
    AT_LEAST = "at_least"

    def holds(self, observed: Any, allowed: Any) -> bool:
        """Return whether a known value is within its limit."""
        if self is Comparison.EQUAL:
            return bool(observed == allowed)
        return bool(observed <= allowed) if self is Comparison.AT_MOST else bool(observed >= allowed)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A limit that no setting changes."""

    value: Any

    def allowed(self, _settings: Mapping[str, Any], _plan: Mapping[str, Any]) -> Any:
        """Return the limit: always the same value."""
        return self.value


_COUNT_SLACK: Final = "count_slack"
# The largest value of the setting: no group has so many partitions that it could differ by more.
UNLIMITED: Final = 1_000_000
_COOLDOWN_S: Final = 600
# After so many times as long as the group takes to follow a plan it may get the next one.
_FOLLOW_TIMES: Final = 2


def count_slack_of(settings: Mapping[str, Any]) -> int:
    """Return by how much more than 1 counts may differ: a default that depends on the load."""
    value = settings[_COUNT_SLACK]
    return (UNLIMITED if settings["load"] == Load.TIME else 0) if value is None else int(value)


def cooldown_of(settings: Mapping[str, Any], follow_ms: float | None) -> Any:
    """Return the time between two hints of a group that takes so long to follow one."""
    value = settings["gates"]["cooldown_s"]
    if value is not None:
        return value
    if settings["load"] != Load.TIME or is_unknown(follow_ms):
        return _COOLDOWN_S
    return _FOLLOW_TIMES * float(follow_ms or 0) / 1000


@dataclass(frozen=True, slots=True)
class RuleSetting:
    """A limit that is a setting of the group's rule, declared there because the planner uses it too.

    kind: Its type, ``int`` or ``float``.
    """

    name: str
    kind: type
    plus: int = 0

    def allowed(self, settings: Mapping[str, Any], _plan: Mapping[str, Any]) -> Any:
        """Return the limit for a group, of its settings as plain values."""
        value = count_slack_of(settings) if self.name == _COUNT_SLACK else settings[self.name]
        return value + self.plus


@dataclass(frozen=True, slots=True)
class GateSetting:
    """A limit that only its gate uses. It declares the setting of this name in a rule's ``gates``.

    default: Its default; the type of the default is the type of the setting, that of None is `int`.
    ge, le: Its bounds, as pydantic names them; None for no bound.
    inputs, resolve: Of a setting whose default depends on the plan: computes the limit of the group's
        settings, as plain values, and the values of these inputs.
    """

    name: str
    default: int | float | None
    description: str
    ge: float | None = None
    le: float | None = None
    inputs: tuple[str, ...] = ()
    resolve: Callable[..., Any] | None = None

    @property
    def kind(self) -> type:
        """The type of a value."""
        return int if self.default is None else type(self.default)

    def allowed(self, settings: Mapping[str, Any], plan: Mapping[str, Any]) -> Any:
        """Return the limit for a group, of its settings as plain values."""
        if self.resolve is not None:
            return self.resolve(settings, *(plan[name] for name in self.inputs))
        return settings["gates"][self.name]


@dataclass(frozen=True, slots=True)
class PlanLimit:
    """A limit that is computed from the plan's own inputs.

    compute: Computes the limit from the values of `inputs`, in that order; an input may be None or NaN.
    """

    inputs: tuple[str, ...]
    compute: Callable[..., Any]

    def allowed(self, _settings: Mapping[str, Any], plan: Mapping[str, Any]) -> Any:
        """Return the limit for a plan."""
        return self.compute(*(plan[name] for name in self.inputs))


Limit = Fixed | RuleSetting | GateSetting | PlanLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What gates and the checks of a snapshot have in common: an observed value that must compare to a limit.

    table: The table that it checks; empty: a plan.
    fails_when: When it fails, for the pages.
    observed: Name of the observed value.
    message: Message of a failure, with the fields ``{observed}`` and ``{allowed}``.
    comparison: How the value must compare to the limit. An unknown value fails, unless `null_passes`.
    """

    name: str = field(kw_only=False)
    table: str = field(default="", kw_only=False)
    fails_when: str
    observed: str
    message: str
    comparison: Comparison = Comparison.EQUAL
    null_passes: bool = False

    @property
    def limit_column(self) -> str:
        """Name of the column with the limits, next to that of the observed values."""
        return f"allowed_{self.name}"

    def explain(self, observed: Any, allowed: Any) -> str:
        """Describe a failure by the value, None or NaN if it is unknown, and its limit."""
        if is_unknown(observed):
            return f"{self.observed} is not known, so {self.name} cannot be passed"
        return self.message.format(observed=observed, allowed=allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate(Entry):
    """One gate; an unknown value passes where e.g. a group without a previous hint has no cooldown.

    inputs: Inputs of a plan from which the observed value is computed: columns of ``plans``, measures of
        its ``metrics_before`` and ``metrics_after`` as ``before_…`` and ``after_…``, and the columns that
        ``evenlag.planning.gate_inputs`` adds. Empty: the input with the name `observed`.
    compute: Computes the observed value from the values of `inputs`, in that order. It must work on single
        numbers and on arrays with one element per plan, so it may use arithmetic only. None: the input
        itself.
    is_routine: Whether healthy groups fail it regularly. A plan that fails only such gates raises no alert.
    is_of_hint: Whether it is about how a hint is followed; see :func:`skipped_gates`.
    not_simulated: Why simulations do not apply the gate; None if they do.
    """

    limit: Limit = Fixed(0)
    inputs: tuple[str, ...] = ()
    compute: Callable[..., Any] | None = None
    is_routine: bool = False
    is_of_hint: bool = False
    not_simulated: str | None = None

    @property
    def observed_inputs(self) -> tuple[str, ...]:
        """Inputs of the observed value, in the order in which `compute` takes them."""
        return self.inputs or (self.observed,)

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """Inputs of the observed value and of the limit."""
        limit = self.limit
        return self.observed_inputs + (limit.inputs if isinstance(limit, PlanLimit | GateSetting) else ())

    def observe(self, plan: Mapping[str, Any]) -> Any:
        """Compute the observed value: a number, or an array with one element per plan, as the inputs are."""
        values = [plan[name] for name in self.observed_inputs]
        if self.compute is None:
            return values[0]
        return None if any(value is None for value in values) else self.compute(*values)

    def passes(self, settings: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
        """Evaluate the gate for one plan, with the group's settings as plain values."""
        observed = self.observe(plan)
        if is_unknown(observed):
            return self.null_passes
        return self.comparison.holds(observed, self.limit.allowed(settings, plan))


def is_unknown(value: Any) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or bool(value != value)  # noqa: PLR0124 - only NaN is not equal to itself


# Kafka's default, for a hint topic that does not exist yet.
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
# Size of a record without the payload: the hint's envelope, the key, the headers of record and batch.
HINT_OVERHEAD_BYTES: Final = 2_048

_BY_CONSTRUCTION: Final = "the assignors of a simulation make valid plans only"
_OF_THE_MOMENT: Final = "it depends on the moment of the decision, which a simulation does not have"
_OF_THE_HINT: Final = "a simulation publishes no hint"


def _payload_limit(hint_topic_max_bytes: Any) -> int:
    is_known = not is_unknown(hint_topic_max_bytes)
    return (int(hint_topic_max_bytes) if is_known else DEFAULT_MAX_MESSAGE_BYTES) - HINT_OVERHEAD_BYTES


def _hintable_type(group_type: Any) -> str:
    """The group's type if hints support it, otherwise all supported types."""
    return str(group_type) if group_type in HINTABLE_TYPES else " or ".join(HINTABLE_TYPES)


GATES: Final = (
    Gate(
        "no_duplicates",
        fails_when="a partition is in the plan twice",
        observed="num_duplicates",
        message="{observed} partitions are in the plan twice",
        not_simulated=_BY_CONSTRUCTION,
    ),
    Gate(
        "complete",
        fails_when="a partition of a topic that a member subscribes to has no owner",
        observed="num_missing",
        message="{observed} partitions of subscribed topics have no owner",
        not_simulated=_BY_CONSTRUCTION,
    ),
    Gate(
        "valid_owners",
        fails_when="an owner is not a member, or does not subscribe to the topic",
        observed="num_invalid_owners",
        message="{observed} partitions have an owner that is not a member or does not subscribe to the topic",
        not_simulated=_BY_CONSTRUCTION,
    ),
    Gate(
        "no_violations",
        fails_when="the checker of `assignor_core` finds a violation",
        observed="num_violations",
        message="the checker finds {observed} violations; see the plan's violations",
        not_simulated=_BY_CONSTRUCTION,
    ),
    Gate(
        "count_slack",
        fails_when="a partition could go to a member with more than 1 + `count_slack` fewer",
        observed="count_gap",
        comparison=Comparison.AT_MOST,
        limit=RuleSetting("count_slack", int, plus=1),
        message="a partition could go to a member that has {observed} fewer, at most {allowed} is allowed",
    ),
    Gate(
        "max_moves",
        fails_when="more partitions leave a live owner than `max_moves`",
        observed="moves",
        comparison=Comparison.AT_MOST,
        limit=RuleSetting("max_moves", int),
        message="moves {observed} partitions, at most {allowed} are allowed",
    ),
    Gate(
        "min_gain",
        fails_when="the load of the most loaded member falls by less than `min_gain`, unless the plan "
        "places free partitions, unites topics or evens out counts",
        observed="gain",
        comparison=Comparison.AT_LEAST,
        limit=RuleSetting("min_gain", float),
        message="lowers the largest lag of a member by {observed:.1%}, at least {allowed:.1%} is required",
        null_passes=True,
        is_routine=True,
    ),
    Gate(
        "saves_time",
        fails_when="records are expected to wait longer with the plan, its own cost included, than without",
        observed="record_s_net",
        inputs=("record_s_saved", "record_s_cost"),
        compute=lambda saved, cost: saved - cost,
        comparison=Comparison.AT_LEAST,
        message="saves {observed:,.0f} record-seconds within the horizon beyond what it costs, at least "
        "{allowed} are required",
        null_passes=True,
        is_routine=True,
    ),
    Gate(
        "cross_rack",
        fails_when="the share of the load that members read across racks rises by more than "
        "`max_cross_rack_rise`",
        observed="cross_rack_rise",
        inputs=("across_racks_before", "across_racks_after"),
        compute=lambda before, after: after - before,
        comparison=Comparison.AT_MOST,
        limit=GateSetting(
            "max_cross_rack_rise", 1.0, "rise of the share of the load that is read across racks", ge=0, le=1
        ),
        message="reads {observed:.0%} more of the load across racks, at most {allowed:.0%} is allowed",
        null_passes=True,
        not_simulated="a simulation knows no racks",
    ),
    Gate(
        "lag_known",
        fails_when="the lag of any planned partition is null",
        observed="num_unknown_partitions",
        message="the lag of {observed} partitions is not known",
        not_simulated="partitions with unknown lag keep their owner, and the simulated lag stays known",
    ),
    Gate(
        "snapshot_fresh",
        fails_when="the snapshot ended more than `max_snapshot_age_s` ago",
        observed="snapshot_age_s",
        comparison=Comparison.AT_MOST,
        limit=GateSetting(
            "max_snapshot_age_s", 900, "maximum age of the snapshot at the decision", ge=1, le=86_400
        ),
        message="the snapshot is {observed:.0f} s old, at most {allowed} s are allowed",
        not_simulated=_OF_THE_MOMENT,
    ),
    Gate(
        "group_stable",
        fails_when="the group's state is not Stable",
        observed="group_state",
        limit=Fixed(GroupState.STABLE.value),
        message="the group is {observed}, not {allowed}",
        not_simulated="a rebalancing group is never planned",
    ),
    Gate(
        "hint_protocol",
        fails_when="the group's type is neither classic nor consumer (KIP-848)",
        observed="group_type",
        limit=PlanLimit(("group_type",), _hintable_type),
        message="the group speaks the {observed} protocol, hints need {allowed}",
        is_of_hint=True,
        not_simulated=_OF_THE_HINT,
    ),
    Gate(
        "hint_assignor",
        fails_when=f"the group has not selected `{EVENLAG_ASSIGNOR}` as its assignor",
        observed="group_assignor",
        limit=Fixed(EVENLAG_ASSIGNOR),
        message="the group's assignor is {observed}: hints need a group that has selected {allowed}",
        is_of_hint=True,
        not_simulated=_OF_THE_HINT,
    ),
    Gate(
        "cooldown",
        fails_when="the group's last hint is younger than `cooldown_s`",
        observed="since_last_hint_s",
        comparison=Comparison.AT_LEAST,
        limit=GateSetting(
            "cooldown_s",
            None,
            "minimum time between two hints of a group, from slot to slot; null: 600, with `load: time` "
            "twice the time that the group takes to follow",
            ge=0,
            le=604_800,
            inputs=("follow_ms",),
            resolve=cooldown_of,
        ),
        message="the last hint is {observed:.0f} s old, the cooldown is {allowed:.0f} s",
        null_passes=True,
        is_routine=True,
    ),
    Gate(
        "payload_fits",
        fails_when=(
            "no record of the hint topic can contain it: `max.message.bytes` in the snapshot, minus "
            f"{HINT_OVERHEAD_BYTES:,} bytes for what surrounds the payload"
        ),
        observed="payload_bytes",
        comparison=Comparison.AT_MOST,
        limit=PlanLimit(("hint_topic_max_bytes",), _payload_limit),
        message="the hint has {observed} bytes, a record of the hint topic can contain {allowed}",
        not_simulated=_OF_THE_HINT,
    ),
)

# A plan that fails only these raises no alert.
ROUTINE_GATES: Final = frozenset(gate.name for gate in GATES if gate.is_routine)
_HINT_GATES: Final = frozenset(gate.name for gate in GATES if gate.is_of_hint)
SIMULATED_GATES: Final = tuple(gate for gate in GATES if gate.not_simulated is None)
# The settings of a rule's ``gates`` that the entries declare.
GATE_SETTINGS: Final = tuple(gate.limit for gate in GATES if isinstance(gate.limit, GateSetting))


def skipped_gates(policy_mode: str) -> frozenset[str]:
    """Return the gates that reject no plan of a group: those of the hint, if its policy is shadow."""
    return _HINT_GATES if policy_mode == Mode.SHADOW else frozenset()
