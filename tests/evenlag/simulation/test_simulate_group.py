"""The replay of a group: what is made of what was seen, what a policy does with it, and the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.objective import Load
from evenlag.errors import PolicyError
from evenlag.policy.candidates import CandidateSettings, parse_candidate
from evenlag.policy.group_settings import CapacityRule, GroupSettings
from evenlag.policy.settings import Pauses
from evenlag.simulation.estimates import estimate_speeds
from evenlag.simulation.fluid_model import simulate
from evenlag.simulation.replay_metrics import model_error, time_lags_s
from evenlag.simulation.scenarios import CandidateScenario, ObservedScenario, Planner
from evenlag.simulation.simulate_group import score_group, simulate_group
from tests.support.lakes.replay_histories import STEP_S, history_of, snapshot
from tests.support.simulated_scenarios import constant

if TYPE_CHECKING:
    from evenlag.simulation.history import History

NO_PAUSES = Pauses(eager_s=0, moved_s=0, stall_s=0)


def test_an_end_that_was_not_read_lies_between_its_neighbours_and_a_reset_brings_nothing() -> None:
    history = history_of([[0.0], [None], [600.0], [100.0]], [[0.0]] * 4, [["a"]] * 4, [snapshot("a")] * 4)
    assert history.arrived[:, 0].tolist() == [300.0, 300.0, 0.0]


def test_a_partition_that_was_away_is_another_row_afterwards() -> None:
    owners = [["a", "a"], ["a", "-"], ["a", "a"]]
    seen = [[5.0, 7.0]] * 3
    history = history_of(seen, seen, owners, [snapshot("a")] * 3)
    assert history.live.tolist() == [[True, True, False], [True, False, False], [True, False, True]]
    assert history.structure.tolist() == [0, 1, 2]


def test_while_the_group_hides_its_members_they_hold_what_they_held() -> None:
    groups = [snapshot("a"), snapshot(blocker="the group is PreparingRebalance"), snapshot("a")]
    history = history_of([[0.0]] * 3, [[0.0]] * 3, [["a"], [None], ["a"]], groups)
    assert history.owner[:, 0].tolist() == [0, 0, 0]
    assert history.structure.tolist() == [0, 0, 0]


def test_a_static_member_that_comes_back_is_the_same_one() -> None:
    groups = [snapshot("x1@pod-0", "b"), snapshot("x2@pod-0", "b")]
    history = history_of([[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2, [["x1", "b"], ["x2", "b"]], groups)
    assert history.owner[0].tolist() == history.owner[1].tolist()
    assert history.structure.tolist() == [0, 0]


def busy_history(instance: str = "") -> History:
    """Six snapshots: `a` does 10 records/s and is behind, `b` gets 1 record/s and is not."""
    a, b = f"a{instance and '@' + instance + '-0'}", f"b{instance and '@' + instance + '-1'}"
    steps = np.arange(6) * STEP_S
    ends = [[20 * at, 1 * at] for at in steps]
    lags = [[10_000 + 10 * at, 0.0] for at in steps]
    return history_of(ends, lags, [["a", "b"]] * 6, [snapshot(a, b)] * 6)


def test_a_member_can_do_what_it_did_while_it_was_behind_and_others_are_taken_to_be_like_it() -> None:
    capacities = estimate_speeds(busy_history())
    assert capacities.likely.tolist() == pytest.approx([10.0, 10.0])
    assert capacities.is_observed.tolist() == [True, False]


@pytest.mark.parametrize(
    "is_kept", [True, False], ids=["a partition never known", "another one at each snapshot"]
)
def test_what_is_known_of_a_member_is_a_lower_bound_of_what_it_can_do(is_kept: bool) -> None:
    """`a` does 10 records/s on each of two partitions; of its others, the lag of one is not known."""
    steps = np.arange(6) * STEP_S
    ends = [[20.0 * at] * 4 for at in steps]
    lags: list[list[float | None]] = [[9_000.0 + 10.0 * at] * 4 for at in steps]
    for number, row in enumerate(lags):
        row[3 if is_kept else 2 + number % 2] = None
    history = history_of(ends, lags, [["a"] * 4] * 6, [snapshot("a")] * 6)
    capacities = estimate_speeds(history)
    # Three, or two, of its four partitions are known at both ends of an interval.
    assert capacities.likely.tolist() == pytest.approx([30.0 if is_kept else 20.0])
    assert capacities.is_observed.tolist() == [is_kept]
    (observed,) = simulate_group(history, GroupSettings(), [], Pauses())
    assert observed["num_unknown_partitions"] == int(is_kept)
    assert observed["processed_records"] > 0


def test_a_rule_of_the_policy_says_what_a_member_can_do_relative_to_what_was_seen() -> None:
    capacities = estimate_speeds(busy_history("pod"), np.array([np.nan, 3.0]))
    assert capacities.likely.tolist() == pytest.approx([10.0, 30.0])


def test_when_nobody_was_behind_the_largest_rate_is_a_lower_bound_for_all() -> None:
    ends: list[list[float | None]] = [[300.0 * at, 1200.0 * at] for at in range(4)]
    history = history_of(ends, [[0.0, 0.0]] * 4, [["a", "b"]] * 4, [snapshot("a", "b")] * 4)
    capacities = estimate_speeds(history)
    assert capacities.likely.tolist() == pytest.approx([4.0, 4.0])
    assert not capacities.is_observed.any()


def test_time_lag_is_the_age_of_the_oldest_record_not_processed() -> None:
    """One record a second; the records that existed at first arrived within the observed time lag."""
    ends = [[300.0 * at] for at in range(3)]
    history = history_of(ends, [[60.0], [0.0], [0.0]], [["a"]] * 3, [snapshot("a")] * 3, age_s=120.0)
    backlog = np.array([[[60.0], [60.0]], [[330.0], [100.0]], [[0.0], [450.0]]])
    ages = time_lags_s(history, constant(history, np.ones(1)), backlog)[:, :, 0]
    # 330 behind after 300 came: the oldest is the middle one of the 60 that had come in 120 s before.
    assert ages.tolist() == pytest.approx(np.array([[120.0, 120.0], [360.0, 100.0], [0.0, 450.0]]), abs=0.01)


def skewed(num_snapshots: int = 12, hidden: int | None = None) -> History:
    """GroupSnapshots of `a` with all that is hot and `b` with what is not, both able to do 10 records/s."""
    rates = np.array([8.0, 7.0, 1.0, 1.0])
    steps = np.arange(num_snapshots) * STEP_S
    ends = (rates * steps[:, None]).tolist()
    first = np.array([4_000.0, 4_000.0, 4_000.0, 0.0])
    grows = np.array([3.0, 2.0, -8.0, 0.0])
    lags = (first + grows * steps[:, None]).clip(min=0.0).tolist()
    groups = [snapshot("a", "b")] * num_snapshots
    if hidden is not None:
        groups[hidden] = snapshot(blocker="the group is PreparingRebalance")
    return history_of(ends, lags, [["a", "a", "b", "b"]] * num_snapshots, groups)


def test_the_replay_of_what_really_ran_is_what_was_seen_and_a_policy_by_lag_does_better() -> None:
    history = skewed()
    capacity = np.array([10.0, 10.0])
    policy = parse_candidate("lag-aware-sticky:min_gain=0.05")
    scenario = CandidateScenario(history, NO_PAUSES, policy, policy.settings_for(GroupSettings()))
    simulated = simulate(
        history, [ObservedScenario(history, NO_PAUSES), scenario], constant(history, capacity)
    )
    assert simulated.backlog[:, 0] == pytest.approx(history.lag)
    assert simulated.backlog[-1, 1].sum() < simulated.backlog[-1, 0].sum()
    assert scenario.counts.moves > 0
    arrived = history.arrived.sum()
    for number in range(2):
        left = simulated.backlog[-1, number].sum() - simulated.backlog[0, number].sum()
        assert simulated.processed[:, number].sum() + left == pytest.approx(arrived)


def test_the_model_s_error_is_what_lies_between_the_replay_and_what_was_seen() -> None:
    history = history_of([[0.0]] * 3, [[100.0], [200.0], [400.0]], [["a"]] * 3, [snapshot("a")] * 3)
    error = model_error(history, np.array([[100.0], [100.0], [400.0]]))
    assert (error["median_error"], error["median_error_records"]) == pytest.approx((0.25, 50.0))
    assert model_error(history, history.lag)["p95_error"] == 0.0


def test_snapshots_without_lag_do_not_hide_that_the_model_misses_the_others() -> None:
    """Nine of ten snapshots are idle; the others have 3,000 records, of which the model has a tenth."""
    measured = [[3_000.0 if number % 10 == 9 else 0.0] for number in range(40)]
    history = history_of([[0.0]] * 40, measured, [["a"]] * 40, [snapshot("a")] * 40)
    error = model_error(history, 0.1 * history.lag)
    assert (error["median_error"], error["p95_error"]) == pytest.approx((0.9, 0.9))
    assert (error["median_error_records"], error["p95_error_records"]) == pytest.approx((2_700.0, 2_700.0))
    assert error["num_error_snapshots"] == 4
    # A lag that only the model has is a miss, too.
    idle = history_of([[0.0]] * 40, [[0.0]] * 40, [["a"]] * 40, [snapshot("a")] * 40)
    assert model_error(idle, 0.1 * history.lag)["median_error_records"] == 300.0
    assert model_error(idle, idle.lag)["num_error_snapshots"] == 39


@pytest.mark.parametrize(
    ("owners", "members", "moves", "rebalances"),
    [
        (["ab", "--", "ab"], ["ab", "", "ab"], 0, 1),
        (["ab", "bb"], ["ab", "b"], 0, 1),
        (["ab", "--", "cd"], ["ab", "", "cd"], 0, 1),
        (["ab", "ba"], ["ab", "ab"], 2, 1),
        (["aa", "ac"], ["ab", "abc"], 1, 1),
        (["ab", "a-", "aa"], ["ab", "ab", "a"], 1, 2),
    ],
    ids=["stops", "one leaves", "others come", "swap", "one joins", "revoked, then its owner leaves"],
)
def test_only_a_partition_that_leaves_a_live_owner_moves_as_it_ran(
    owners: list[str], members: list[str], moves: int, rebalances: int
) -> None:
    seen = [[0.0, 0.0]] * len(owners)
    held = [[None if name == "-" else name for name in row] for row in owners]
    history = history_of(seen, seen, held, [snapshot(*names) for names in members])
    scenario = ObservedScenario(history, NO_PAUSES)
    for place in range(len(owners)):
        scenario.step(place, np.zeros(2))
    assert (scenario.counts.moves, scenario.counts.rebalances) == (moves, rebalances)


@pytest.mark.parametrize(
    ("assignor", "stands_s"),
    [("range", [5.0, 5.0, 5.0, 5.0]), ("cooperative-sticky", [1.0, 3.0, 1.0, 1.0])],
    ids=["EAGER stops all", "COOPERATIVE what moves, and the stall of the others"],
)
def test_a_forced_rebalance_stops_what_its_protocol_stops(assignor: str, stands_s: list[float]) -> None:
    groups = [snapshot("a", "b"), snapshot("a", "b", "c")]
    seen = [[0.0] * 4] * 2
    history = history_of(seen, seen, [["a", "a", "b", "b"]] * 2, groups)
    policy = parse_candidate(assignor)
    pauses = Pauses(eager_s=5, moved_s=3, stall_s=1)
    scenario = CandidateScenario(history, pauses, policy, policy.settings_for(GroupSettings()))
    assert scenario.step(0, np.zeros(4)).tolist() == [0.0] * 4
    stands = scenario.step(1, np.zeros(4))
    assert sorted(stands.tolist()) == sorted(stands_s)
    assert (scenario.counts.rebalances, scenario.counts.forced_rebalances) == (1, 1)
    # A new member got one of the four.
    assert np.bincount(scenario.owner, minlength=3).min() == 1


def test_a_policy_by_lag_rests_between_its_own_rebalances() -> None:
    history = skewed()
    moves = []
    for cooldown_s in (0, 100_000):
        policy = parse_candidate(f"lag-aware-sticky:cooldown_s={cooldown_s},min_gain=0.01")
        scenario = CandidateScenario(history, NO_PAUSES, policy, policy.settings_for(GroupSettings()))
        hot = [np.array([9e5, 8e5, 10.0, 10.0]), np.array([9e5, 10.0, 8e5, 10.0])]
        for place in range(12):
            scenario.step(place, hot[place % 2])
        moves.append(scenario.counts.rebalances)
    assert moves[0] > moves[1] == 1


each_requirement = pytest.mark.parametrize(
    ("owners", "settings", "is_made"),
    [
        ([0, 0, 1, 1], {}, False),
        ([0, 0, 0, 1], {"count_slack": 0}, True),
        ([0, 0, 1, -1], {}, True),
        ([0, 0, 1, 0], {"together": (("t", "u"),)}, True),
    ],
    ids=["nothing required", "uneven counts", "a free partition", "topics apart"],
)


@each_requirement
def test_a_replay_holds_plans_by_time_to_the_floor_where_planning_does(
    owners: list[int], settings: dict[str, Any], is_made: bool
) -> None:
    members = [Member(name, ("t", "u")) for name in ("a", "b")]
    group = Group.from_members({"t": 2, "u": 2}, members, lags={"t": [30, 30], "u": [0, 0]})
    group = group.with_state(np.array(owners, dtype=np.int32), group.lag)
    rule = GroupSettings(load=Load.TIME, **settings)
    planner = Planner(parse_candidate(rule.assignor), CandidateSettings(rule, {}))
    work = planner.work(group, np.zeros(4), np.array([10.0, 10.0]), np.zeros(4))
    target = planner.target(group, np.zeros(4), np.zeros(4, dtype=np.bool_), work)
    assert planner.time_plan is not None
    assert planner.time_plan.net_record_s < rule.min_saved_record_s
    assert np.bincount(target, group.lag).tolist() == ([30, 30] if is_made else [60, 0])
    assert planner.passes_gates(group, target) is is_made


@each_requirement
def test_an_idle_group_gets_the_plans_in_a_replay_that_are_made_whatever_they_save(
    owners: list[int], settings: dict[str, Any], is_made: bool
) -> None:
    group = Group.from_members({"t": 2, "u": 2}, [Member(name, ("t", "u")) for name in ("a", "b")])
    group = group.with_state(np.array(owners, dtype=np.int32), group.lag)
    rule = GroupSettings(**settings)
    planner = Planner(parse_candidate(rule.assignor), CandidateSettings(rule, {}))
    target = planner.target(group, np.zeros(4), np.zeros(4, dtype=np.bool_))
    assert bool((target != group.live_owner).any()) is is_made
    assert np.bincount(target).tolist() == [2, 2]
    assert planner.passes_gates(group, target) is is_made


def test_a_group_is_scored_and_replayed_under_each_policy_or_says_why_not() -> None:
    compared = [parse_candidate(name) for name in ("range", "lag-aware-sticky")]
    history = skewed(hidden=3)
    moments = list(score_group(history, GroupSettings(), compared))
    assert sorted({each.columns["policy"] for each in moments}) == ["lag-aware-sticky", "observed", "range"]
    reasons = [(each.places.tolist(), each.columns["reason"]) for each in moments if "reason" in each.columns]
    assert reasons == [([3], "the group is PreparingRebalance")] * 3
    rows = simulate_group(history, GroupSettings(), compared, Pauses())
    assert [row["policy"] for row in rows] == ["observed", "range", "lag-aware-sticky"]
    assert rows[0]["median_error"] is not None
    assert len(rows[1]["lag_records"]) == 12
    assert all(row["lag_records"][0] == 12_000 for row in rows)
    for row in rows:
        names = [f"{each}_member_lag_records" for each in ("least", "max", "most")]
        assert all(least <= likely <= most for least, likely, most in zip(*map(row.get, names), strict=True))
        peaks = [row[f"{each}peak_member_lag_records"] for each in ("least_", "", "most_")]
        assert peaks == [max(row[name]) for name in names]
        assert row["least_record_s"] <= row["record_s"] <= row["most_record_s"]
    assert (
        "at least two snapshots"
        in simulate_group(skewed(1), GroupSettings(), compared, Pauses())[0]["reason"]
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lag-awar", "did you mean 'lag-aware'"),
        ("range:max_move=3", "'max_move=3' is not key=value with a key of range: cooldown_s, count_slack"),
        ("range:effort=3", "'effort=3' is not key=value with a key of range: cooldown_s, .*, min_gain$"),
        ("lag-aware:min_gain=2", "min_gain: Input should be less than 1"),
        ("lag-aware:count_slack=x", "count_slack cannot be 'x'"),
        ("lag-aware-sticky:effort=-1", "effort must be from 0 to below 2147483648: -1"),
    ],
)
def test_a_policy_that_cannot_be_compared_is_told_with_what_there_is(name: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_candidate(name)


def test_what_a_policy_leaves_open_comes_from_the_group_s_rule() -> None:
    rule = GroupSettings(max_moves=7, capacities=(CapacityRule(match="big", capacity=2),))
    own = parse_candidate("lag-aware-sticky: count_slack=2").settings_for(rule)
    assert (own.rule.max_moves, own.rule.count_slack, own.rule.capacity_of("big")) == (7, 2, 2.0)
    other = parse_candidate("range").settings_for(rule)
    assert (other.rule.assignor, other.rule.max_moves, other.rule.capacities) == ("range", 7, ())
    assert parse_candidate("range").settings_for(rule).canonical_json() == other.canonical_json()
