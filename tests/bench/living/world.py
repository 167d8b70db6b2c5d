"""One random day of a group: its size, settings, membership events and wandering loads, from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY_S = 86_400
MINUTES = 1_440
_SIZES = (32, 48)
_LIMITS_OF_MOVES = (5, 10, 20, 1_000)
_SLACKS = (0, 1, 2)
_LEAST_PODS, _MOST_PODS = 3, 12
# Loads wander around their Zipf weights; the logarithm forgets half of its distance in two hours.
_WANDER = 0.35
_HALF_LIFE_MINUTES = 120.0


@dataclass(frozen=True, slots=True)
class Pod:
    """A process of the group, in one life: a dynamic pod that restarts is another member.

    instance: Its instance id; None for a dynamic member.
    capacity: Relative to the others, 1 to 1000.
    """

    name: str
    instance: str | None
    capacity: int


@dataclass(frozen=True, slots=True, eq=False)
class Day:
    """A day.

    seed, zipf, pace: The seed, the exponent of the loads, and how many times the usual number of events
        happens.
    num_partitions, count_slack, max_moves: The topic, and the group's policy.
    changes: (second, pods of the group from then on), ascending; the first is at 0.
    loads: float [minute, partition], records per second.
    """

    seed: int
    zipf: float
    pace: float
    num_partitions: int
    count_slack: int
    max_moves: int
    pods: tuple[Pod, ...]
    changes: tuple[tuple[int, tuple[int, ...]], ...]
    loads: NDArray[np.float64]
    duration_s: int = DAY_S
    warm_up_s: int = 0
    outages: tuple[tuple[int, int], ...] = ()

    @property
    def capacity(self) -> NDArray[np.float64]:
        """Capacity by pod."""
        return np.array([pod.capacity for pod in self.pods], dtype=np.float64)

    @property
    def speed(self) -> NDArray[np.float64]:
        """Records per second by pod: the mean loads are 75 % of what the first members process."""
        scale: float = self.loads.sum(axis=1).mean() / (0.75 * self.capacity[list(self.changes[0][1])].sum())
        return self.capacity * scale

    def arrivals(self, num_partitions: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the records sent in each minute, as a trace of the simulator."""
        del num_partitions
        records = np.rint(60 * self.loads).astype(np.int64)
        return records, records.astype(np.float64)


def make_day(seed: int, **fixed: Any) -> Day:
    """Return the day of a seed.

    fixed: Fields that are not left to chance: ``num_partitions``, ``count_slack``, ``max_moves``, ``pace``.
    """
    chance = np.random.default_rng([20, seed])
    drawn = {
        "num_partitions": int(chance.choice(_SIZES)),
        "count_slack": int(chance.choice(_SLACKS)),
        "max_moves": int(chance.choice(_LIMITS_OF_MOVES)),
        "pace": float(chance.choice((0.5, 1.0, 2.0))),
    } | fixed
    zipf = float(chance.uniform(0.0, 0.8))
    life = _Life(chance, drawn["pace"])
    return Day(
        seed=seed,
        zipf=zipf,
        pods=tuple(life.pods),
        changes=tuple(life.changes),
        loads=_wandering_loads(chance, drawn["num_partitions"], zipf),
        **drawn,
    )


class _Life:
    """Draws who joins and leaves: scaling in steps, rolling restarts, and single pods that crash."""

    def __init__(self, chance: np.random.Generator, pace: float) -> None:
        self._chance = chance
        self.pods: list[Pod] = []
        # On a quarter of the days half of the first pods are static, and some can take less.
        self._is_mixed = bool(chance.random() < 0.25)
        self._members = [self._new(number) for number in range(int(chance.integers(4, 11)))]
        self.changes: list[tuple[int, tuple[int, ...]]] = [(0, tuple(self._members))]
        self._now_s = 60
        events = {self._scale: 12.0, self._roll: 2.0, self._crash: 4.0}
        when = sorted(
            (int(at_s), number)
            for number, mean in enumerate(events.values())
            for at_s in chance.uniform(0, DAY_S, chance.poisson(mean * pace))
        )
        actions = tuple(events)
        for at_s, number in when:
            self._now_s = max(self._now_s, at_s)
            actions[number]()

    def _new(self, number: int) -> int:
        is_static = self._is_mixed and number % 2 == 0
        capacity = int(self._chance.choice((500, 1000))) if is_static else 1000
        token = f"{int(self._chance.integers(2**62)):016x}"
        self.pods.append(Pod(f"pod-{token}", f"pod-{number}" if is_static else None, capacity))
        return len(self.pods) - 1

    def _change(self, after_s: float) -> None:
        self._now_s += max(1, int(after_s))
        if self._now_s < DAY_S:
            self.changes.append((self._now_s, tuple(self._members)))

    def _leave(self, pod: int, after_s: float) -> None:
        self._members.remove(pod)
        self._change(after_s)

    def _join(self, after_s: float) -> None:
        self._members.append(self._new(1))
        self._change(after_s)

    def _dynamic(self) -> list[int]:
        return [pod for pod in self._members if self.pods[pod].instance is None]

    def _scale(self) -> None:
        step = int(self._chance.integers(1, 5)) * (1 if self._chance.random() < 0.5 else -1)
        size = min(max(len(self._members) + step, _LEAST_PODS), _MOST_PODS)
        while len(self._members) < size:
            self._join(10)
        while len(self._members) > size and self._dynamic():
            self._leave(int(self._chance.choice(self._dynamic())), 5)

    def _roll(self) -> None:
        for pod in self._dynamic():
            self._leave(pod, self._chance.uniform(10, 40))
            self._join(self._chance.uniform(5, 20))

    def _crash(self) -> None:
        if self._dynamic():
            self._leave(int(self._chance.choice(self._dynamic())), 30)
            self._join(self._chance.uniform(10, 60))


def _wandering_loads(chance: np.random.Generator, num_partitions: int, zipf: float) -> NDArray[np.float64]:
    weights = np.arange(1, num_partitions + 1) ** -zipf
    weights *= 5_000 / weights.sum()
    chance.shuffle(weights)
    keep = 0.5 ** (1 / _HALF_LIFE_MINUTES)
    push = _WANDER * np.sqrt(1 - keep**2)
    away = np.empty((MINUTES, num_partitions))
    away[0] = chance.normal(0, _WANDER, num_partitions)
    noise = chance.normal(0, push, (MINUTES, num_partitions))
    for minute in range(1, MINUTES):
        away[minute] = keep * away[minute - 1] + noise[minute]
    loads = weights * np.exp(away)
    # Some partitions become hot for an hour or so.
    for _ in range(chance.poisson(4)):
        minute, row = int(chance.integers(MINUTES)), int(chance.integers(num_partitions))
        span = np.arange(MINUTES - minute)
        loads[minute:, row] *= 1 + chance.uniform(1, 3) * np.exp(-span / 40.0)
    return np.asarray(loads, dtype=np.float64)
