"""Place by load as its specification says it (ADR 63), in plain Python and without any haste.

The fast implementation is `assignor_core.algorithms.place_by_load`; both must give the same target.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SCALE = 1000
RECEIVERS = 16
MAX_SWAPS = 64
MAX_PLACE_STEPS = 32
MOVE_GAIN = 32
PLACE_GAIN = 256
SETTLED_GAIN = 8
PASSES = 4


@dataclass(frozen=True)
class Case:
    """What the algorithm sees: all by index.

    Members are in UTF-16 order of their ids, rows in order of (topic id text, partition). `takes` holds the
    topics of each member as indexes, `topic` the topic of each row; `owner` is -1 for a free row.
    `rack` is the rack of each member, `racks` those in which each row can be read, None if unknown.
    """

    capacity: Sequence[int]
    takes: Sequence[Collection[int]]
    topic: Sequence[int]
    load: Sequence[int]
    owner: Sequence[int]
    count_slack: int
    max_moves: int
    rack: Sequence[str | None] = ()
    racks: Sequence[Collection[str] | None] = ()
    tolerance: int = 0


class State:
    """An assignment on the way."""

    def __init__(self, case: Case, target: Sequence[int]) -> None:
        self.case, self.slack, self.load = case, case.count_slack, case.load
        self.members = range(len(case.capacity))
        self.takes = [set(topics) for topics in case.takes]
        self.takers = {t: [m for m in self.members if t in self.takes[m]] for t in set(case.topic)}
        self.rows = [r for r in range(len(case.topic)) if self.takers[case.topic[r]]]
        self.target = [-1] * len(target)
        self.count = [0] * len(case.capacity)
        self.sum = [0] * len(case.capacity)
        for row, member in enumerate(target):
            if member >= 0 and case.topic[row] in self.takes[member]:
                self.put(row, member)

    def put(self, row: int, member: int) -> None:
        before = self.target[row]
        if before >= 0:
            self.count[before] -= 1
            self.sum[before] -= self.load[row]
        self.target[row] = member
        if member >= 0:
            self.count[member] += 1
            self.sum[member] += self.load[row]

    def can_take(self, member: int, row: int) -> bool:
        return self.case.topic[row] in self.takes[member]

    def holds(self, member: int, like: int) -> bool:
        """Return whether a member has a row that the same members take as another."""
        return any(self.takers_of(row) == self.takers_of(like) for row in self.held(member))

    def takers_of(self, row: int) -> list[int]:
        return self.takers[self.case.topic[row]]

    def is_far(self, row: int, member: int) -> bool:
        rack, racks = (self.case.rack or [None])[member], self.case.racks[row]
        return rack is not None and racks is not None and rack not in racks

    @cached_property
    def has_racks(self) -> bool:
        """Return whether somebody reads something that somebody takes across racks."""
        return bool(self.case.rack) and any(self.is_far(r, m) for r in self.rows for m in self.members)

    @cached_property
    def near_level(self) -> int:
        return self.mean * (SCALE + self.case.tolerance) // SCALE

    def nearest(self, pool: list[int], row: int) -> int:
        lightest = min(pool, key=self.lightest)
        near = [m for m in pool if self.has_racks and not self.is_far(row, m)]
        if not near:
            return lightest
        b = min(near, key=self.lightest)
        levels = [self.level(m, self.load[row]) for m in (b, lightest)]
        return b if levels[0] <= max(self.near_level, levels[1]) else lightest

    def level(self, member: int, change: int = 0) -> int:
        return (self.sum[member] + change) * SCALE // self.case.capacity[member]

    def held(self, member: int) -> list[int]:
        return [row for row in self.rows if self.target[row] == member]

    def lightest(self, member: int) -> tuple[int, int, int]:
        return self.level(member), self.count[member], member

    def heaviest(self, member: int) -> tuple[int, int, int]:
        return -self.level(member), -self.count[member], member

    # Counts.

    def needs(self) -> list[int]:
        """Return how many rows each member lacks by the count rule."""
        largest: dict[int, int] = {}
        for row in self.rows:
            if self.target[row] >= 0:
                topic = self.case.topic[row]
                largest[topic] = max(largest.get(topic, 0), self.count[self.target[row]])
        needs = []
        for member in self.members:
            top = max((largest.get(topic, 0) for topic in self.takes[member]), default=0)
            is_left_out = self.count[member] == 0 and top >= 2
            needs.append(max(top - 1 - self.slack - self.count[member], 1 if is_left_out else 0, 0))
        return needs

    def gap(self) -> int:
        """Return the largest count of a holder of a row less the count of a taker of it."""
        least = {t: min(self.count[m] for m in takers) for t, takers in self.takers.items() if takers}
        held = [row for row in self.rows if self.target[row] >= 0]
        return max((self.count[self.target[r]] - least[self.case.topic[r]] for r in held), default=0)

    def keeps_gap(self, *puts: tuple[int, int]) -> bool:
        """Return whether no gap gets larger than allowed, or than it is, by these changes."""
        before, homes = self.gap(), [(row, self.target[row]) for row, _ in puts]
        for row, member in puts:
            self.put(row, member)
        after = self.gap()
        for row, member in homes:
            self.put(row, member)
        return after <= max(1 + self.slack, before)

    def score(self) -> tuple[int, list[int]]:
        """Return what is to be small: rows that are lacking, then the levels, largest first."""
        return sum(self.needs()), sorted(map(self.level, self.members), reverse=True)

    # Steps.

    def place(self, free: Collection[int]) -> None:
        order = sorted(free, key=lambda row: (-self.load[row], row))
        for at, row in enumerate(order):
            takers, needs = self.takers_of(row), self.needs()
            needy = [m for m in self.members if needs[m]]
            left = sum(any(self.can_take(m, other) for m in needy) for other in order[at:])
            is_forced = bool(needy) and left <= sum(needs)
            pool = [m for m in takers if needs[m] or not self.count[m]] if is_forced else []
            if any(not self.count[m] for m in pool):
                pool = [m for m in pool if not self.count[m]]
            if not pool:
                most = max((self.count[m] for m in takers if self.holds(m, row)), default=0)
                limit = max(most - 1, min(self.count[m] for m in takers) + self.slack)
                pool = [m for m in takers if self.count[m] <= limit]
            self.put(row, self.nearest(pool, row))
        self.lower(min(2 * len(order), MAX_PLACE_STEPS), PLACE_GAIN, set(order))

    def repair(self, budget: int, owned: Collection[int], *, empty_only: bool) -> int:
        while budget > 0 and self._repair_one(owned, empty_only=empty_only):
            budget -= 1
        return budget

    def _repair_one(self, owned: Collection[int], *, empty_only: bool) -> bool:
        needs = self.needs()
        needy = [m for m in self.members if needs[m] and not (empty_only and self.count[m])]
        for b in sorted(needy, key=lambda m: (self.count[m], self.level(m), m)):
            enough = self.count[b] + 2 + self.slack if self.count[b] else 2
            held = {
                a: [row for row in self.held(a) if row in owned and self.can_take(b, row)]
                for a in self.members
                if self.count[a] >= enough
            }
            donors = [a for a in held if held[a]]
            if donors:
                rows = held[min(donors, key=self.heaviest)]
                room, want = self.wish(b)
                row = min(rows, key=lambda r: self.wanted(r, b, room, want))
                self.put(row, b)
                return True
        return False

    def wanted(self, row: int, member: int, room: int, want: int) -> tuple[bool, bool, int, int]:
        is_far = self.has_racks and self.is_far(row, member)
        return self.load[row] > room, is_far, abs(self.load[row] - want), row

    def wish(self, member: int) -> tuple[int, int]:
        """Return the load that a member is short of, and that times its share of one row."""
        rows = [row for row in self.rows if self.can_take(member, row)]
        sharers = {m for row in rows for m in self.takers_of(row)}
        missing = max(1, len(rows) // len(sharers) - self.count[member])
        capacity = self.case.capacity
        share = sum(self.load[row] for row in rows) * capacity[member] // sum(capacity[m] for m in sharers)
        room = max(0, share - self.sum[member])
        return room, room // missing

    def lower(self, budget: int, gain_share: int, movable: Collection[int]) -> None:
        if not self.rows:
            return
        least_gain = self.part_of_mean(gain_share)
        done: set[int] = set()
        swaps = 0
        while budget > 0:
            open_members = [m for m in self.members if self.count[m] and m not in done]
            if not open_members:
                return
            a = min(open_members, key=self.heaviest)
            if self.has_racks and self.level(a) <= self.near_level:
                return
            limit = self.level(a) - least_gain
            mine = [row for row in self.held(a) if row in movable]
            others = [m for m in self.members if m != a and any(self.can_take(m, row) for row in mine)]
            receivers = sorted(others, key=self.lightest)[:RECEIVERS]
            move = self._best_move(a, mine, receivers, limit) if self.count[a] >= 2 else None
            if move is not None:
                self.put(*move)
                budget -= 1
                continue
            swap = None
            if budget >= 2 and swaps < MAX_SWAPS:
                swap = self._best_swap(a, mine, receivers, limit, movable)
            if swap is None:
                done.add(a)
                continue
            row, other, b = swap
            self.put(row, b)
            self.put(other, a)
            budget -= 2
            swaps += 1

    @cached_property
    def mean(self) -> int:
        users = {m for row in self.rows for m in self.takers_of(row)}
        capacity = sum(self.case.capacity[m] for m in users)
        return sum(self.load[row] for row in self.rows) * SCALE // capacity if users else 0

    def part_of_mean(self, parts: int) -> int:
        return max(1, -(-self.mean // parts))

    def _best_move(self, a: int, mine: list[int], receivers: list[int], limit: int) -> tuple[int, int] | None:
        found = [
            (max(self.level(a, -self.load[row]), self.level(b, self.load[row])), row, b)
            for b in receivers
            for row in mine
            if self.can_take(b, row)
        ]
        for level, row, b in sorted(found):
            if level <= limit and self.keeps_gap((row, b)):
                return row, b
        return None

    def _best_swap(
        self, a: int, mine: list[int], receivers: list[int], limit: int, movable: Collection[int]
    ) -> tuple[int, int, int] | None:
        found = []
        for b in receivers:
            theirs = [row for row in self.held(b) if row in movable and self.can_take(a, row)]
            theirs.sort(key=lambda row: (self.load[row], row))
            for row in mine:
                if not self.can_take(b, row):
                    continue
                differences = [self.load[other] - self.load[row] for other in theirs]
                levels = [(self.level(a, d), self.level(b, -d)) for d in differences]
                at = next((i for i, (of_a, of_b) in enumerate(levels) if of_a >= of_b), len(theirs))
                found += [(max(levels[i]), row, theirs[i], b) for i in (at - 1, at) if 0 <= i < len(theirs)]
        for level, row, other, b in sorted(found):
            if level <= limit and self.keeps_gap((row, b), (other, a)):
                return row, other, b
        return None


def place_by_load(case: Case) -> tuple[list[int], bool]:
    """Return the target, row → member or -1, and whether it is uneven in a way that can be repaired."""
    state = State(case, case.owner)
    owned = {row for row in state.rows if state.target[row] >= 0}
    free = [row for row in state.rows if row not in owned]
    budget = max(case.max_moves, sum(_share(state, m) for m in state.members if not state.count[m]))
    state.place(free)
    base = list(state.target)
    left = state.repair(budget, owned, empty_only=bool(free))
    best = _improve(case, state, base, budget, 0 if free else left)
    if _releases_more(case, best, base):
        best = State(case, base)
    if not free and left == budget:
        highest = max(map(best.level, best.members), default=0)
        before = State(case, base)
        if highest > max(map(before.level, before.members), default=0) - before.part_of_mean(SETTLED_GAIN):
            best = before
    needs = best.needs()
    can_go_on = case.max_moves > 0 or any(needs[m] and not best.count[m] for m in best.members)
    is_uneven = any(needs) and can_go_on and (bool(free) or best.target != base)
    return best.target, is_uneven


def _share(state: State, member: int) -> int:
    rows = [row for row in state.rows if state.can_take(member, row)]
    return max(1, len(rows) // len({m for row in rows for m in state.takers_of(row)})) if rows else 0


def _changed(state: State, base: list[int]) -> list[int]:
    return [row for row in state.rows if state.target[row] != base[row]]


def _replace(case: Case, base: list[int], released: list[int]) -> State:
    """Place the released rows again from where the base has all others; who comes back is not released."""
    while True:
        state = State(case, [-1 if row in released else base[row] for row in range(len(base))])
        state.place(released)
        kept = [row for row in released if state.target[row] != base[row]]
        if len(kept) == len(released):
            return state
        released = kept


def _improve(case: Case, state: State, base: list[int], budget: int, left: int) -> State:
    best = State(case, base)
    for _ in range(PASSES):
        state.lower(left, MOVE_GAIN, state.rows)
        result = _replace(case, base, _changed(state, base))
        if result.score() >= best.score():
            break
        best, state = result, State(case, result.target)
        left = budget - len(_changed(result, base)) if left else 0
        if left <= 0:
            break
    return best


def _releases_more(case: Case, result: State, base: list[int]) -> bool:
    """Return whether the follow-up, in which the released rows are free, would release others."""
    released = set(_changed(result, base))
    state = State(case, result.target)
    owned = {row for row in state.rows if row not in released}
    return state.repair(1, owned, empty_only=True) == 0
