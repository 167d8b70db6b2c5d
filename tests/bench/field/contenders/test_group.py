"""Groups in simulation: processes, rebalances and their costs, of all contenders and calculated ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.bench.field.contenders import NAMES, chosen_settings, make_contender
from tests.bench.field.contenders.kafka_assignors import CooperativeSticky, Range, with_more_processes
from tests.bench.field.simulator import ANY, run
from tests.bench.field.timings import clients
from tests.bench.field.traces import SIZES, Pod, Trace, make_trace
from tests.support.each import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.field.contenders.group import GroupContender

GROUPS = tuple(name for name in NAMES if name != "bound")
END_S = 120
# With this seed the random ids of the first processes are in the order of the processes.
ORDERED = 5


def small_trace(
    changes: Sequence[tuple[int, tuple[int, ...]]],
    instance_ids: Sequence[str | None],
    outages: tuple[tuple[int, int], ...] = (),
) -> Trace:
    """Return a trace of 12 partitions and a record a second on each of 24 keys."""
    keys = tuple(b"key-%d" % number for number in range(24))
    pods = tuple(Pod(f"pod-{number}", each, 20.0) for number, each in enumerate(instance_ids))
    return Trace(
        name="walks",
        seed=ORDERED,
        utilisation=0.5,
        duration_s=END_S,
        warm_up_s=0,
        keys=keys,
        counts=np.ones((END_S, len(keys)), dtype=np.int64),
        cost=np.ones(len(keys)),
        pods=pods,
        changes=tuple(changes),
        outages=outages,
        num_partitions=12,
    )


def steps(contender: GroupContender, until_s: float = END_S) -> Iterator[float]:
    """Ask a contender whenever it wants, with no lag, and yield the times."""
    nothing = np.zeros(len(contender.owner), dtype=np.int64)
    now_s = 0.0
    while now_s < until_s:
        contender.act(now_s, nothing, nothing)
        yield now_s
        now_s = contender.next_s


CHANGES = ((0, (0, 1, 2)), (20, (0, 1)), (40, (0, 1, 3)), (60, (0, 3)), (80, (0, 1, 3)))
IDS = (None, "static-1", None, None)


@for_each(GROUPS)
def test_all_partitions_have_a_running_owner_in_the_end(name: str) -> None:
    trace = small_trace(CHANGES, IDS)
    contender: Any = make_contender(name, trace)
    for _ in steps(contender, 119.0):
        assert ((contender.owner < len(contender.speed)) & (contender.owner >= ANY)).all()
    assert (contender.ready_s <= 119.0).all()
    if name == "share-p1":
        assert (contender.owner == ANY).all()
        assert np.flatnonzero(contender.speed).tolist() == [0, 1, 3]
    else:
        assert (contender.owner >= 0).all()
        assert (contender.speed[contender.owner] > 0).all()


@for_each(GROUPS)
def test_a_run_repeats(name: str) -> None:
    trace = make_trace("churn", 5, 0.75, SIZES["smoke"])
    first, second = run([trace, trace], [make_contender(name, trace) for _ in range(2)])
    one, two = first.figures(), second.figures()
    assert one.pop("balancer_cpu_s") >= 0
    two.pop("balancer_cpu_s")
    assert one == two


def test_a_leaver_frees_its_partitions_until_the_next_rebalance() -> None:
    contender = CooperativeSticky(small_trace(((0, (0, 1, 2)), (20, (0, 1))), (None,) * 3))
    held = contender.owner == 2
    assert held.sum() == 4
    freed_s = [now_s for now_s in steps(contender) if (contender.owner[held] == -1).all()]
    assert freed_s == [20.0]
    # The last heartbeat of the others is at most 3 s away.
    assert (contender.ready_s[held] > 20.0).all()
    assert (contender.ready_s[held] <= 23.2).all()
    assert contender.counts.moves == 4
    assert contender.counts.rebalances == 1


def test_a_static_member_keeps_its_partitions_for_the_session_timeout() -> None:
    back = CooperativeSticky(small_trace(((0, (0, 1)), (20, (0,)), (50, (0, 1))), (None, "static-1")))
    held = back.owner == 1
    for _ in steps(back):
        assert (back.owner[held] == 1).all()
    assert back.counts.rebalances == 0
    assert back.speed[1] > 0
    gone = CooperativeSticky(small_trace(((0, (0, 1)), (20, (0,))), (None, "static-1")))
    freed_s = next(now_s for now_s in steps(gone) if (gone.owner[held] != 1).all())
    assert freed_s == 65.0


def test_a_classic_rebalance_waits_for_a_static_member_that_is_away() -> None:
    changes = ((0, (0, 1, 2)), (20, (0, 2)), (25, (0,)), (50, (0, 1)))
    ids = (None, "static-1", None)
    classic: Any = CooperativeSticky(small_trace(changes, ids))
    held = classic.owner == 2
    taken_s = next(now_s for now_s in steps(classic) if now_s > 25 and (classic.owner[held] >= 0).all())
    assert 50.0 < taken_s < 54.0
    newer: Any = make_contender("uniform", small_trace(changes, ids))
    taken_s = next(now_s for now_s in steps(newer) if now_s > 25 and (newer.owner[held] >= 0).all())
    assert taken_s < 31.0


def test_an_eager_rebalance_stops_all_from_each_heartbeat_to_the_last() -> None:
    contender = Range(small_trace(((0, (0, 1)), (20, (0, 1, 2))), (None,) * 3))
    assert contender.owner.tolist() == [0] * 6 + [1] * 6
    owners = {now_s: contender.owner.tolist() for now_s in steps(contender)}
    stopped = [now_s for now_s, owner in owners.items() if set(owner) == {-1}]
    assert len(stopped) >= 1
    assert contender.owner.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert (contender.ready_s == max(owners)).all()


def test_a_cooperative_join_stops_what_moves_for_longer_than_the_rest() -> None:
    contender = CooperativeSticky(small_trace(((0, (0, 1)), (20, (0, 1, 2))), (None,) * 3))
    before = contender.owner.copy()
    for _ in steps(contender):
        pass
    moved = contender.owner != before
    assert np.bincount(contender.owner).tolist() == [4, 4, 4]
    assert moved.sum() == 4
    assert contender.ready_s[moved].min() >= contender.ready_s[~moved].max() - 0.5
    measured = clients()["java"].join.follow
    assert (contender.ready_s[moved] - 20 >= measured.least).all()
    assert (contender.ready_s[moved] - 20 <= measured.largest).all()


def test_after_an_outage_the_group_begins_again() -> None:
    contender = CooperativeSticky(small_trace(((0, (0, 1)),), (None, None), outages=((30, 60),)))
    for now_s in steps(contender):
        assert contender.speed.any() == (not 30 <= now_s < 60)
    assert np.bincount(contender.owner).tolist() == [6, 6]
    assert contender.ready_s.min() >= 60.0 + clients()["java"].join.follow.least


@for_each([(1.25, 1), (2.0, 3)])
def test_clones_follow_their_originals(case: tuple[float, int]) -> None:
    factor, num_clones = case
    trace = small_trace(((0, (0, 1, 2)), (20, (0, 1)), (40, (0, 1, 3)), (60, (0, 3))), (None,) * 4)
    running = [set(pods) for _, pods in with_more_processes(trace, factor).changes]
    assert running[0] == {0, 1, 2, *range(4, 4 + num_clones)}
    assert [pods & {0, 1, 2, 3} for pods in running if len(pods) != len(running[0])]
    # Process 3 takes the place of 2, and its clone with it; in the end the place of 1 is free.
    assert running[-1] == {0, 3, 4, *([6] if factor == 2.0 else [])}


def test_settings_name_their_source() -> None:
    assert set(chosen_settings()) < set(NAMES)
