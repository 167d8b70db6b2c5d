"""Measured speeds and costs, beside manual calculations and a simulated truth."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from evenlag.lag.speeds import (
    BusyReports,
    Interval,
    SpeedState,
    estimate,
    reported_seconds,
    update,
)
from evenlag.simulation.fluid_model import Servers, advance
from tests.support.each import for_each
from tests.support.group_speeds import GroupSpeeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlag.lag.arrays import Bools, Floats, Int64s

FAR_BEHIND = 1e6


def unknown(num_members: int, num_partitions: int) -> SpeedState:
    """The state of one group of which nothing is known."""
    return SpeedState.unknown(1, np.zeros(num_members, np.int64), np.zeros(num_partitions, np.int64))


def interval(
    processed: Sequence[float],
    owner: Sequence[int] | None = None,
    *,
    duration_s: float = 60.0,
    backlog: float | Sequence[float] = FAR_BEHIND,
    identity: Sequence[int] | None = None,
    is_steady: bool = True,
    reported_s: float | Sequence[float] = np.nan,
) -> Interval:
    """An interval of one group; member n owns the partition n."""
    owners = np.array(range(len(processed)) if owner is None else owner)
    identities = np.array(range(owners.max() + 1) if identity is None else identity)
    lag = np.broadcast_to(np.array(backlog, dtype=np.float64), len(processed))
    return Interval(
        duration_s=np.array([duration_s]),
        identity=identities,
        is_steady=np.full(len(identities), is_steady),
        owner=owners,
        processed=np.array(processed, dtype=np.float64),
        before=lag,
        after=lag,
        reported_s=np.broadcast_to(np.array(reported_s, dtype=np.float64), len(identities)),
    )


def test_a_busy_member_has_its_rate() -> None:
    found = estimate(update(unknown(1, 1), interval([6_000.0])))
    assert found.speed == pytest.approx([100.0])
    assert not found.is_bound.any()
    assert found.confidence == pytest.approx([60 / (60 + 60)])


def test_a_member_without_a_backlog_is_at_least_as_fast() -> None:
    """Of 6,000 records committed in 60 s, those of 5 s may be processed before."""
    found = estimate(update(unknown(1, 1), interval([6_000.0], backlog=999.0)))
    assert found.speed == pytest.approx([6_000 / 65])
    assert found.is_bound.all()
    assert found.confidence.tolist() == [0.0]


def test_a_backlog_of_two_commit_intervals_is_needed() -> None:
    """The member processes 100 records per second: 10 s of it are 1,000."""
    for backlog, is_bound in ((1_001.0, False), (1_000.0, True)):
        found = estimate(update(unknown(1, 1), interval([6_000.0], backlog=backlog)))
        assert found.is_bound.tolist() == [is_bound], backlog


def test_little_evidence_is_shrunk_to_the_median() -> None:
    """60 s of 100/s and of 400/s; their median, 250/s, counts as 10 s."""
    found = estimate(update(unknown(2, 2), interval([6_000.0, 24_000.0])))
    expected = [(100**60 * 250.0**10) ** (1 / 70), np.exp((60 * np.log(400) + 10 * np.log(250)) / 70)]
    assert found.speed == pytest.approx(expected)


def test_a_member_of_which_nothing_is_known_has_the_median_and_no_confidence() -> None:
    found = estimate(update(unknown(4, 3), interval([6_000.0, 12_000.0, 18_000.0])))
    assert found.speed[3] == pytest.approx(200.0)
    assert found.is_bound.tolist() == [False, False, False, True]
    assert found.confidence[3] == 0.0


def test_a_bound_above_the_median_counts() -> None:
    """One member is busy with 100/s, another processes 19,500 records in 60 s without a backlog."""
    found = estimate(update(unknown(2, 2), interval([6_000.0, 19_500.0], backlog=[FAR_BEHIND, 0.0])))
    assert found.speed == pytest.approx([100.0, 19_500 / 65])
    assert found.is_bound.tolist() == [False, True]


def test_a_busy_interval_lowers_a_bound() -> None:
    """The member was faster yesterday: 200/s, and processes 6,000 records in 60 s now, of 55 s at least."""
    state = update(unknown(1, 1), interval([13_000.0], backlog=0.0))
    assert state.at_least == pytest.approx([200.0])
    assert update(state, interval([6_000.0])).at_least == pytest.approx([6_000 / 55])


@for_each(
    [
        # Of 6,000 records in 60 s: without a backlog, with one, and reports of more than there is time.
        (30.0, 0.0, 200.0, False),
        (40.0, FAR_BEHIND, 150.0, False),
        # Half of the time is nobody's: the member waits for something that its report leaves out.
        (20.0, FAR_BEHIND, 100.0, False),
        (66.0, 0.0, 6_000 / 65, True),
        (0.0, 0.0, 6_000 / 65, True),
        (-5.0, 0.0, 6_000 / 65, True),
    ]
)
def test_reported_time_counts_where_it_can_be_true(case: tuple[float, float, float, bool]) -> None:
    reported_s, backlog, speed, is_bound = case
    found = estimate(update(unknown(1, 1), interval([6_000.0], backlog=backlog, reported_s=reported_s)))
    assert found.speed == pytest.approx([speed])
    assert found.is_bound.tolist() == [is_bound]


def test_members_that_keep_up_are_compared_by_their_reports() -> None:
    """100/s each; one needs half of its time for it, the other a quarter, and little is shrunk away."""
    state = unknown(2, 2)
    for _ in range(20):
        state = update(state, interval([6_000.0, 6_000.0], backlog=0.0, reported_s=[30.0, 15.0]))
    found = estimate(state)
    assert found.speed == pytest.approx([200.0, 400.0], rel=0.02)
    assert (found.confidence > 0.8).all()


@for_each(
    [
        # Of partitions 0 and 1 of a member: progress, and reports (counter, start) before and now.
        ("of all partitions", (9, 9), ((100, 7), (100, 7)), ((4_100, 7), (4_100, 7)), 4.0),
        ("where there is progress", (9, 0), ((100, 7), (50, 7)), ((4_100, 7), (50, 7)), 4.0),
        ("the newest before, of another one", (9, 0), ((50, 7), (100, 7)), ((4_100, 7), (100, 7)), 4.0),
        ("an idle partition of an earlier owner", (9, 0), ((100, 7), (900, 3)), ((4_100, 7), (900, 3)), 4.0),
        ("of an earlier owner before", (9, 9), ((100, 7), (900, 3)), ((4_100, 7), (4_100, 7)), None),
        ("a restart", (9, 9), ((100, 7), (100, 7)), ((80, 8), (80, 8)), None),
        ("no report now", (9, 9), ((100, 7), (100, 7)), ((4_100, 7), (-1, -1)), None),
        ("no report before", (9, 9), ((100, 7), (-1, -1)), ((4_100, 7), (4_100, 7)), None),
        ("no progress", (0, 0), ((100, 7), (100, 7)), ((100, 7), (100, 7)), None),
    ],
    name=lambda case: case[0],
)
def test_the_busy_seconds_are_those_of_the_records(case: tuple[str, Any, Any, Any, float | None]) -> None:
    """Beside a member without a report, and a partition without an owner."""
    _, progress, before, now, seconds = case
    owner, processed = np.array([0, 0, 1, -1]), np.array([*progress, 5.0, 5.0])
    nothing = [(-1, -1)] * 2
    first, last = (BusyReports(*np.array([*each, *nothing]).T) for each in (before, now))
    found = reported_seconds(owner, processed, first, last, num_members=2)
    assert found.tolist() == pytest.approx([np.nan if seconds is None else seconds, np.nan], nan_ok=True)


def test_reported_minutes_tell_costs_by_chance_differences_of_mixes() -> None:
    """Half of each partition in 60 s, then 55 % and 45 % in 63 s: the first one's records cost more.

    The shares differ by 0.05 each and the rate by ln(1.05). Its variance is four times its own square, as
    no other member is there: 0.00952. Of 0.25 * 2 * 0.05**2 + 0.00952 = 0.01077, each partition's part is
    0.25 * 0.05 * ln(1.05) = 0.00060987, a step of 0.05662 up and down.
    """
    state = unknown(1, 2)
    for records, reported_s in (([3_000.0, 3_000.0], 60.0), ([3_300.0, 2_700.0], 63.0)):
        state = update(state, interval(records, [0, 0], backlog=0.0, reported_s=reported_s))
    assert np.log(state.cost[0] / state.cost[1]) == pytest.approx(2 * 0.05662, rel=1e-3)


@for_each(
    [
        ("a rebalance", interval([600.0, 600.0], is_steady=False)),
        ("a reset to an earlier offset", interval([-5.0, -5.0])),
        ("no progress", interval([0.0, 0.0])),
        ("unknown offsets", interval([np.nan, np.nan])),
        ("unknown lag", interval([600.0, 600.0], backlog=np.nan)),
        ("no time between", interval([600.0, 600.0], duration_s=0.0)),
        ("time that goes back", interval([600.0, 600.0], duration_s=-60.0)),
        ("no owner", interval([600.0, 600.0], [-1, -1], identity=[0, 1])),
    ],
    name=lambda case: case[0],
)
def test_nothing_is_learned(case: tuple[str, Interval]) -> None:
    state = update(unknown(2, 2), interval([6_000.0, 12_000.0]))
    after = update(state, case[1])
    # What is known fades with time, and nothing else.
    fade = np.exp(-max(case[1].duration_s[0], 0.0) / 86_400)
    assert after.busy_s == pytest.approx(state.busy_s * fade)
    assert after.done_records == pytest.approx(state.done_records * fade)
    assert estimate(after).speed == pytest.approx(estimate(state).speed, rel=1e-3)


def test_a_member_with_an_unknown_partition_keeps_a_lower_bound() -> None:
    state = update(unknown(1, 2), interval([6_500.0, np.nan], [0, 0]))
    assert state.busy_s.tolist() == [0.0]
    assert state.at_least == pytest.approx([100.0])


def test_members_of_one_identity_have_their_mean() -> None:
    """Two members with one client id process 100/s and 200/s."""
    found = estimate(update(unknown(1, 2), interval([6_000.0, 12_000.0], identity=[0, 0])))
    assert found.speed == pytest.approx([150.0])


def test_a_seek_is_no_speed() -> None:
    """A client goes forward by a billion records: that counts as four times its known speed."""
    state = update(unknown(1, 1), interval([6_000.0]))
    after = update(state, interval([1e9], backlog=1e10))
    kept = np.exp(-60 / 86_400) * np.exp(-60 / 1_800)
    assert after.done_records == pytest.approx([6_000 * kept + 4 * 6_000], rel=1e-2)
    # Without a backlog after it, it is a lower bound, of as much: 24,000 records in 65 seconds.
    idle = update(state, interval([1e9], backlog=0.0))
    assert idle.at_least == pytest.approx([24_000 / 65], rel=1e-2)
    assert estimate(idle).speed == pytest.approx([24_000 / 65], rel=1e-2)


def test_speeds_are_bounded_by_the_median() -> None:
    found = estimate(update(unknown(3, 3), interval([6e7, 6_000.0, 6.0], backlog=1e9)))
    assert found.speed[0] <= 32 * 100.0
    assert found.speed[2] >= 100.0 / 32


def test_a_changed_speed_is_found_again() -> None:
    state = unknown(1, 1)
    for _ in range(60):
        state = update(state, interval([6_000.0]))
    for _ in range(60):
        state = update(state, interval([3_000.0]))
    # With e-folding of half an hour, an hour leaves an eighth of what was before.
    assert estimate(state).speed[0] == pytest.approx(50 * (1 + np.exp(-2)), rel=0.03)


def test_costs_are_exactly_1_while_mixes_stay() -> None:
    state, chance = unknown(2, 4), np.random.default_rng(40)
    for _ in range(30):
        # The members' rates change, and what they process of their partitions does not.
        faster = np.repeat(chance.uniform(0.8, 1.2, 2), 2)
        state = update(state, interval([3_000, 1_000, 500, 500] * faster, [0, 0, 1, 1]))
    assert state.cost.tolist() == [1.0] * 4


def test_a_partition_that_slows_its_member_costs_more() -> None:
    """The member processes 100/s of partition 0. With partition 1, half of its records, it processes 50/s."""
    state = unknown(2, 3)
    for _ in range(10):
        state = update(state, interval([6_000.0, 0.0, 6_000.0], [0, 1, 1]))
    after = update(state, interval([1_500.0, 1_500.0, 6_000.0], [0, 0, 1]))
    assert after.cost[1] > 1.1
    assert after.cost[0] < 1.0
    assert np.median(after.cost) == 1.0
    for _ in range(30):
        after = update(after, interval([1_500.0, 1_500.0, 6_000.0], [0, 0, 1]))
    # 100 units a second are 25 records of cost 1 and 25 of cost 3.
    assert after.cost[1] / after.cost[0] == pytest.approx(3.0, rel=0.35)


def test_many_groups_are_measured_as_each_alone() -> None:
    chance = np.random.default_rng(41)
    parts = [list(_random_intervals(chance, members=members)) for members in (1, 3, 5)]
    alone = []
    for steps in parts:
        state = unknown(len(steps[0].identity), len(steps[0].owner))
        for step in steps:
            state = update(state, step)
        alone.append(state)
    sizes = [len(steps[0].identity) for steps in parts]
    rows = [len(steps[0].owner) for steps in parts]
    state = SpeedState.unknown(3, np.repeat(range(3), sizes), np.repeat(range(3), rows))
    for at_once in zip(*parts, strict=True):
        state = update(state, _together(at_once, sizes))
    for name in ("busy_s", "at_least", "cost"):
        expected = np.concatenate([getattr(each, name) for each in alone])
        assert getattr(state, name).tobytes() == expected.tobytes(), name
    speeds = np.concatenate([estimate(each).speed for each in alone])
    assert estimate(state).speed.tobytes() == speeds.tobytes()


def _random_intervals(chance: np.random.Generator, members: int) -> Iterator[Interval]:
    for _ in range(20):
        owner = chance.integers(-1, members, 4 * members)
        yield Interval(
            duration_s=chance.uniform(30, 90, 1),
            identity=np.arange(members),
            is_steady=chance.random(members) < 0.8,
            owner=owner,
            processed=np.where(chance.random(len(owner)) < 0.05, np.nan, chance.uniform(0, 900, len(owner))),
            before=chance.uniform(0, 5_000, len(owner)),
            after=chance.uniform(0, 5_000, len(owner)),
            reported_s=np.where(chance.random(members) < 0.5, np.nan, chance.uniform(0, 60, members)),
        )


def _together(steps: Sequence[Interval], sizes: Sequence[int]) -> Interval:
    shifts = np.cumsum([0, *sizes[:-1]])
    joined: dict[str, Any] = {
        each.name: np.concatenate([getattr(step, each.name) for step in steps]) for each in fields(Interval)
    }
    joined["identity"] = np.concatenate([s.identity + n for s, n in zip(steps, shifts, strict=True)])
    joined["owner"] = np.concatenate(
        [np.where(s.owner >= 0, s.owner + n, -1) for s, n in zip(steps, shifts, strict=True)]
    )
    return Interval(**joined)


def test_any_numbers_give_finite_speeds_and_costs() -> None:
    chance = np.random.default_rng(42)
    values = np.array([0.0, 1e-9, 1.0, 1e6, 9.2e18, -1.0, np.nan])
    state = unknown(3, 6)
    with np.errstate(all="raise", under="ignore"):
        for _ in range(300):
            owner: list[int] = chance.integers(-1, 3, 6).tolist()
            reported_s = chance.choice(values, 3).tolist()
            drawn = interval(
                chance.choice(values, 6).tolist(), owner, identity=[0, 1, 2], reported_s=reported_s
            )
            state = update(state, drawn)
            found = estimate(state)
    assert np.isfinite(found.speed).all()
    assert (found.speed > 0).all()
    assert ((state.cost >= 1 / 16) & (state.cost <= 16)).all()


def test_nothing_is_known_of_a_group_without_partitions_or_members() -> None:
    nothing = np.zeros(0)
    state = SpeedState.unknown(1, np.zeros(0, np.int64), np.zeros(0, np.int64))
    empty = Interval(
        np.array([60.0]), np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.int64), *[nothing] * 4
    )
    assert len(estimate(update(state, empty)).speed) == 0
    assert np.isnan(estimate(unknown(2, 2)).speed).all()


class _Truth:
    """The fluid model: members of speeds 1:2:4, records of unequal cost, a commit every five seconds."""

    def __init__(self, seed: int, *, utilisation: float, sigma: float = 0.5, partitions: int = 48) -> None:
        self.chance = np.random.default_rng([40, seed])
        self.speed = 100 * np.resize([1.0, 2.0, 4.0], 6)
        cost = self.chance.lognormal(0, sigma, partitions)
        self.cost = cost / np.median(cost)
        rate = self.chance.uniform(0.5, 1.5, partitions)
        self.rate = rate * utilisation * self.speed.sum() / (rate * self.cost).sum()
        self.owner = self.chance.permutation(np.resize(np.arange(6), partitions)).astype(np.int32)
        self.work, self.end, self.committed = (np.zeros(partitions) for _ in range(3))
        self.busy_s, self.busy_ms = np.zeros(6), np.zeros(partitions, dtype=np.int64)
        self.is_up = np.ones(6, dtype=np.bool_)
        self.now_s = 0

    def advance(self, seconds: int) -> None:
        """Process and commit."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            step_s = min(5 - self.now_s % 5, until_s - self.now_s)
            moved = advance(
                self.work,
                arrival=self.rate * self.cost,
                servers=Servers(self.owner.astype(np.int64)),
                capacity=np.where(self.is_up, self.speed, 0.0),
                ready_s=np.zeros(len(self.work)),
                duration_s=float(step_s),
            )
            done = self.work + step_s * self.rate * self.cost - moved.backlog
            self.busy_s += np.bincount(self.owner, done, 6) / self.speed
            self.work, self.end = moved.backlog, self.end + step_s * self.rate
            self.now_s += step_s
            if self.now_s % 5 == 0:
                self.committed = np.floor(self.end - self.work / self.cost)
                self.busy_ms = np.floor(1000 * self.busy_s).astype(np.int64)[self.owner]

    def read(self) -> tuple[int, Int64s, Int64s, Any]:
        """What a snapshot reads."""
        end = np.floor(self.end).astype(np.int64)
        return self.now_s, (end - self.committed.astype(np.int64)).clip(min=0), end, self.owner

    def reports(self) -> BusyReports:
        """What the last commits report: the member is known by when it began to count."""
        return BusyReports(self.busy_ms, self.owner.astype(np.int64))

    def errors(self, found: GroupSpeeds, chosen: Bools) -> Floats:
        """Relative errors of members' speeds: a group's costs and speeds have one common scale."""
        ratio: Floats = found.measured.speed[chosen] / self.speed[chosen]
        errors: Floats = np.abs(ratio / np.median(ratio) - 1)
        return errors


@for_each(range(3))
def test_speeds_of_equal_records_are_found_within_five_minutes(seed: int) -> None:
    """Whoever has had a backlog for so long is known within 5 %, whatever the length of intervals."""
    truth = _Truth(seed, utilisation=1.2, sigma=0.0)
    found = GroupSpeeds(6, 48)
    for _ in range(7):
        truth.advance(int(truth.chance.integers(30, 90)))
        found.observe(*truth.read())
    known = ~found.measured.is_bound
    assert known.sum() >= 3
    assert found.measured.speed[known] == pytest.approx(truth.speed[known], rel=0.05)
    bounds = found.measured.speed[~known]
    assert (bounds <= np.maximum(truth.speed[~known], np.median(found.measured.speed[known])) * 1.01).all()
    assert found.cost.tolist() == [1.0] * 48


@for_each([(0, 1.2), (1, 1.2), (0, 0.6), (1, 0.6)])
def test_unequal_costs_are_told_from_unequal_speeds(case: tuple[int, float]) -> None:
    """Partitions change members each ten minutes: speeds come within 10 % of each other, costs nearer.

    In a group that keeps up, members report their busy time.
    """
    seed, utilisation = case
    truth = _Truth(seed, utilisation=utilisation)
    found = GroupSpeeds(6, 48)
    errors, spreads = [], []
    for number in range(120):
        if number % 10 == 9:
            truth.owner = truth.chance.permutation(truth.owner)
        truth.advance(int(truth.chance.integers(45, 75)))
        found.observe(*truth.read(), reports=truth.reports() if utilisation < 1 else None)
        if number in (8, 119):
            errors.append(np.median(truth.errors(found, ~found.measured.is_bound)))
            spreads.append(np.std(np.log(found.cost / truth.cost)))
    assert errors[1] < 0.1
    assert spreads[1] < 0.7 * spreads[0]


def test_a_member_whose_partitions_stay_is_measured_while_others_move() -> None:
    found, far = GroupSpeeds(3, 3), np.full(3, 1_000_000)
    owners = np.array([[0, 1, 2], [0, 2, 2], [0, 1, 2], [0, 1, 2]], dtype=np.int32)
    for number, owner in enumerate(owners):
        found.observe(60.0 * number, far, far + 6_000 * number, owner)
    assert found.measured.is_bound.tolist() == [False, False, False]
    # Three minutes of the first member, the last one of the others.
    assert found.measured.confidence == pytest.approx([180 / 240, 60 / 120, 60 / 120], rel=0.03)


@for_each(range(3))
def test_members_that_come_and_go_keep_their_speeds(seed: int) -> None:
    """A member that stops for minutes, and a rebalance each time, do not change what is known of others."""
    truth = _Truth(seed, utilisation=1.2, sigma=0.0)
    found = GroupSpeeds(6, 48)
    for number in range(40):
        if number % 8 == 4:
            member = int(truth.chance.integers(6))
            truth.is_up[:] = True
            truth.is_up[member] = False
            others = truth.chance.choice(np.flatnonzero(truth.is_up), len(truth.owner))
            truth.owner = np.where(truth.owner == member, others, truth.owner).astype(np.int32)
        elif number % 8 == 0:
            truth.is_up[:] = True
            truth.owner = truth.chance.integers(0, 6, len(truth.owner)).astype(np.int32)
        truth.advance(int(truth.chance.integers(30, 90)))
        found.observe(*truth.read())
    known = ~found.measured.is_bound
    assert known.sum() >= 4
    assert (truth.errors(found, known) < 0.1).all()
    assert np.median(truth.errors(found, known)) < 0.03
