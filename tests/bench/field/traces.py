"""Seeded traces: the records that are sent second by second, and the pods that process them.

Keys, not partitions, have rates: a partition is what a key hashes to, so that the same records can be sent to
a topic of another size. Counts are Poisson draws around the rates, record times uniform within their second.

Utilisation is the mean work per second that the rates send in the measured time (all but the warm-up),
divided by the mean summed speed of the pods that `Trace.changes` lists as running in it. The seconds without
consumers of ``backlog`` count as if the pods ran.

walks
    The rate of each partition is a random walk between 0 and a maximum, as in Landau et al. (JPDC 201, 2025,
    105071), whose generator is published in Landau's thesis (github.com/landaudiogo/thesis-document, section
    "Testing Procedure") and code (github.com/landaudiogo/kafka-consumer-group-autoscaler,
    ``src/controller/test/monitor_sequence/make_sequence.py``): it starts uniformly between 0 and 100 % of the
    maximum, each step adds a uniform number of percent between -delta and delta, and the sum is clipped to
    0 and 100. Delta is 5, as in the sequence committed there. A step is 30 s, over which their monitor
    averages; they state no time between measurements. Their maximum is a consumer's planned capacity and the
    number of consumers follows from it; here the number is given, and the maximum follows from the
    utilisation (about a quarter of a pod's speed at 48 partitions, 8 pods and 75 %). The six keys of a
    partition share its walk.
seasons
    Twenty keys per partition on average, with Zipf weights (exponent 0.8: the largest of 960 has 6.5 % of the
    records). The trace is one week: a day is a seventh of it (17 minutes of two hours, 84 times as fast as
    real days). A key's rate swings by 50 % around its mean each day; half of the keys peak together, 30 % a
    third of a day later and 20 % two thirds later. All rates are a quarter lower in the last two days. A
    burst adds 3 to 8 % of the weekdays' mean rate to one key, for 1 to 4 % of the trace; 7 are expected.
hot
    One key has a partition of its own, whose work is 95 % of one pod's speed on average over the measured
    time and follows one sine period of 15 %, so that it exceeds one pod's speed for 39 % of that time. The
    others share the rest of the work evenly. A topic with more partitions does not divide it.
even
    All keys have the same constant rate and all records the same cost; six keys fall on each partition, and
    four on each of 1.5 times as many.
unequal
    Pods have speeds 1:2:4. Partitions have constant rates, uniform between 50 and 150 % of their mean, and a
    record costs what its key costs: log-normal by partition (sigma 0.5) times log-normal by key (sigma 0.3).
backlog
    The keys of ``seasons`` with constant rates. No consumer runs for a twelfth of the measured time, from the
    end of its first twelfth.
churn
    The rates of ``walks``. Every second pod has a static id. A round of events takes the measured time, or
    less than 6,000 s of it: a dynamic pod crashes and another takes its place; a static pod restarts; a
    rolling deploy replaces dynamic and restarts static pods, one after the other; a third more pods start,
    and later those stop. A pod is down for 10 to 30 s (at most half of a pod's share of the deploy). A
    dynamic pod comes back as another pod.
recorded
    Departures of flights from New York's airports, a key for each of the 223 routes: 91 successive days of
    2013, drawn by the seed, each taking a 91st of the trace (79 s of two hours, 1,092 times as fast). A day's
    departures of a route are its rate on that day: real skew, weeks, holidays, storms and drift of shares,
    but in steps. ``data/README.md`` names the source and its licence (CC0).
drawn
    The keys of ``walks``, ``hot`` or ``unequal`` with a random part of the work, those of ``seasons`` or
    ``recorded`` with the rest, and either the pods of ``churn`` or pods of random speeds. `DRAWN` decides
    which; it was drawn when the code of all contenders was frozen, and no setting is tuned on this trace.
"""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tests.bench.field.keys import even_keys, key_partitions, numbered_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Int64s = NDArray[np.int64]
    Changes = tuple[tuple[int, tuple[int, ...]], ...]

WARM_UP_S = 180
UTILISATIONS = (0.6, 0.75, 0.9)
DELTA_PERCENT = 5.0
# Drawn at random when the code of all contenders was frozen: the trace ``drawn``, and the first of the seeds
# that the evidence is from.
DRAWN = 447_014
FIRST_SEED = 802_541
STEP_S = 30
ZIPF = 0.8
_KEYS_PER_PARTITION = 20
_DAYS = 7
_HOT_WORK = 0.95
_HOT_SWING = 0.15
_SPEEDS = (1.0, 2.0, 4.0)
_ROUND_S = 3_000
_RECORDED_DAYS = 91
_DEPARTURES = Path(__file__).with_name("data") / "departures.csv.gz"


class Size(NamedTuple):
    """How large a trace is. Evidence drops `WARM_UP_S`; the two sizes for tests drop less.

    speed: Units of work per second of a pod (its mean where pods differ).
    """

    name: str
    num_partitions: int
    num_pods: int
    duration_s: int
    warm_up_s: int
    speed: float

    @property
    def measured_s(self) -> int:
        """Seconds after the warm-up."""
        return self.duration_s - self.warm_up_s


SIZES = {
    size.name: size
    for size in (
        Size("smoke", 12, 3, 90, 15, 10.0),
        Size("quick", 12, 3, 150, 30, 20.0),
        Size("broker", 24, 6, 720, WARM_UP_S, 66.0),
        Size("simulation", 48, 8, 7_200, WARM_UP_S, 100.0),
    )
}


class Pod(NamedTuple):
    """A process of the group in one life; a dynamic pod that restarts is another pod.

    speed: Units of work per second.
    """

    name: str
    instance_id: str | None
    speed: float


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What is sent and who runs.

    counts: int64 [second, key], records sent.
    cost: float64 [key], units of work per record; the median over the expected records is 1.
    changes: (second, indices of the pods that run from then on), ascending; the first is at 0.
    outages: (first second, first second after it) without any consumer.
    first_owner: Which pod has each partition at first, where that is known of a real run; else empty.
    """

    name: str
    seed: int
    utilisation: float
    duration_s: int
    warm_up_s: int
    keys: tuple[bytes, ...]
    counts: Int64s
    cost: Floats
    pods: tuple[Pod, ...]
    changes: Changes
    outages: tuple[tuple[int, int], ...]
    num_partitions: int
    first_owner: tuple[int, ...] = ()

    def arrivals(self, num_partitions: int) -> tuple[Int64s, Floats]:
        """Return the records and the work sent in each second, [second, partition]."""
        # Sums of counts stay below 2**53: floats are exact, and their matrix product is the fast one.
        lands_on = np.zeros((len(self.keys), num_partitions))
        lands_on[np.arange(len(self.keys)), key_partitions(self.keys, num_partitions)] = 1.0
        counts = self.counts.astype(np.float64)
        return (counts @ lands_on).astype(np.int64), counts @ (lands_on * self.cost[:, None])

    def schedule(self) -> tuple[Floats, NDArray[np.int32]]:
        """Return the second at which each record is sent, ascending, and its key's index."""
        seconds, keys = np.nonzero(self.counts)
        records = self.counts[seconds, keys]
        within = np.random.default_rng([39, 1, self.seed]).random(int(records.sum()))
        at_s = np.repeat(seconds, records) + within
        order = np.argsort(at_s)
        return at_s[order], np.repeat(keys, records)[order].astype(np.int32)

    def running_speed(self) -> Floats:
        """Return the summed speed of the running pods in each second; outages do not count."""
        return _running_speed(self.pods, self.changes, self.duration_s)


def make_trace(name: str, seed: int, utilisation: float, size: Size) -> Trace:
    """Return the trace of a name (one of `NAMES`) and seed."""
    chance = np.random.default_rng([39, NAMES.index(name), seed])
    is_churning = name == "churn" or (name == "drawn" and _recipe().is_churning)
    pods, changes = _churning_pods(chance, size) if is_churning else _constant_pods(chance, size, name)
    load = _LOADS[name](chance, size, utilisation)
    rates = load.rates
    sent = (rates[size.warm_up_s :] @ load.cost).mean()
    speed = _running_speed(pods, changes, size.duration_s)[size.warm_up_s :].mean()
    rates *= utilisation * speed / sent
    return Trace(
        name=name,
        seed=seed,
        utilisation=utilisation,
        duration_s=size.duration_s,
        warm_up_s=size.warm_up_s,
        keys=load.keys,
        counts=chance.poisson(rates),
        cost=load.cost,
        pods=pods,
        changes=changes,
        outages=_outages(size) if name == "backlog" else (),
        num_partitions=size.num_partitions,
    )


class _Load(NamedTuple):
    """rates: [second, key], relative to each other."""

    keys: tuple[bytes, ...]
    rates: Floats
    cost: Floats


def _equal_cost(keys: tuple[bytes, ...], rates: Floats) -> _Load:
    return _Load(keys, rates, np.ones(len(keys)))


def _walks(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    del utilisation
    keys = even_keys(size.num_partitions)
    steps = -(-size.duration_s // STEP_S)
    walk = np.empty((steps, size.num_partitions))
    walk[0] = chance.uniform(0, 100, size.num_partitions)
    for step in range(1, steps):
        change = chance.uniform(-DELTA_PERCENT, DELTA_PERCENT, size.num_partitions)
        walk[step] = np.clip(walk[step - 1] + change, 0, 100)
    by_partition = np.repeat(walk, STEP_S, axis=0)[: size.duration_s]
    return _equal_cost(keys, by_partition[:, key_partitions(keys, size.num_partitions)])


def _zipf_keys(chance: np.random.Generator, size: Size) -> tuple[tuple[bytes, ...], Floats]:
    """Return keys and the share of each in all records."""
    num_keys = _KEYS_PER_PARTITION * size.num_partitions
    weights = np.arange(1, num_keys + 1) ** -ZIPF
    chance.shuffle(weights)
    return numbered_keys(num_keys), weights / weights.sum()


def _seasons(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    del utilisation
    keys, weights = _zipf_keys(chance, size)
    day = np.arange(size.duration_s)[:, None] * _DAYS / size.duration_s
    offset = chance.choice([0, 1 / 3, 2 / 3], len(keys), p=[0.5, 0.3, 0.2])
    rates = weights * (1 + 0.5 * np.sin(2 * np.pi * (day - offset)))
    rates *= np.where(day >= _DAYS - 2, 0.75, 1.0)
    for _ in range(chance.poisson(_DAYS)):
        start, length = chance.uniform(0, 1), chance.uniform(0.01, 0.04)
        first, end = (np.array([start, start + length]) * size.duration_s).astype(int)
        rates[first:end, chance.integers(len(keys))] += chance.uniform(0.03, 0.08)
    return _equal_cost(keys, rates)


def _hot(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    keys = even_keys(size.num_partitions)
    partitions = key_partitions(keys, size.num_partitions)
    hot_partition = chance.integers(size.num_partitions)
    hot_key = chance.choice(np.flatnonzero(partitions == hot_partition))
    others = partitions != hot_partition
    period = (np.arange(size.duration_s) - size.warm_up_s) / size.measured_s
    # In units of one pod's speed.
    rates = np.where(others, (utilisation * size.num_pods - _HOT_WORK) / others.sum(), 0.0)
    rates = np.tile(rates, (size.duration_s, 1))
    rates[:, hot_key] = _HOT_WORK * (1 + _HOT_SWING * np.sin(2 * np.pi * period))
    return _equal_cost(keys, rates)


def _even(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    del chance, utilisation
    keys = even_keys(size.num_partitions)
    return _equal_cost(keys, np.ones((size.duration_s, len(keys))))


def _unequal(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    del utilisation
    keys = even_keys(size.num_partitions)
    partitions = key_partitions(keys, size.num_partitions)
    rates = chance.uniform(0.5, 1.5, size.num_partitions)[partitions]
    cost = chance.lognormal(0, 0.5, size.num_partitions)[partitions] * chance.lognormal(0, 0.3, len(keys))
    return _Load(keys, np.tile(rates, (size.duration_s, 1)), cost / _median_cost(rates, cost))


def _median_cost(rates: Floats, cost: Floats) -> float:
    """Return the cost that half of the records have at most."""
    by_cost = np.argsort(cost)
    half = np.searchsorted(np.cumsum(rates[by_cost]), rates.sum() / 2)
    return float(cost[by_cost[half]])


def _backlog(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    del utilisation
    keys, weights = _zipf_keys(chance, size)
    return _equal_cost(keys, np.tile(weights, (size.duration_s, 1)))


@cache
def departures() -> tuple[tuple[str, ...], Int64s]:
    """Return the routes and their departures on each day of the year, [route, day]."""
    with gzip.open(_DEPARTURES, "rt", encoding="ascii", newline="") as file:
        _, *rows = csv.reader(file)
    return tuple(row[0] for row in rows), np.array([row[1:] for row in rows]).astype(np.int64)


def _recorded(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    del utilisation
    routes, by_day = departures()
    first = chance.integers(by_day.shape[1] - _RECORDED_DAYS + 1)
    day = first + np.arange(size.duration_s) * _RECORDED_DAYS // size.duration_s
    # Each seed has keys of its own, which hash to other partitions.
    seed = chance.integers(2**31)
    keys = tuple(f"{route}-{seed}".encode() for route in routes)
    return _equal_cost(keys, by_day[:, day].T.astype(np.float64))


class _Recipe(NamedTuple):
    """What `DRAWN` decides; share: of the first trace's work in all."""

    first: str
    second: str
    share: float
    is_churning: bool
    sigma: float


@cache
def _recipe() -> _Recipe:
    chance = np.random.default_rng([39, DRAWN])
    first, second = chance.choice(["walks", "hot", "unequal"]), chance.choice(["seasons", "recorded"])
    share, is_churning = chance.uniform(0.2, 0.8), chance.random() < 0.5
    return _Recipe(str(first), str(second), float(share), bool(is_churning), chance.uniform(0.1, 0.6))


def _drawn(chance: np.random.Generator, size: Size, utilisation: float) -> _Load:
    recipe = _recipe()
    first, second = (_LOADS[name](chance, size, utilisation) for name in (recipe.first, recipe.second))
    keys = (*first.keys, *(b"second-" + key for key in second.keys))
    shares = (recipe.share, 1 - recipe.share)
    rates = [
        load.rates * (share / (load.rates @ load.cost).mean())
        for load, share in zip((first, second), shares, strict=True)
    ]
    both, cost = np.hstack(rates), np.concatenate([first.cost, second.cost])
    return _Load(keys, both, cost / _median_cost(both[size.warm_up_s :].mean(axis=0), cost))


_LOADS: dict[str, Callable[[np.random.Generator, Size, float], _Load]] = {
    "walks": _walks,
    "seasons": _seasons,
    "hot": _hot,
    "even": _even,
    "unequal": _unequal,
    "backlog": _backlog,
    "churn": _walks,
    "recorded": _recorded,
    "drawn": _drawn,
}
NAMES = tuple(_LOADS)


def _outages(size: Size) -> tuple[tuple[int, int], ...]:
    twelfth = size.measured_s // 12
    return ((size.warm_up_s + twelfth, size.warm_up_s + 2 * twelfth),)


def _running_speed(pods: Sequence[Pod], changes: Changes, duration_s: int) -> Floats:
    seconds = np.diff([*(second for second, _ in changes), duration_s])
    return np.repeat([sum(pods[index].speed for index in running) for _, running in changes], seconds)


def _constant_pods(chance: np.random.Generator, size: Size, name: str) -> tuple[tuple[Pod, ...], Changes]:
    speeds = np.full(size.num_pods, size.speed)
    if name == "unequal":
        ratios = np.resize(_SPEEDS, size.num_pods)
        speeds = size.speed * chance.permutation(ratios) / ratios.mean()
    elif name == "drawn":
        ratios = chance.lognormal(0, _recipe().sigma, size.num_pods)
        speeds = size.speed * ratios / ratios.mean()
    pods = tuple(Pod(f"pod-{number}", None, float(speed)) for number, speed in enumerate(speeds))
    return pods, ((0, tuple(range(size.num_pods))),)


def _churning_pods(chance: np.random.Generator, size: Size) -> tuple[tuple[Pod, ...], Changes]:
    life = _Churn(chance, size)
    rounds = max(1, size.measured_s // _ROUND_S)
    for number in range(rounds):
        life.add_round(size.warm_up_s + number * size.measured_s / rounds, size.measured_s / rounds)
    return tuple(life.pods), tuple(sorted(life.changes.items()))


class _Churn:
    """Draws who joins and leaves."""

    def __init__(self, chance: np.random.Generator, size: Size) -> None:
        self._chance = chance
        self._size = size
        self.pods: list[Pod] = []
        self._running = [self._new_pod(is_static=number % 2 == 0) for number in range(size.num_pods)]
        self.changes = {0: tuple(self._running)}

    def add_round(self, start_s: float, length_s: float) -> None:
        """Add a crash, a restart, a rolling deploy, and scaling up and down."""
        share_s = 0.4 * length_s / self._size.num_pods
        for at, is_static in ((0.05, False), (0.12, True)):
            candidates = [pod for pod in self._running if self._is_static(pod) is is_static]
            self._restart(int(self._chance.choice(candidates)), start_s + at * length_s, share_s / 2)
        for number, pod in enumerate(self._chance.permutation(self._running)):
            self._restart(int(pod), start_s + 0.2 * length_s + number * share_s, share_s / 2)
        added = [self._new_pod(is_static=False) for _ in range(max(1, self._size.num_pods // 3))]
        self._change(start_s + 0.65 * length_s, [*self._running, *added])
        self._change(start_s + 0.85 * length_s, [pod for pod in self._running if pod not in added])

    def _new_pod(self, *, is_static: bool) -> int:
        number = len(self.pods)
        instance_id = f"instance-{number}" if is_static else None
        self.pods.append(Pod(f"pod-{number}", instance_id, self._size.speed))
        return number

    def _is_static(self, pod: int) -> bool:
        return self.pods[pod].instance_id is not None

    def _restart(self, pod: int, at_s: float, longest_s: float) -> None:
        self._change(at_s, [each for each in self._running if each != pod])
        comes_back = pod if self._is_static(pod) else self._new_pod(is_static=False)
        down_s = min(self._chance.uniform(10, 30), longest_s)
        self._change(at_s + down_s, [*self._running, comes_back])

    def _change(self, at_s: float, running: list[int]) -> None:
        self._running = running
        self.changes[int(at_s)] = tuple(running)
