"""Waiting by the fluid model of the simulation, and plans by all assignments of small groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.group import Group
from assignor_core.metrics import count_moves
from assignor_core.objective import Load
from assignor_core.verify import largest_count_gap
from evenlag.lag.forecast import ERROR_BINS, draw_arrivals
from evenlag.planning.group_planner import time_plan
from evenlag.planning.group_work import GroupWork
from evenlag.planning.time_plans import Judged, Limits, TimePlan, WaitingModel, plan_by_time
from evenlag.policy.group_settings import GroupSettings
from evenlag.simulation.fluid_model import Servers, advance
from tests.bench.field.contenders.oracle import Horizon

if TYPE_CHECKING:
    from evenlag.lag.arrays import Bools, Floats, Int32s

STEPS, STEP_S = 6, 30.0


def make_group(owner: Any, lag: Any, num_members: int = 3, topics: Any = (("t", None),)) -> Group:
    """Return a group whose topics divide the rows evenly; None: all members subscribe."""
    owner = np.asarray(owner)
    rows = np.flatnonzero(owner >= 0)
    pairs = [
        (member, number)
        for number, (_, takers) in enumerate(topics)
        for member in (range(num_members) if takers is None else takers)
    ]
    return Group.from_arrays(
        topics=[name for name, _ in topics],
        num_partitions=np.full(len(topics), len(owner) // len(topics)),
        member_ids=[f"m{number}" for number in range(num_members)],
        subscriptions=(np.array([each[0] for each in pairs]), np.array([each[1] for each in pairs])),
        claims=(rows, owner[rows], np.zeros(len(rows), dtype=np.int64)),
        lags=np.asarray(lag),
    )


def make_work(rates: Floats, speed: Any, **changes: Any) -> GroupWork:
    """Return work of constant costs, whose rates [P, K] are certain."""
    given: dict[str, Any] = {
        "speed": np.asarray(speed, dtype=np.float64),
        "cost": np.ones(len(rates)),
        "arrivals": rates * STEP_S,
        "error": np.zeros_like(rates),
        "common_error": 0.0,
        "step_s": STEP_S,
        "unowned_s": 0.0,
        "stopped_s": 0.0,
        "next_s": STEP_S * STEPS,
        "consumed": np.zeros(len(rates)),
    }
    return GroupWork(**given | changes)


def draw(chance: np.random.Generator, **changes: Any) -> tuple[Group, GroupWork]:
    """Return a random group of 6 partitions and 3 members, at times overloaded."""
    lag = (chance.choice([0, 900], 6) * chance.random(6)).astype(np.int64)
    rates = chance.uniform(0.2, 3.0, (6, 1)) * chance.uniform(0.5, 1.5, (6, STEPS))
    speed = chance.uniform(0.3, 0.6, 3) * rates.sum(axis=0).mean()
    return make_group(chance.integers(0, 3, 6), lag), make_work(rates, speed, **changes)


def search(group: Group, work: GroupWork, limits: Limits, keep: Bools | None = None) -> TimePlan:
    """Plan with the default assignor."""

    def assign(load: Floats, max_moves: int) -> Int32s:
        return LagAwareStickyAssignor(max_moves, limits.count_slack, effort=0).target(
            group, load=load, capacity=work.speed, pinned=fixed
        )

    fixed = np.zeros(group.num_partitions, dtype=np.bool_) if keep is None else keep
    return plan_by_time(group, work, limits, keep=fixed, assign=assign)


def simulated(group: Group, work: GroupWork, target: Int32s) -> float:
    """Return the record-seconds of an assignment by the fluid model, partition by partition."""
    moved = (group.live_owner >= 0) & (target != group.live_owner)
    ready_s = np.where(moved, work.unowned_s, work.stopped_s) if moved.any() else np.zeros(len(target))
    backlog, total = group.lag * work.cost, 0.0
    for step in range(STEPS):
        after = advance(
            backlog,
            arrival=work.arrivals[:, step] * work.cost / work.step_s,
            servers=Servers(target.astype(np.int64)),
            capacity=work.speed,
            ready_s=ready_s - step * work.step_s,
            duration_s=work.step_s,
        )
        backlog, total = after.backlog, total + after.backlog_records_s.sum()
    return float(total)


def test_waiting_is_that_of_the_fluid_model() -> None:
    chance = np.random.default_rng(40)
    for number in range(60):
        stopped_s, unowned_s = sorted(chance.uniform(0, 50, 2)) if number % 2 else (0.0, 30.0)
        group, work = draw(chance, stopped_s=stopped_s, unowned_s=unowned_s, cost=chance.uniform(0.5, 2, 6))
        target = chance.integers(0, 3, 6).astype(np.int32)
        model = WaitingModel.of(group, work)
        assert model.judge(target).value == pytest.approx(simulated(group, work, target))
        assert model.bound().value <= model.judge(target).value + 1e-6


def test_counts_are_even_among_those_who_take_a_topic() -> None:
    """Others take the topic `u`: how many partitions they have limits nothing of `t`."""
    for counts, speed, planned in (
        # Six a second come to who does 3, and who does 100 may have two more than the one with 4.
        ([4, 6, 6, 16], [4.5, 100.0, 3.0, 100.0], [5, 6, 5, 16]),
        ([6, 6, 12], [5.0, 100.0, 100.0], [5, 7, 12]),
    ):
        others = len(counts) - 1
        owner = np.repeat(np.arange(len(counts)), counts)
        topics = (("t", range(others)), ("u", (others,)))
        group = make_group(owner, np.zeros(len(owner)), len(counts), topics)
        rates = np.where(owner == others, 0.1, 1.0)[:, None] * np.ones(STEPS)
        found = search(group, make_work(rates, speed), Limits(100, 1))
        assert np.bincount(found.target).tolist() == planned


def test_plans_are_near_the_best_of_all_assignments() -> None:
    chance, gaps = np.random.default_rng(41), []
    everywhere = [np.array(each, dtype=np.int32) for each in product(range(3), repeat=6)]
    for _ in range(20):
        group, work = draw(chance, unowned_s=3.0, stopped_s=1.0)
        model = WaitingModel.of(group, work)
        best = min(model.judge(each).value for each in everywhere)
        found = model.judge(search(group, work, Limits(6, 6)).target).value
        assert found <= model.judge(group.live_owner).value
        gaps.append(found / best - 1 if best else found)
    assert np.median(gaps) < 0.005
    assert np.mean(gaps) < 0.05


def late_by_steps(group: Group, work: GroupWork, target: Int32s, target_s: float) -> tuple[float, Floats]:
    """Return unit-seconds beyond a target in steps of 0.1 s, and the longest wait of each partition."""
    step_s = 0.1
    at_s = np.arange(0.0, STEPS * STEP_S + step_s / 2, step_s)
    until_s = STEP_S * np.arange(STEPS + 1)
    came = np.cumsum(np.column_stack([group.lag, work.arrivals]), axis=1) * work.cost[:, None]
    rate = work.arrivals[:, 0] * work.cost / STEP_S
    late, longest_s = 0.0, np.zeros(len(target))
    for member in range(len(work.speed)):
        rows = np.flatnonzero(target == member)
        if not len(rows):
            continue
        inflow = sum(np.interp(at_s, until_s, came[row]) for row in rows)
        before = sum(
            np.where(
                at_s >= target_s,
                np.interp(at_s - target_s, until_s, came[row]),
                (came[row, 0] - rate[row] * (target_s - at_s)).clip(min=0),
            )
            for row in rows
        )
        queue = np.zeros(len(at_s))
        queue[0] = inflow[0]
        for step in range(1, len(at_s)):
            served = work.speed[member] * step_s
            queue[step] = max(queue[step - 1] + inflow[step] - inflow[step - 1] - served, 0.0)
        late += float((before - (inflow - queue)).clip(min=0).sum() * step_s)
        longest_s[rows] = queue[np.searchsorted(at_s, until_s[1:] - step_s / 2)].max() / work.speed[member]
    return late, longest_s


def test_with_a_target_only_later_waiting_counts() -> None:
    chance = np.random.default_rng(47)
    for _ in range(40):
        group, work = draw(chance, cost=chance.uniform(0.5, 2, 6), target_s=float(chance.uniform(5, 90)))
        target = chance.integers(0, 3, 6).astype(np.int32)
        assert work.target_s is not None
        late, longest_s = late_by_steps(group, work, target, work.target_s)
        found = WaitingModel.of(group, work).judge(target)
        assert found.longest_s is not None
        assert found.value == pytest.approx(late, rel=0.02, abs=30)
        assert found.longest_s[target] == pytest.approx(longest_s, abs=0.2)
        assert WaitingModel.of(group, work).bound().value <= found.value + 1e-6


def rank_for_target(
    model: WaitingModel, stay: Judged, stopped_s: float, target: Int32s
) -> tuple[bool, float]:
    """Return whether a partition waits longer than the target and than without a plan, and what counts."""
    found = model.judge(target)
    assert stay.longest_s is not None
    assert found.longest_s is not None
    assert model.target_s is not None
    most_s = stay.longest_s[stay.target].clip(min=model.target_s)
    price = (stay.value - model.bound().value) / len(target)
    is_kept = bool((found.longest_s[target] <= most_s + stopped_s + 1e-6).all())
    return not is_kept, found.value + price * found.moves


def test_plans_for_a_target_are_near_the_best_of_all_assignments_that_keep_it() -> None:
    chance, gaps, num_made = np.random.default_rng(48), [], 0
    everywhere = [np.array(each, dtype=np.int32) for each in product(range(3), repeat=6)]
    for _ in range(12):
        group, work = draw(chance, unowned_s=1.0, stopped_s=0.5, target_s=40.0)
        plan, model = search(group, work, Limits(6, 6)), WaitingModel.of(group, work)
        rank = partial(rank_for_target, model, model.judge(group.live_owner), work.stopped_s)
        best, found = min(map(rank, everywhere)), rank(plan.target)
        assert not found[0]
        assert plan.net_record_s >= 0
        num_made += bool((plan.target != group.live_owner).any())
        stay = rank(group.live_owner)
        if stay[1] > 0:
            gaps.append((found[1] - best[1]) / stay[1])
    assert num_made > 5
    assert np.median(gaps) < 0.01
    assert np.mean(gaps) < 0.05


def test_a_group_that_keeps_its_target_is_left_as_it_is() -> None:
    """One of two members is idle. The other has 40 records, of 20 s, and needs 13 s for them."""
    group, rates = make_group([0, 0], [20, 20], num_members=2), np.ones((2, STEPS))
    moves = [
        int((search(group, make_work(rates, [3.0, 3.0], target_s=target_s), Limits(2, 2)).target > 0).sum())
        for target_s in (None, 34.0, 15.0)
    ]
    assert moves == [1, 0, 1]


def test_plans_are_as_good_as_those_of_the_oracle() -> None:
    """The oracle searches longer, with random swaps, for the same waiting and free moves."""
    chance, ours, theirs = np.random.default_rng(42), 0.0, 0.0
    for _ in range(10):
        rates = np.repeat(chance.uniform(0.1, 4.0, (24, 1)), STEPS, axis=1)
        lag = chance.integers(0, 500, 24)
        group = make_group(chance.integers(0, 6, 24), lag, num_members=6)
        work = make_work(rates, np.full(6, 1.1 * rates[:, 0].sum() / 6))
        inflow = np.column_stack([lag, lag[:, None] + np.cumsum(work.arrivals, axis=1)]).astype(np.float64)
        horizon = Horizon(inflow, work.speed, STEP_S, np.zeros(24))
        owner = group.live_owner
        theirs += horizon.value(horizon.search(owner, owner, chance, max_moves=24, count_slack=24), owner)
        ours += horizon.value(search(group, work, Limits(24, 24)).target, owner)
    assert ours < 1.05 * theirs


def test_no_search_where_the_bound_saves_less_than_is_required() -> None:
    """What is found with a floor is what is found without one, unless that saves less."""
    chance, searched, made = np.random.default_rng(46), 0, 0
    for _ in range(40):
        group, work = draw(chance, unowned_s=3.0, stopped_s=1.0)
        free = search(group, work, Limits(6, 6))
        for floor in (Limits(6, 6, min_gain=0.5), Limits(6, 6, min_saved_record_s=5_000.0)):
            plan = search(group, work, floor)
            shortened = free.stay.record_s - free.overload_record_s
            least = max(floor.min_saved_record_s, floor.min_gain * shortened)
            if free.net_record_s >= least:
                assert plan.target.tolist() == free.target.tolist()
                made += 1
            is_searched = plan.target.tolist() == free.target.tolist()
            assert is_searched or plan.target.tolist() == group.owner.tolist()
            searched += is_searched
    assert 0 < made <= searched < 80


def test_limits_hold() -> None:
    chance = np.random.default_rng(43)
    num_moves = 0
    for _ in range(20):
        _, work = draw(chance)
        group = make_group(
            [0, 0, 2, 1, 1, 0], chance.integers(0, 500, 6), topics=(("a", None), ("b", (0, 1)))
        )
        keep = np.array([True, False, False, False, False, False])
        plan = search(group, work, Limits(2, 1), keep)
        moved = plan.target != group.live_owner
        counts = np.bincount(plan.target, minlength=3)
        assert moved.sum() <= 2
        assert plan.target[0] == 0
        assert (plan.target[3:] < 2).all()
        assert counts.max() - counts.min() <= 2
        num_moves += int(moved.sum())
    assert num_moves > 10


def test_counts_come_within_a_slack_that_is_set_whatever_waits() -> None:
    chance, num_uneven = np.random.default_rng(49), 0
    nothing, keep = np.zeros((6, STEPS)), np.zeros(6, dtype=np.bool_)
    for number in range(30):
        target_s = 40.0 if number % 2 else None
        group, work = draw(chance, unowned_s=3.0, stopped_s=1.0, target_s=target_s)
        if number % 3 == 0:
            group, work = (
                group.with_state(group.owner, np.zeros_like(group.lag)),
                replace(work, arrivals=nothing),
            )
        gap = largest_count_gap(group, group.live_owner)
        num_uneven += gap > 1
        plans = [
            time_plan(group, GroupSettings(load=Load.TIME, count_slack=0, max_moves=most), work, keep=keep)
            for most in (1, 6)
        ]
        after = [largest_count_gap(group, plan.target) for plan in plans]
        assert after[0] <= max(gap, 1)
        assert after[1] <= 1
        assert count_moves(group, plans[0].target) <= 1
    assert num_uneven > 20


def test_lag_that_is_consumed_in_two_commit_intervals_waits_for_its_commit() -> None:
    """Whatever arrives, and of units by their sums; without a known rate all lag waits."""
    work = make_work(np.full((4, STEPS), 300.0), [1.0], consumed=np.array([3.0, 2.0, 0.0, 2.5]))
    lag = np.full(4, 25)
    assert work.backlog(lag).tolist() == [0.0, 25.0, 25.0, 25.0]
    assert work.united(np.array([0, 0, 1, 1]), 2).backlog(np.array([49, 49])).tolist() == [0.0, 49.0]


def test_topics_stay_together() -> None:
    group = make_group([0, 0, 0, 0], [900, 900, 900, 900], num_members=2, topics=(("a", None), ("b", None)))
    rule = GroupSettings(load=Load.TIME, together=(("a", "b"),))
    work = make_work(np.ones((4, STEPS)), [3.0, 3.0])
    plan = time_plan(group, rule, work, keep=np.zeros(4, dtype=np.bool_))
    assert plan.target[:2].tolist() == plan.target[2:].tolist()
    assert set(plan.target.tolist()) == {0, 1}
    assert plan.saved_record_s > 0


def test_prediction_by_hand() -> None:
    # 60 records at 2 a second, 1 of which arrives: 60 s of a triangle; the other member idles.
    group, rates = make_group([0, 1], [60, 0], num_members=2), np.array([[1.0] * STEPS, [0.0] * STEPS])
    plan = search(group, make_work(rates, [2.0, 2.0]), Limits(2, 2))
    assert plan.target.tolist() == [0, 1]
    assert plan.stay.record_s == pytest.approx(60 * 60 / 2)
    assert plan.stay.lag[:3].tolist() == pytest.approx([30, 0, 0])
    assert plan.stay.largest_wait_s[:2].tolist() == pytest.approx([15, 0])
    assert plan.saved_record_s == plan.cost_record_s == 0


def test_a_backlog_that_no_assignment_processes_hides_no_gain() -> None:
    """Two members process 4 records a second, one of them idles: 2 a second for 180 s."""
    for lag, targets, overload in (
        # 720 of 200,000 records can be processed.
        ([100_000, 100_000], ([0, 1], [1, 0]), (200_000 - 720) * 180),
        # One partition has all of them: 360 can be, and no other member helps.
        ([200_000, 0], ([0, 0],), (200_000 - 360) * 180),
    ):
        group = make_group([0, 0], lag, num_members=2)
        plan = search(group, make_work(np.zeros((2, STEPS)), [2.0, 2.0]), Limits(2, 2, min_gain=0.3))
        assert plan.target.tolist() in targets
        assert plan.overload_record_s == pytest.approx(overload)
        # Staying processes 2 a second.
        assert plan.stay.record_s == pytest.approx(200_000 * 180 - 180 * 360 / 2)
        assert plan.gain == pytest.approx(1 / 3 if plan.saved_record_s else 0)


def test_what_is_overload_waits_under_all_assignments() -> None:
    chance = np.random.default_rng(51)
    num_overloaded = 0
    for number in range(60):
        group, work = draw(chance, target_s=20.0 if number % 2 else None)
        least = min(
            WaitingModel.of(group, work).judge(np.array(each, dtype=np.int32)).value
            for each in product(range(3), repeat=6)
        )
        overload = WaitingModel.of(group, work).overload()
        assert overload <= least * (1 + 1e-9)
        num_overloaded += overload > 0.5 * least
    assert num_overloaded > 10


def test_a_plan_that_costs_more_than_it_saves_is_not_found() -> None:
    group, rates = make_group([0, 0], [20, 20], num_members=2), np.zeros((2, STEPS))
    cheap, dear = (
        search(group, make_work(rates, [2.0, 2.0], unowned_s=unowned_s, stopped_s=unowned_s), Limits(2, 2))
        for unowned_s in (1.0, 30.0)
    )
    # 40 records in 20 s are 400 record-seconds, 20 each in 10 s are 200; a second's stop costs 40 of them.
    assert cheap.target.tolist() in ([0, 1], [1, 0])
    assert [cheap.saved_record_s, cheap.cost_record_s] == pytest.approx([200, 40])
    assert dear.target.tolist() == [0, 0]


def test_uncertain_arrivals_wait_as_in_random_draws() -> None:
    group, chance = make_group([0], [0], num_members=1), np.random.default_rng(44)
    work = make_work(np.full((1, STEPS), 1.0), [1.05], error=30.0 * np.sqrt(np.arange(1, STEPS + 1))[None])
    until_s = STEP_S * np.arange(STEPS + 1)
    error = np.append(0.0, work.error[0])
    level = until_s * -0.05 + chance.normal(size=(20_000, 1)) * error
    queue = level - np.minimum(np.minimum.accumulate(level, axis=1), 0)
    drawn = float((queue[:, 1:] + queue[:, :-1]).sum(axis=1).mean() * STEP_S / 2)
    assert WaitingModel.of(group, work).judge(np.zeros(1, dtype=np.int32)).value == pytest.approx(
        drawn, rel=0.05
    )
    # Two halves with independent errors wait less.
    halves = make_work(np.full((2, STEPS), 0.5), [1.05], error=np.repeat(work.error / 2, 2, axis=0))
    both = WaitingModel.of(make_group([0, 0], [0, 0], num_members=1), halves)
    assert both.judge(np.zeros(2, dtype=np.int32)).value < 0.8 * drawn
    # What they have in common does not even out.
    known = replace(halves, error=np.zeros_like(halves.error), common_error=0.3)
    whole = replace(work, error=0.3 * np.cumsum(work.arrivals, axis=1))
    owner = np.zeros(2, dtype=np.int32)
    expected = WaitingModel.of(group, whole).judge(owner[:1]).value
    assert WaitingModel.of(make_group([0, 0], [0, 0], num_members=1), known).judge(
        owner
    ).value == pytest.approx(expected)


def test_scenarios_become_expected_arrivals_and_their_errors() -> None:
    chance = np.random.default_rng(45)
    ratio, own = chance.normal(1.0, 0.2, (4_000, 1, 1)), chance.normal(0.0, 0.1, (4_000, 30, 1))
    work = make_work(np.ones((30, STEPS)), [40.0]).expecting(STEP_S * np.repeat(ratio + own, STEPS, axis=2))
    assert work.arrivals == pytest.approx(np.full((30, STEPS), STEP_S), rel=0.02)
    assert work.common_error == pytest.approx(0.2, rel=0.1)
    assert work.error[:, -1] == pytest.approx(np.full(30, 0.1 * STEP_S * STEPS), rel=0.1)


def test_before_a_forecast_is_scored_arrivals_may_differ_by_a_fifth() -> None:
    rates, none = np.random.default_rng(46).uniform(0.0, 100.0, (3, STEPS)), np.zeros(ERROR_BINS)
    work = make_work(rates, [1.0]).expecting(draw_arrivals(rates, STEP_S, none, none))
    assert work.common_error == 0.2
    assert work.error[:, -1] == pytest.approx(0.2 * STEP_S * rates.sum(axis=1))
