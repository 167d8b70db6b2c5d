"""What is made of snapshots: speeds, moments of arrivals and bounds, beside calculated and exact cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from evenlag.policy.settings import Pauses
from evenlag.simulation.estimates import Case, KnownSpeeds, estimate, estimate_speeds, known_speeds
from evenlag.simulation.fluid_model import Servers, advance, simulate
from evenlag.simulation.history import sum_by_member
from evenlag.simulation.scenarios import ObservedScenario
from tests.support.each import for_each
from tests.support.lakes.replay_histories import START_S, history_of, snapshot
from tests.support.probed_replay import simulate_probed
from tests.support.simulated_scenarios import FixedOwners

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evenlag.simulation.fluid_model import Simulated
    from evenlag.simulation.history import History
    from evenlag.simulation.scenarios import Scenario

    Floats = NDArray[np.float64]

NO_PAUSES = Pauses(eager_s=0, moved_s=0, stall_s=0)
# A hundred seconds of work at 10 records/s, of which each interval of ten seconds takes 100.
DRAIN = [1_000.0 - 100.0 * number for number in range(11)]


def of_one_member(
    ends: list[float], lags: list[float], *, starts: list[list[float]] | None = None
) -> History:
    """Build a history of one member and one partition with a snapshot each ten seconds."""
    size = len(ends)
    return history_of(
        [[end] for end in ends], [[lag] for lag in lags], [["a"]] * size, [snapshot("a")] * size,
        at_s=[10.0 * number for number in range(size)], starts=starts,
    )  # fmt: skip


def replayed(history: History, *owners: list[int]) -> Simulated:
    """Replay what really ran, then owners that stay."""
    estimates = estimate(history)
    scenarios: list[Scenario] = [ObservedScenario(history, NO_PAUSES, estimates.has_stops)]
    scenarios += map(FixedOwners, owners)
    return simulate(history, scenarios, estimates)


def test_a_member_is_behind_by_what_it_consumes_and_not_by_what_arrives() -> None:
    """It takes 10 records/s: 150 are more than ten seconds of it, also where 16/s arrive."""
    history = history_of(
        [[1_000.0], [1_320.0], [1_400.0], [1_720.0], [1_800.0]],
        [[150.0], [270.0], [150.0], [270.0], [150.0]],
        [["a"]] * 5,
        [snapshot("a")] * 5,
        at_s=[20.0 * number for number in range(5)],
    )
    estimates = estimate(history)
    assert estimates.is_observed.tolist() == [True]
    assert estimates.speed[Case.LIKELY, :, 0] == pytest.approx([10.0] * 4)


def test_the_records_of_a_commit_may_have_been_processed_before_its_interval() -> None:
    """It never waits: in 20 s it commits 400 records, of which 100 may be of the commit interval before."""
    ends = [float(400 * number) for number in range(5)]
    history = history_of(
        [[end] for end in ends], [[0.0]] * 5, [["a"]] * 5, [snapshot("a")] * 5,
        at_s=[20.0 * number for number in range(5)],
    )  # fmt: skip
    found = estimate_speeds(history)
    assert found.likely.tolist() == [pytest.approx(20.0)]
    assert found.low.tolist() == [pytest.approx(15.0)]


def test_a_burst_before_a_snapshot_came_when_the_member_can_last_have_been_idle() -> None:
    """500 of 520 are behind: at 10 records/s the 20 took the last two seconds."""
    history = of_one_member([1_000.0] * 11 + [1_520.0, 1_520.0], [*DRAIN, 500.0, 400.0])
    estimates = estimate(history)
    assert estimates.speed[Case.LIKELY, 10, 0] == pytest.approx(10.0)
    assert estimates.arrived_by(Case.LIKELY, 10, 8.0)[0] == pytest.approx(0.0, abs=1e-6)
    assert estimates.arrived_by(Case.LIKELY, 10, 9.0)[0] == pytest.approx(260.0)
    simulated = replayed(history)
    assert simulated.backlog[:, 0, 0] == pytest.approx(history.lag[:, 0])
    # All may have come at once then, or the 20 before and the 500 at the last moment.
    assert estimates.arrived_by(Case.LEAST, 10, 9.0)[0] == pytest.approx(520.0)
    assert estimates.arrived_by(Case.MOST, 10, 9.0)[0] == pytest.approx(10.0, rel=0.05)
    least, most = simulated.max_member_lag[Case.LEAST :, 11, 0]
    assert least <= 500.0 <= most <= 520.0


def test_of_a_burst_that_is_processed_by_the_next_snapshot_the_lag_between_is_open() -> None:
    """60 records came and went in ten seconds: at five there were up to 60, or none."""
    history = of_one_member([1_000.0] * 11 + [1_060.0], [*DRAIN, 0.0])
    estimates = estimate(history)
    middle = np.array([START_S + 105.0])
    scenario = ObservedScenario(history, NO_PAUSES, estimates.has_stops)
    _, (probed,) = simulate_probed(history, [scenario], estimates, middle)
    assert probed[:, 0] == pytest.approx([0.0, 0.0, 50.0], abs=1.0)


def test_a_commit_that_goes_back_brings_the_records_back_to_all_and_they_wait_anew() -> None:
    history = of_one_member([1_000.0] * 14, [*DRAIN, 600.0, 500.0, 400.0])
    assert history.went_back[:, 0].tolist() == [False] * 11 + [True, False, False]
    simulated = replayed(history, [-1])
    # Who never processed anything continues where the offset was set, too.
    assert simulated.backlog[11:, :, 0].tolist() == [[600.0, 600.0], [500.0, 600.0], [400.0, 600.0]]
    # The 600 wait again: 100 for up to 10 s, 100 for up to 20, and 400 until the end after 20.
    waiting = simulated.waiting[0]
    assert (waiting.num_records, waiting.worst_s) == pytest.approx((600.0, 20.0))
    assert waiting.record_s == pytest.approx((600 + 500) / 2 * 10 + (500 + 400) / 2 * 10)


def test_a_commit_that_skips_records_is_no_speed_and_skips_them_for_all() -> None:
    history = of_one_member([5_000.0] * 8, [5_000.0 - 100.0 * number for number in range(6)] + [0.0, 0.0])
    estimates = estimate(history)
    assert estimates.speed[Case.LIKELY, :, 0] == pytest.approx([10.0] * 7)
    assert estimates.is_set[:, 0].tolist() == [False] * 6 + [True, False]
    assert replayed(history, [-1]).backlog[5:7, 1, 0].tolist() == [5_000.0, 0.0]


def test_what_retention_deletes_is_lost_and_not_processed() -> None:
    """At 60 s the log begins at 900: 300 records that waited are gone, and 100 are left."""
    starts = [[0.0]] * 6 + [[900.0]] * 2
    history = of_one_member([1_000.0] * 8, [*DRAIN[:6], 100.0, 0.0], starts=starts)
    assert history.may_lose[:, 0].tolist() == [False] * 6 + [True, False]
    simulated = replayed(history, [-1])
    assert estimate(history).speed[Case.LIKELY, :, 0] == pytest.approx([10.0] * 7)
    assert simulated.backlog[6:, :, 0].tolist() == [[100.0, 100.0], [0.0, 100.0]]
    assert simulated.processed[:, 0, 0].sum() == pytest.approx(700.0)


def test_a_snapshot_that_knows_no_lag_does_not_hide_what_was_processed_around_it() -> None:
    lags: list[list[float | None]] = [[lag] for lag in DRAIN[:8]]
    lags[4] = [None]
    groups = [snapshot("a")] * 8
    groups[4] = snapshot(blocker="the group is PreparingRebalance")
    at_s = [10.0 * number for number in range(8)]
    history = history_of([[1_000.0]] * 8, lags, [["a"]] * 8, groups, at_s=at_s)
    assert estimate(history).speed[Case.LIKELY, :, 0] == pytest.approx([10.0] * 7)


def test_a_busy_member_processes_its_partitions_as_it_did_and_not_evenly() -> None:
    """It takes 80 of the first and 20 of the second in each interval."""
    lags = [[1_000.0 - 80.0 * number, 1_000.0 - 20.0 * number] for number in range(6)]
    at_s = [10.0 * number for number in range(6)]
    history = history_of([[1_000.0] * 2] * 6, lags, [["a", "a"]] * 6, [snapshot("a")] * 6, at_s=at_s)
    assert replayed(history).backlog[:, 0] == pytest.approx(np.array(lags))


def test_a_group_that_comes_back_between_snapshots_processed_what_it_committed() -> None:
    groups = [snapshot("a")] * 6
    groups[3] = snapshot()
    owners: list[list[str | None]] = [["a"], ["a"], ["a"], [None], ["a"], ["a"]]
    lags = [[lag] for lag in DRAIN[:6]]
    history = history_of([[1_000.0]] * 6, lags, owners, groups, at_s=[10.0 * each for each in range(6)])
    assert replayed(history).backlog[:, 0, 0] == pytest.approx(history.lag[:, 0])


NUM_ROWS, NUM_MEMBERS, EVERY_S = 6, 2, 20
SPEED = 10.0


def exact_lag(arrivals: Floats, first: Floats, owner: NDArray[np.int64]) -> Floats:
    """Simulate second by second: [T + 1, P]."""
    lag = np.vstack([first, np.zeros(arrivals.shape)])
    for second, records in enumerate(arrivals):
        lag[second + 1] = advance(
            lag[second], arrival=records, servers=Servers(owner), capacity=np.full(NUM_MEMBERS, SPEED),
            ready_s=np.zeros(NUM_ROWS), duration_s=1.0,
        ).backlog  # fmt: skip
    return lag


@for_each(range(20))
def test_the_bounds_contain_the_lag_at_each_second_whenever_records_came(seed: int) -> None:
    """Bursts of up to 30 s of work in a second; at first all are behind, so that speeds are seen."""
    chance = np.random.default_rng(seed)
    length_s = 300
    arrivals = np.full((length_s, NUM_ROWS), 1.0)
    arrivals[chance.integers(100, length_s, 8), chance.integers(0, NUM_ROWS, 8)] += chance.uniform(20, 300, 8)
    owner = np.arange(NUM_ROWS) % NUM_MEMBERS
    others = chance.permutation(owner)
    first = np.full(NUM_ROWS, 400.0)
    lag, other_lag = exact_lag(arrivals, first, owner), exact_lag(arrivals, first, others)
    seen = np.arange(0, length_s + 1, EVERY_S)
    ends = np.vstack([first, first + np.cumsum(arrivals, axis=0)])[seen]
    names = "ab"
    history = history_of(
        ends.tolist(), lag[seen].tolist(), [[names[number] for number in owner]] * len(seen),
        [snapshot("a", "b")] * len(seen), at_s=seen.astype(float).tolist(),
    )  # fmt: skip
    estimates = estimate(history)
    seconds = np.arange(length_s, dtype=np.float64)
    scenarios: list[Scenario] = [
        ObservedScenario(history, NO_PAUSES, estimates.has_stops),
        FixedOwners(others.tolist()),
    ]
    simulated, probed = simulate_probed(history, scenarios, estimates, START_S + seconds)
    for number, (exact, held) in enumerate(((lag, owner), (other_lag, others))):
        of_second = np.broadcast_to(held, exact.shape).astype(np.int32)
        true = sum_by_member(of_second, np.ones(exact.shape, np.bool_), exact, NUM_MEMBERS).max(axis=1)
        assert (probed[:, Case.LEAST, number] <= true[:-1] + 1.0).all()
        assert (probed[:, Case.MOST, number] >= true[:-1] - 1.0).all()
        at_snapshots = simulated.max_member_lag[:, :, number]
        assert (at_snapshots[Case.LEAST] <= true[seen] + 1.0).all()
        assert (at_snapshots[Case.MOST] >= true[seen] - 1.0).all()
        # The area under the lag, too.
        area = (exact[1:] + exact[:-1]).sum() / 2
        bounds = simulated.lag_records_s[:, :, number].sum(axis=1)
        assert bounds[Case.LEAST] <= area * 1.01
        assert bounds[Case.MOST] >= area * 0.99


def test_who_was_not_busy_in_the_period_has_the_speed_of_the_table() -> None:
    """`a` processes 10 records/s of a backlog; `b` gets 2 records/s and keeps up."""
    ends = [[1_000.0, 20.0 * number] for number in range(6)]
    lags = [[900.0 - 100.0 * number, 0.0] for number in range(6)]
    history = history_of(
        ends, lags, [["a", "b"]] * 6, [snapshot("a", "b")] * 6, at_s=[10.0 * n for n in range(6)]
    )

    def likely(*known: tuple[float, bool]) -> list[float]:
        speeds, bounds = zip(*known, strict=True)
        found = estimate_speeds(history, known=KnownSpeeds(np.array(speeds), np.array(bounds)))
        low, high = found.low[1], found.high[1]
        assert low <= found.likely[1] <= high
        return [float(each) for each in found.likely]

    # Without any the others' median; what was seen in the period wins.
    assert likely((np.nan, False), (np.nan, False)) == pytest.approx([10.0, 10.0])
    assert likely((50.0, False), (40.0, False)) == pytest.approx([10.0, 40.0])
    # Of a lower bound the larger one of both.
    assert likely((np.nan, False), (3.0, True)) == pytest.approx([10.0, 10.0])
    assert likely((np.nan, False), (30.0, True)) == pytest.approx([10.0, 30.0])


def test_the_newest_known_speed_of_each_member_is_taken() -> None:
    import pyarrow as pa

    history = history_of([[1.0]] * 2, [[0.0]] * 2, [["a"]] * 2, [snapshot("a", "b@i", "c")] * 2)
    rows = pa.table(
        {
            "snapshot_id": ["2", "1", "1", "2", "1"],
            "member_id": ["a", "a", "b", "b-again", "c"],
            "group_instance_id": [None, None, "i", "i", None],
            "speed_records_per_s": [5.0, 4.0, 7.0, None, None],
            "speed_is_bound": [True, False, False, None, None],
        }
    )
    found = dict(zip(history.member_keys, zip(*known_speeds(rows, history), strict=True), strict=True))
    assert (found["m:a"], found["i:i"]) == ((5.0, True), (7.0, False))
    assert np.isnan(found["m:c"][0])
