"""Where partitions go: by the hint when it fits, else by cooperative-sticky with the hint's slack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.group import Group
from assignor_core.hint import HintPayload, encode_hint, fingerprint
from assignor_core.members import Member
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


def view_of(payload: HintPayload, *, expires_at_ms: int = NOW_MS + 1) -> HintView:
    cache = HintCache("g")
    cache.apply_hint(encode_hint(payload.encode(), sequence=1, issued_at_ms=0, expires_at_ms=expires_at_ms))
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
    # What stays allowed is the hint's own slack: 3 and 1 under a slack of 1, 2 and 2 under none.
    assert counts(decision.target, 2) == ([2, 2] if changes["count_slack"] == 0 else [3, 1])


def test_an_expired_hint_is_not_started_but_finished_and_kept() -> None:
    group = group_of(owned(0, 1), owned(2, 3))
    view = view_of(payload_for(group, {"a": [0], "b": [1, 2, 3]}), expires_at_ms=NOW_MS)
    plan = view.hint.plan_id if view.hint else ""
    assert choose_target(group, view, IDS, now_ms=NOW_MS).reason is Reason.EXPIRED
    assert choose_target(group, view, IDS, now_ms=NOW_MS, started_plan_id=plan).reason is Reason.FOLLOWED
    for half_way in (group_of(owned(0), owned(2, 3)), group_of(owned(0), owned(1, 2, 3))):
        decision = choose_target(half_way, view, IDS, now_ms=NOW_MS)
        assert decision.reason is Reason.FOLLOWED
        assert decision.target.tolist() == [0, 1, 1, 1]


def test_after_a_newcomer_the_followed_plan_is_kept_within_its_slack() -> None:
    two = group_of(owned(0), owned(1, 2, 3))
    view = view_of(payload_for(two, {"a": [0], "b": [1, 2, 3]}, count_slack=2))
    three = group_of(owned(0), owned(1, 2, 3), ())
    decision = choose_target(three, view, IDS, now_ms=NOW_MS)
    assert decision.reason is Reason.FINGERPRINT
    assert decision.target.tolist() == [0, 1, 1, 1]
    # Without a hint the newcomer gets its share.
    assert counts(choose_target(three, HintView(is_cold=False), IDS, now_ms=NOW_MS).target, 3) == [1, 2, 1]


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
    assert stopped.count_slack == 0


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
