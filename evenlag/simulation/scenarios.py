"""The assignment in each snapshot of a simulation: the observed one, or that of a candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import numpy as np

from assignor_core.assignors import COOPERATIVE, EAGER
from assignor_core.metrics import count_moves
from assignor_core.objective import Load, member_load, relative_gain
from evenlag.lag.forecast import STEPS
from evenlag.lag.speeds import COOPERATIVE_ASSIGNORS
from evenlag.planning.group_planner import assign_rows, count_gap_of, is_required, least_saving, time_plan
from evenlag.planning.group_work import GroupFacts, Measured, expected_work
from evenlag.policy.gates import SIMULATED_GATES
from evenlag.policy.portable_settings import plain_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assignor_core.group import Group
    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from evenlag.planning.group_work import GroupWork
    from evenlag.planning.time_plans import TimePlan
    from evenlag.policy.candidates import Candidate, CandidateSettings
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Pauses
    from evenlag.simulation.history import History, Structure


# Known before planning. A gate without other inputs is evaluated first: if it fails, nothing is planned.
EARLY_INPUTS: Final = frozenset({"since_last_hint_s", "follow_ms"})
_FOLLOW_S: Final = GroupFacts().times(None).follow_s
_EARLY_GATES: Final = tuple(gate for gate in SIMULATED_GATES if EARLY_INPUTS.issuperset(gate.all_inputs))
_PLAN_GATES: Final = tuple(gate for gate in SIMULATED_GATES if gate not in _EARLY_GATES)


def may_plan(settings: Mapping[str, Any], since_last_hint_s: float, follow_s: float = math.nan) -> bool:
    """Evaluate the gates that need no plan; NaN: there was no last hint, or nothing is known of following."""
    inputs = {"since_last_hint_s": since_last_hint_s, "follow_ms": 1000 * follow_s}
    return all(gate.passes(settings, inputs) for gate in _EARLY_GATES)


def passes_gates(settings: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Evaluate the gates that need a plan, usually a :class:`SimulatedPlan`."""
    return all(gate.passes(settings, plan) for gate in _PLAN_GATES)


@dataclass(frozen=True, eq=False)
class SimulatedPlan(Mapping[str, Any]):
    """Inputs of the gates for one simulated plan, int32 [P]; each is computed when a gate reads it."""

    group: Group
    target: Int32s
    load: Floats
    capacity: Floats
    rule: GroupSettings
    time: TimePlan | None = None

    @cached_property
    def is_required(self) -> bool:
        """See :func:`~evenlag.planning.group_planner.is_required`."""
        return is_required(self.group, self.rule, self["count_gap"])

    def __getitem__(self, name: str) -> Any:
        return PLAN_INPUTS[name](self)

    def __iter__(self) -> Iterator[str]:
        return iter(PLAN_INPUTS)

    def __len__(self) -> int:
        return len(PLAN_INPUTS)


def _counts(plan: SimulatedPlan) -> Int64s:
    """Planned partitions by member."""
    return np.bincount(plan.target[plan.target >= 0], minlength=plan.group.num_members)


def _gain(plan: SimulatedPlan) -> float | None:
    if plan.is_required:
        return None
    if plan.time is not None:
        return plan.time.gain
    return relative_gain(plan.load, plan.capacity, plan.group.live_owner, plan.target)


PLAN_INPUTS: Final[dict[str, Callable[[SimulatedPlan], Any]]] = {
    "count_gap": lambda plan: count_gap_of(plan.group, plan.rule, plan.target),
    "moves": lambda plan: count_moves(plan.group, plan.target),
    "gain": _gain,
    "record_s_saved": lambda plan: plan.time.saved_record_s if plan.time and not plan.is_required else None,
    "record_s_cost": lambda plan: plan.time and plan.time.cost_record_s,
    "num_members": lambda plan: plan.group.num_members,
    "num_partitions": lambda plan: plan.group.num_partitions,
    "after_min_member_partitions": lambda plan: int(_counts(plan).min()),
    "after_max_member_partitions": lambda plan: int(_counts(plan).max()),
}


@dataclass(slots=True)
class Counts:
    """Moves, rebalances and pauses of a scenario up to now."""

    moves: int = 0
    takeover_moves: int = 0
    rebalances: int = 0
    forced_rebalances: int = 0
    paused_s: float = 0.0


class Scenario(Protocol):
    """One scenario of a simulation.

    is_real: Its lag was measured at the snapshots.
    """

    is_real: ClassVar[bool]
    counts: Counts
    owner: Int32s

    def step(self, place: int, backlog: Floats) -> Floats:
        """Process a snapshot and set `owner` [P]; return for how many seconds each row pauses [P]."""


def protocol_of(assignor: str | None) -> str:
    """Return which partitions a rebalance pauses: COOPERATIVE those that move, EAGER all."""
    return COOPERATIVE if assignor in COOPERATIVE_ASSIGNORS else EAGER


def pause_s(protocol: str, changed: Bools, held: Bools, pauses: Pauses) -> Floats:
    """Return how long each row pauses in a rebalance: [P] seconds."""
    if protocol == EAGER:
        return np.where(held, pauses.eager_s, 0.0)
    return np.where(changed, pauses.moved_s, np.where(held, pauses.stall_s, 0.0))


@dataclass(slots=True)
class ObservedScenario:
    """The observed owners; it validates the model.

    has_stops: bool [S - 1, P], intervals of rows whose owner has a speed that includes its real stops; None:
        of none.
    """

    is_real: ClassVar[bool] = True
    history: History
    pauses: Pauses
    has_stops: Bools | None = None
    counts: Counts = field(default_factory=Counts)
    owner: Int32s = field(init=False)

    def __post_init__(self) -> None:
        self.owner = self.history.owner[0]

    def step(self, place: int, backlog: Floats) -> Floats:
        """Process a snapshot; see :class:`Scenario`."""
        history = self.history
        before, self.owner = self.owner, history.owner[place]
        number = int(history.structure[place])
        # A group without members owns nothing: as for a candidate, that is no move and no rebalance.
        if place == 0 or number < 0:
            return np.zeros(len(backlog))
        is_forced = bool(number != history.structure[place - 1])
        was_there = history.live[place] & history.live[place - 1]
        changed = was_there & (before != self.owner)
        if not is_forced and not changed.any():
            return np.zeros(len(backlog))
        is_live = history.structures[number].place[before] >= 0
        self.counts.moves += int((changed & is_live).sum())
        self.counts.rebalances += 1
        self.counts.forced_rebalances += is_forced
        stands = pause_s(protocol_of(history.groups[place].assignor), changed, self.owner >= 0, self.pauses)
        self.counts.paused_s += float(stands.sum())
        if self.has_stops is None or place == len(self.has_stops):
            return stands
        return np.where(self.has_stops[place], 0.0, stands)


@dataclass(slots=True)
class CandidateScenario:
    """A candidate that is active from the first snapshot on.

    It takes over at the first snapshot. When members, subscriptions or partitions change, the group
    rebalances, and the candidate assigns again from its previous assignment. A candidate that plans by lag
    also plans at every other snapshot, with the lag of this scenario. Its plan is applied if it passes the
    gates that simulations evaluate.

    speed: [S - 1, M] records per second in each interval, 0 where unknown; ``load: time`` plans by them.
    """

    is_real: ClassVar[bool] = False
    history: History
    pauses: Pauses
    policy: Candidate
    settings: CandidateSettings
    speed: Floats | None = None
    counts: Counts = field(default_factory=Counts)
    owner: Int32s = field(init=False)
    _structure: int = -2
    _asked_at_s: float = np.nan
    _backlog: Floats | None = None
    _planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        self.owner = self.history.owner[0]
        self._planner = Planner(self.policy, self.settings)

    def step(self, place: int, backlog: Floats) -> Floats:
        """Process a snapshot; see :class:`Scenario`."""
        number = int(self.history.structure[place])
        is_first, is_forced = self._structure == -2, number != self._structure  # noqa: PLR2004 - not yet asked
        self._structure = number
        before, self._backlog = self._backlog, backlog.copy()
        nothing = np.zeros(len(backlog))
        if number < 0:
            self.owner = np.full(len(backlog), -1, dtype=np.int32)
            return nothing
        if not is_forced and not self._may_ask(place):
            return nothing
        structure = self.history.structures[number]
        group, target = self._plan(place, structure, backlog if before is None else before, backlog)
        changed_rows = group.owner != target
        if not is_forced and not (changed_rows.any() and self._planner.passes_gates(group, target)):
            return nothing
        moves = count_moves(group, target)
        self._count(moves, is_first=is_first, is_forced=is_forced)
        if is_first and not changed_rows.any():
            return nothing
        if changed_rows.any():
            self._asked_at_s = float(self.history.at_s[place])
        changed = np.zeros(len(backlog), dtype=np.bool_)
        changed[structure.rows] = changed_rows
        self.owner = np.full(len(backlog), -1, dtype=np.int32)
        self.owner[structure.rows] = np.append(structure.member, -1)[target]
        stands = pause_s(self.policy.protocol, changed, self.owner >= 0, self.pauses)
        self.counts.paused_s += float(stands.sum())
        return stands

    def _may_ask(self, place: int) -> bool:
        is_shown = self.history.groups[place].blocker is None
        since_s = float(self.history.at_s[place]) - self._asked_at_s
        return self.policy.uses_lag and is_shown and self._planner.may_plan(since_s, _FOLLOW_S)

    def _plan(
        self, place: int, structure: Structure, before: Floats, backlog: Floats
    ) -> tuple[Group, Int32s]:
        history, rows = self.history, structure.rows
        owner = structure.place[self.owner[rows]]
        lag = np.rint(backlog[rows]).astype(np.int64)
        rate = np.full(len(rows), np.nan)
        if place > 0:
            rate = history.arrived[place - 1][rows] / history.interval_s[place - 1]
        is_unknown = np.isnan(history.lag[place][rows])
        group = structure.group.with_state(owner, lag)
        work = None
        if self.speed is not None and place > 0 and self.settings.rule.load is Load.TIME:
            speed = self.speed[place - 1][structure.member]
            known = np.where(speed > 0, speed, np.nan)
            interval_s = float(history.interval_s[place - 1])
            consumed = rate + (before - backlog)[rows] / interval_s
            work = self._planner.work(group, rate, known, consumed, interval_s)
        return group, self._planner.target(group, rate, is_unknown, work)

    def _count(self, moves: int, *, is_first: bool, is_forced: bool) -> None:
        self.counts.moves += moves
        if is_first:
            self.counts.takeover_moves += moves
            self.counts.rebalances += moves > 0
            return
        self.counts.rebalances += 1
        self.counts.forced_rebalances += is_forced


class Planner:
    """A candidate's assignor for one group, in many states."""

    def __init__(self, policy: Candidate, settings: CandidateSettings) -> None:
        self._policy = policy
        self._settings = settings
        self._values: dict[str, Any] = plain_values(settings.rule)
        self._loads: tuple[Floats, Floats] | None = None
        self.time_plan: TimePlan | None = None
        # A candidate that does not plan by lag returns the same target for the same owners.
        self._capacities: dict[tuple[str | None, ...], Floats] = {}
        self._known: dict[tuple[int, bytes, bytes], Int32s] = {}

    def target(self, group: Group, rate: Floats, is_unknown: Bools, work: GroupWork | None = None) -> Int32s:
        """Return the target, int32 [P]: -1 for none; of `rate` NaN is unknown.

        work: What ``load: time`` plans by; without it speeds are unknown.
        """
        rule = self._settings.rule
        if rule.load is Load.TIME:
            is_unknown = is_unknown | np.isnan(rate)
            work = work or self.work(
                group, rate, np.full(group.num_members, np.nan), np.full(len(rate), np.nan)
            )
            plan = time_plan(group, rule, work, keep=is_unknown & (group.live_owner >= 0))
            required = is_required(group, rule, count_gap_of(group, rule, plan.target))
            self._loads = (work.backlog(group.lag) + work.arrivals.sum(axis=1)) * work.cost, work.speed
            is_too_small = not required and plan.net_record_s < least_saving(rule, plan)
            self.time_plan = plan
            return group.live_owner if is_too_small else plan.target
        if rule.load is not Load.LAG:
            is_unknown = is_unknown | np.isnan(rate)
        keep = is_unknown & (group.live_owner >= 0)
        key = id(group.topic_start), group.owner.tobytes(), keep.tobytes()
        if key in self._known:
            return self._known[key]
        load, capacity = member_load(rule.load, group.lag, rate), self._capacity(group)
        self._loads = load, capacity
        target = assign_rows(
            group, rule, load=load, capacity=capacity, keep=keep, parameters=self._settings.parameters
        )
        if not self._policy.uses_lag:
            self._known[key] = target
        return target

    def work(
        self, group: Group, rate: Floats, speed: Floats, consumed: Floats, interval_s: float | None = None
    ) -> GroupWork:
        """Return the work of a group whose rates stay as they are; NaN is unknown."""
        facts = GroupFacts(interval_s=interval_s)
        rates = np.repeat(rate[:, None], STEPS, axis=1)
        known = Measured(speed, np.zeros(len(speed), dtype=np.bool_), np.ones(len(rate)), consumed, rates)
        return expected_work(group, self._settings.rule, known, facts, facts.times(None))

    def _capacity(self, group: Group) -> Floats:
        if group.instance_ids not in self._capacities:
            of_each = [self._settings.rule.capacity_of(instance) for instance in group.instance_ids]
            self._capacities[group.instance_ids] = np.array(of_each)
        return self._capacities[group.instance_ids]

    def may_plan(self, since_last_hint_s: float, follow_s: float = math.nan) -> bool:
        """Return whether the gates allow a plan this many seconds after the last one; NaN: there was none."""
        return may_plan(self._values, since_last_hint_s, follow_s)

    def passes_gates(self, group: Group, target: Int32s) -> bool:
        """Return whether the newest result of :meth:`target` passes the gates."""
        return self._loads is not None and passes_gates(
            self._values, SimulatedPlan(group, target, *self._loads, self._settings.rule, self.time_plan)
        )
