"""Groups: the two edges build the same, and bad input says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assignor_core.errors import ProblemError
from assignor_core.group import Group
from assignor_core.members import Member, UnknownClaim


def test_rows_topics_and_members_are_in_kafkas_order() -> None:
    astral, bmp = "\U0001f600", "\uffee"
    group = Group.from_members({bmp: 1, "b": 2, astral: 1}, [Member(bmp, ("b",)), Member(astral, ("b",))])
    assert group.topics == ("b", astral, bmp)
    assert group.member_ids == (astral, bmp)
    assert group.row_topic.tolist() == [0, 0, 1, 2]
    assert group.row_partition.tolist() == [0, 1, 0, 0]


def test_owner_is_the_newest_claim_and_nobody_when_two_are_as_new() -> None:
    topics = {"t": 4}
    members = [
        Member("a", ("t",), owned=(("t", 0), ("t", 1), ("t", 2), ("t", 9)), generation=4),
        Member("b", ("t",), owned=(("t", 1), ("t", 1)), generation=5),
        Member("c", ("t",), owned=(("t", 2), ("gone", 0)), generation=4),
    ]
    group = Group.from_members(topics, members)
    assert group.owner.tolist() == [0, 1, -1, -1]
    assert len(group.claim_row) == 5
    assert group.unknown_claims == (
        UnknownClaim(0, "t", 9, 4, subscribed=True),
        UnknownClaim(2, "gone", 0, 4, subscribed=False),
    )


def test_live_owner_leaves_out_who_does_not_take_the_topic_any_more() -> None:
    group = Group.from_members({"t": 1, "u": 1}, [Member("a", ("u",), owned=(("t", 0), ("u", 0)))])
    assert group.owner.tolist() == [0, 0]
    assert group.live_owner.tolist() == [-1, 0]
    assert group.subscribed.tolist() == [[False, True]]


def test_both_edges_build_the_same_whatever_the_order() -> None:
    members = [
        Member("b", ("t", "u"), "pod", owned=(("u", 1), ("t", 0)), generation=3),
        Member("a", ("u",), owned=(("u", 0),), generation=2),
    ]
    one = Group.from_members({"t": 2, "u": 3}, members, lags={"u": [5, 6]})
    other = Group.from_arrays(
        topics=["u", "t"],
        num_partitions=np.array([3, 2]),
        member_ids=["b", "a"],
        instance_ids=["pod", None],
        subscriptions=(np.array([0, 1, 0]), np.array([1, 0, 0])),
        claims=(np.array([1, 3, 0]), np.array([0, 0, 1]), np.array([3, 3, 2])),
        lags=np.array([5, 6, 0, 0, 0]),
    )
    assert (one.member_ids, one.topics, one.instance_ids) == (
        other.member_ids,
        other.topics,
        other.instance_ids,
    )
    for name in ("owner", "lag", "row_topic", "row_partition", "claim_row", "subscribed", "claim_generation"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_callers_array_stays_writeable() -> None:
    lags = np.array([1, 2])
    group = Group.from_arrays(
        topics=["t"], num_partitions=np.array([2]), member_ids=["a"],
        subscriptions=(np.array([0]), np.array([0])), lags=lags,
    )  # fmt: skip
    lags[0] = 9
    assert group.lag.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        group.lag[0] = 9


def test_mapping_has_every_member_and_sorted_pairs() -> None:
    group = Group.from_members({"t": 3, "s": 1}, [Member("a", ("t",)), Member("b", ("t",)), Member("c", ())])
    mapping = group.to_mapping(np.array([1, -1, 1, 0], dtype=np.int32))
    assert mapping == {"a": [("t", 2)], "b": [("s", 0), ("t", 1)], "c": []}


def test_nothing_at_all_is_a_group_too() -> None:
    group = Group.from_members({}, [])
    assert (group.num_members, group.num_partitions, group.to_mapping(group.owner)) == (0, 0, {})


@pytest.mark.parametrize(
    ("topics", "members", "lags", "match"),
    [
        ({"t": -1}, [], {}, "-1 partitions"),
        ({"t": "3"}, [], {}, "'3' is no number"),
        ({"t": 2**31}, [], {}, "more than"),
        ({"t": 1}, [Member("a", ()), Member("a", ())], {}, "member 'a' is repeated"),
        ({"t": 1}, [], {"t": [1, 2]}, "2 lags for 1"),
        ({"t": 1}, [], {"t": [-5]}, "negative: -5"),
        ({"t": 1}, [], {"t": ["x"]}, "whole numbers"),
        ({"t": 2}, [], {"t": [2**62, 2**62]}, "add up"),
    ],
)
def test_bad_problem_says_what_and_where(topics: Any, members: Any, lags: Any, match: str) -> None:
    with pytest.raises(ProblemError, match=match):
        Group.from_members(topics, members, lags=lags)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"member_ids": ["a", "a"]}, "is repeated"),
        ({"num_partitions": np.array([1, 2])}, "lengths differ"),
        ({"subscriptions": (np.array([1]), np.array([0]))}, "subscription's member is out of range"),
        ({"subscriptions": (np.array([0]), np.array([-1]))}, "subscription's topic is out of range"),
        ({"claims": (np.array([2]), np.array([0]), np.array([0]))}, "claim's row is out of range"),
        ({"claims": (np.array([0]), np.array([0]), np.array([0, 1]))}, "claims differ in length"),
        ({"lags": np.array([0])}, "1 lags for 2"),
    ],
)
def test_bad_columns_say_what_and_where(changes: dict[str, Any], match: str) -> None:
    columns: dict[str, Any] = {
        "topics": ["t"],
        "num_partitions": np.array([2]),
        "member_ids": ["a"],
        "subscriptions": (np.array([0]), np.array([0])),
    }
    with pytest.raises(ProblemError, match=match):
        Group.from_arrays(**{**columns, **changes})
