"""Where partitions go: by the hint when it fits, else by fresh loads, else by cooperative-sticky."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.group import Group
from assignor_core.hint import HintPayload, encode_hint, fingerprint
from assignor_core.loads import LoadFlow, Loads, LoadsPayload
from assignor_core.members import Member
from assignor_core.partition_spans import PartitionSpans
from assignor_core.protocol import cooperative_step, next_round
from evenlag.consumer.cache import HintCache, HintView
from evenlag.consumer.events import Reason
from evenlag.consumer.target_selection import choose_target, group_fingerprint, place_free

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T_ID, U_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
IDS = {"t": T_ID, "u": U_ID}
NOW_MS = 1_000_000
Held = tuple[tuple[str, int], ...]


def owned(*numbers: int, topic: str = "t") -> Held:
    return tuple((topic, number) for number in numbers)


def group_of(*held: Held, num_partitions: int = 4) -> Group:
    """Members a, b, … that all take t; what they hold is of generation 5."""
    members = [Member(chr(97 + i), ("t",), owned=h, generation=5) for i, h in enumerate(held)]
    return Group.from_members({"t": num_partitions}, members)


def payload_for(group: Group, placement: Mapping[str, Sequence[int]], **changes: Any) -> HintPayload:
    fields: dict[str, Any] = {
        "cluster_id": "cluster",
        "group_id": "g",
        "snapshot_id": "s",
        "fingerprint": group_fingerprint(group, IDS) or "",
        "assignment": {f"m:{name}": {T_ID: tuple(numbers)} for name, numbers in placement.items()},
        "count_slack": 10,
        "max_moves": 10,
    }
    return HintPayload(**{**fields, **changes})


def view_of(payload: HintPayload, *, expires_at_ms: int = NOW_MS + 1, issued_at_ms: int = 0) -> HintView:
    cache = HintCache("g")
    value = encode_hint(payload.encode(), sequence=1, issued_at_ms=issued_at_ms, expires_at_ms=expires_at_ms)
    cache.apply_hint(value)
    cache.mark_ready()
    return cache.view


def counts(target: np.ndarray[Any, Any], num_members: int) -> list[int]:
    return [int(count) for count in np.bincount(target, minlength=num_members)]


def test_a_hint_that_fits_is_followed() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    decision = choose_target(
        group, view_of(payload_for(group, {"a": [0], "b": [1, 2, 3]})), IDS, now_ms=NOW_MS
    )
    assert decision.reason is Reason.FOLLOWED
    assert decision.target.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "placement", "reason"),
    [
        ({"fingerprint": "0" * 64}, {"a": [0], "b": [1, 2, 3]}, Reason.FINGERPRINT),
        ({"max_moves": 0}, {"a": [0], "b": [1, 2, 3]}, Reason.MAX_MOVES),
        ({"count_slack": 0}, {"a": [], "b": [0, 1, 2, 3]}, Reason.COUNT_SLACK),
        ({}, {"a": [0], "x": [1, 2, 3]}, Reason.MISMATCH),
        ({}, {"a": [0], "b": [1, 2, 7]}, Reason.MISMATCH),
        ({}, {"a": [0], "b": [1, 2]}, Reason.INVALID),
        ({"assignment": {"m:a": {U_ID: (0,)}}}, {}, Reason.MISMATCH),
    ],
)
def test_a_hint_that_does_not_fit_is_refused_and_the_group_balanced(
    changes: dict[str, Any], placement: dict[str, list[int]], reason: Reason
) -> None:
    group = group_of(owned(0, 1, 2, 3), ())
    changes = {"count_slack": 1} | changes
    decision = choose_target(group, view_of(payload_for(group, placement, **changes)), IDS, now_ms=NOW_MS)
    assert decision.reason is reason, decision.detail
    assert decision.plan_id is not None
    # Nothing of an ignored hint steers, its slack included.
    assert counts(decision.target, 2) == [2, 2]


def test_a_hint_that_separates_topics_that_stay_together_is_refused() -> None:
    members = [Member(name, ("t", "u"), owned=owned(n), generation=1) for n, name in enumerate("ab")]
    for counts_of, last, reason, detail in (
        ({"t": 2, "u": 2}, {"a": [0], "b": [1]}, Reason.FOLLOWED, "0 moves"),
        ({"t": 2, "u": 2}, {"a": [1], "b": [0]}, Reason.INVALID, "2 partitions are with another member"),
        ({"t": 2, "u": 3}, {"a": [0], "b": [1, 2]}, Reason.INVALID, "have 2 and 3 partitions"),
    ):
        group = Group.from_members(counts_of, members)
        placed = {f"m:{n}": {T_ID: [i], U_ID: last[n]} for i, n in enumerate("ab")}
        payload = payload_for(group, {}, assignment=placed, together=[[T_ID, U_ID]])
        decision = choose_target(group, view_of(payload), IDS, now_ms=NOW_MS)
        assert decision.reason is reason, decision.detail
        assert detail in decision.detail


def test_an_expired_hint_is_not_started_but_finished_and_kept() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    view = view_of(payload_for(group, {"a": [0], "b": [1, 2, 3]}), expires_at_ms=NOW_MS)
    assert choose_target(group, view, IDS, now_ms=NOW_MS).reason is Reason.EXPIRED
    for half_way in (group_of(owned(0), owned(2, 3)), group_of(owned(0), owned(1, 2, 3))):
        decision = choose_target(half_way, view, IDS, now_ms=NOW_MS)
        assert decision.reason is Reason.FOLLOWED
        assert decision.target.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("count_slack", [1, 2, 3, 2**31 - 1])
@pytest.mark.parametrize("expired_ms", [-1, 90 * 86_400_000])
@pytest.mark.parametrize("is_ours", [True, False])
def test_the_slack_of_a_hint_does_not_leave_newcomers_empty(
    count_slack: int, expired_ms: int, *, is_ours: bool
) -> None:
    four = group_of(*(owned(2 * i, 2 * i + 1) for i in range(4)), num_partitions=8)
    changes = {} if is_ours else {"fingerprint": "0" * 64}
    placement = {chr(97 + i): [2 * i, 2 * i + 1] for i in range(4)}
    payload = payload_for(four, placement, count_slack=count_slack, **changes)
    view = view_of(payload, expires_at_ms=NOW_MS)
    eight = group_of(*(owned(2 * i, 2 * i + 1) for i in range(4)), *[()] * 4, num_partitions=8)
    decision = choose_target(eight, view, IDS, now_ms=NOW_MS + expired_ms)
    assert decision.reason is Reason.FINGERPRINT
    assert counts(decision.target, 8) == [1] * 8


def test_an_expired_hint_does_not_place_a_fresh_group() -> None:
    fresh = group_of((), (), (), (), num_partitions=12)
    placement = {"a": list(range(9)), "b": [9], "c": [10], "d": [11]}
    view = view_of(payload_for(fresh, placement), expires_at_ms=NOW_MS)
    decision = choose_target(fresh, view, IDS, now_ms=NOW_MS + 180 * 86_400_000)
    assert decision.reason is Reason.EXPIRED
    assert counts(decision.target, 4) == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("held", "max_moves", "has_begun"),
    [
        ((owned(0), owned(1, 2)), 1, True),  # one partition is free
        ((owned(0), owned(1)), 1, False),  # two are, and one may move
        ((owned(0), owned(1)), 2, True),
        ((owned(0, 1), owned(2, 3)), 2, False),  # partition 1 is not given up yet: nothing has begun
        (((), ()), 10, False),
    ],
)
def test_an_expired_hint_has_begun_when_all_claims_are_within_its_parts(
    held: tuple[Held, ...], max_moves: int, *, has_begun: bool
) -> None:
    group = group_of(*held)
    payload = payload_for(group, {"a": [0], "b": [1, 2, 3]}, max_moves=max_moves)
    decision = choose_target(group, view_of(payload, expires_at_ms=NOW_MS), IDS, now_ms=NOW_MS)
    assert (decision.reason is Reason.FOLLOWED) == has_begun


def test_a_hint_of_millions_of_partitions_is_refused_before_it_is_expanded() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    payload = payload_for(group, {}, assignment={"m:a": {T_ID: PartitionSpans.parse("0-1999998")}})
    tracemalloc.start()
    try:
        decision = choose_target(group, view_of(payload), IDS, now_ms=NOW_MS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert decision.reason is Reason.MISMATCH
    assert decision.target.tolist() == [0, 0, 1, 1]
    assert peak < 1_000_000


def test_a_hint_is_judged_by_the_clock_at_each_use() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    view = view_of(payload_for(group, {"a": [0], "b": [1, 2, 3]}), issued_at_ms=NOW_MS)
    assert choose_target(group, view, IDS, now_ms=NOW_MS - 300_000).reason is Reason.FOLLOWED
    decision = choose_target(group, view, IDS, now_ms=NOW_MS - 300_001)
    assert decision.reason is Reason.FUTURE
    assert decision.target.tolist() == [0, 0, 1, 1]


HEAVY = (100, 1, 1, 1, 1, 1, 1, 1)


def with_loads(view: HintView, **changes: Any) -> HintView:
    fields: dict[str, Any] = {
        "cluster_id": "cluster", "group_id": "g", "snapshot_id": "s", "measured_at_ms": NOW_MS,
        "valid_until_ms": NOW_MS + 60_000, "loads": {T_ID: HEAVY}, "capacities": {}, "default_capacity": 1,
        "count_slack": 6, "max_moves": 2,
    }  # fmt: skip
    payload = LoadsPayload(**{**fields, **changes})
    return replace(view, loads=Loads(payload, payload.encode(), signed=False))


def test_without_a_hint_that_fits_partitions_are_placed_by_load() -> None:
    """The heavy partition alone, and the seven light ones together: by counts it would be 4 and 4."""
    fresh = group_of((), (), num_partitions=8)
    for view in (
        HintView(is_cold=False),
        view_of(payload_for(fresh, {"a": [], "b": []}, fingerprint="0" * 64)),
    ):
        decision = choose_target(fresh, with_loads(view), IDS, now_ms=NOW_MS)
        assert decision.reason is Reason.PLACED_BY_LOAD
        assert decision.hint_reason is (Reason.NO_HINT if view.hint is None else Reason.FINGERPRINT)
        assert decision.target.tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


def test_partitions_are_placed_by_what_their_loads_are_now() -> None:
    """The heavy partition is processed within ten seconds, and the last one grows to its size."""
    fresh = group_of((), (), num_partitions=8)
    flow = LoadFlow({T_ID: [0] * 7 + [10]}, {T_ID: [0] + [None] * 7}, [10], per_s=1, horizon_s=0)
    view = with_loads(HintView(is_cold=False), flow=flow)
    decision = choose_target(fresh, view, IDS, now_ms=NOW_MS + 10_000)
    assert decision.target.tolist() == [1, 1, 1, 1, 1, 1, 1, 0]
    assert choose_target(fresh, view, IDS, now_ms=NOW_MS).target.tolist() == [0, 1, 1, 1, 1, 1, 1, 1]


def test_loads_that_are_not_fresh_or_stopped_do_not_steer() -> None:
    fresh = group_of((), (), num_partitions=8)
    view = HintView(is_cold=False)
    for changes in ({"valid_until_ms": NOW_MS}, {"measured_at_ms": NOW_MS + 300_001}):
        decision = choose_target(fresh, with_loads(view, **changes), IDS, now_ms=NOW_MS)
        assert decision.reason is Reason.LOADS_STALE
        assert counts(decision.target, 2) == [4, 4]
    stopped = replace(with_loads(view), is_stopped=True)
    for ids, each in ((IDS, stopped), ({}, with_loads(view))):
        decision = choose_target(fresh, each, ids, now_ms=NOW_MS)
        assert decision.reason is Reason.NO_HINT
        assert counts(decision.target, 2) == [4, 4]


def test_a_hint_that_fits_goes_before_loads() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    view = with_loads(view_of(payload_for(group, {"a": [0], "b": [1, 2, 3]})), loads={T_ID: (1, 1, 1, 1)})
    assert choose_target(group, view, IDS, now_ms=NOW_MS).target.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("generation", "loads", "is_uneven"),
    [
        (4, (10, 10, 10, 1, 1, 1, 1, 1), True),
        # The sync was in time, so that what the member keeps is what the first round left it.
        (5, (10, 10, 10, 1, 1, 1, 1, 1), False),
        # It missed a round, but no more could be gained.
        (4, (1, 1, 1, 1, 1, 1, 1, 1), False),
    ],
)
def test_one_more_rebalance_is_due_where_a_member_that_missed_a_round_keeps_too_much(
    generation: int, loads: tuple[int, ...], is_uneven: bool
) -> None:
    """The first member holds 30 of 35, in a count that is allowed; partitions 6 and 7 have been released."""
    members = [
        Member("a", ("t",), owned=owned(0, 1, 2), generation=generation),
        Member("b", ("t",), owned=owned(3, 4, 5), generation=5),
        Member("c", ("t",)),
    ]
    group = Group.from_members({"t": 8}, members)
    view = with_loads(HintView(is_cold=False), loads={T_ID: loads}, count_slack=1, max_moves=8)
    decision = choose_target(group, view, IDS, now_ms=NOW_MS)
    assert decision.target.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert decision.is_uneven is is_uneven


@pytest.mark.parametrize("seed", range(30))
def test_a_follow_up_by_another_leader_with_fresher_loads_changes_no_target(seed: int) -> None:
    """The leader changes between the two rounds, and the loads too: what was released is only placed."""
    chance = random.Random(seed)  # noqa: S311  # repeatable
    loads = [chance.randrange(1, 100) for _ in range(24)]
    split = sorted(chance.sample(range(1, 24), 3))
    parts = [owned(*range(a, b)) for a, b in pairwise([0, *split, 24])]
    view = with_loads(HintView(is_cold=False), loads={T_ID: tuple(loads)}, count_slack=2, max_moves=8)
    group = group_of(*parts, (), num_partitions=24)
    target = choose_target(group, view, IDS, now_ms=NOW_MS).target
    step = cooperative_step(group, target)
    second = next_round(group, step.assignment)
    again = choose_target(second, view, IDS, now_ms=NOW_MS)
    assert again.target.tolist() == target.tolist()
    fresher = with_loads(
        view, loads={T_ID: tuple(load + chance.randrange(20) for load in loads)}, max_moves=8
    )
    moved = choose_target(second, fresher, IDS, now_ms=NOW_MS).target
    kept = second.live_owner >= 0
    assert (moved[kept] == second.live_owner[kept]).all(), "with free partitions nothing else moves"


def test_while_cold_only_free_partitions_are_handed_out() -> None:
    group = group_of(owned(0, 1, 2, 3), (), num_partitions=6)
    decision = choose_target(group, HintView(), IDS, now_ms=NOW_MS)
    assert decision.reason is Reason.COLD
    assert decision.target.tolist() == [0, 0, 0, 0, 1, 1]
    assert decision.is_provisional
    fresh = choose_target(group_of((), ()), HintView(), IDS, now_ms=NOW_MS)
    assert counts(fresh.target, 2) == [2, 2]
    assert not fresh.is_provisional


def test_a_stop_and_an_unknown_topic_id_mean_no_hint() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    payload = payload_for(group, {"a": [0], "b": [1, 2, 3]})
    assert choose_target(group, view_of(payload), {}, now_ms=NOW_MS).reason is Reason.NO_TOPIC_IDS
    stopped = HintView(is_cold=False, hint=view_of(payload).hint, is_stopped=True)
    decision = choose_target(group, stopped, IDS, now_ms=NOW_MS)
    assert decision.reason is Reason.NO_HINT


def test_free_partitions_go_to_those_who_take_them_least_count_first() -> None:
    members = [
        Member("a", ("t", "u"), owned=owned(0), generation=1),
        Member("b", ("u",), owned=owned(1), generation=1),
        Member("c", ("t",)),
    ]
    group = Group.from_members({"t": 4, "u": 2}, members)
    placed = group.to_mapping(place_free(group))
    # b claims a partition of a topic that it does not take any more: free for the others.
    assert placed == {
        "a": [("t", 0), ("t", 3), ("u", 1)],
        "b": [("u", 0)],
        "c": [("t", 1), ("t", 2)],
    }


def test_the_leader_computes_the_planners_fingerprint() -> None:
    members = [Member("x", ("t", "u"), instance_id="pod"), Member("a", ("u", "gone"))]
    group = Group.from_members({"t": 3, "u": 1}, members)
    wanted = fingerprint([("i:pod", [U_ID, T_ID]), ("m:a", [U_ID])], {T_ID: 3, U_ID: 1})
    assert group_fingerprint(group, IDS) == wanted
    assert group_fingerprint(group, {"t": T_ID}) is None
