"""The sticky family: even, then still; settled in one follow-up; nothing given up comes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.assignors import get_assignor
from assignor_core.errors import ProblemError
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves, measure, member_counts
from assignor_core.protocol import cooperative_step
from assignor_core.verify import check_assignment
from tests.support.improving_chain import has_improving_chain
from tests.support.strategies import follow_up, groups, optimum, random_group

STICKY = get_assignor("cooperative-sticky")


def moves_of_live(group: Group, assignment: np.ndarray) -> int:
    live = group.live_owner
    return int(((live >= 0) & (live != assignment)).sum())


def check_settles(group: Group, slack: int = 0) -> None:
    assignor = get_assignor("cooperative-sticky", count_slack=slack)
    step = cooperative_step(group, assignor.assign(group))
    check_assignment(group, step.assignment, complete=False)
    after = follow_up(group, step.assignment)
    second = cooperative_step(after, assignor.assign(after))
    assert not second.follow_up
    check_assignment(after, second.assignment, count_slack=slack)
    assert count_moves(after, second.assignment) == 0
    single = np.bincount(group.claim_row, minlength=group.num_partitions) == 1
    given_up = np.isin(np.arange(group.num_partitions), step.withheld_rows) & single
    live = group.live_owner
    back = given_up & (live >= 0) & (second.assignment == live)
    assert not back.any()


@given(groups())
@settings(max_examples=70)
def test_result_is_the_exact_optimum(group: Group) -> None:
    assignment = STICKY.assign(group)
    check_assignment(group, assignment)
    counts = member_counts(group, assignment)
    assert (int((counts**2).sum()), moves_of_live(group, assignment)) == optimum(group)
    assert not has_improving_chain(group, assignment)


@pytest.mark.parametrize("seed", range(30))
def test_result_is_the_exact_optimum_of_8_members_and_40_partitions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group = random_group(rng, 8, int(rng.integers(4, 12)), 6, float(rng.choice([0.2, 0.4, 0.7])))
    assignment = STICKY.assign(group)
    counts = member_counts(group, assignment)
    assert (int((counts**2).sum()), moves_of_live(group, assignment)) == optimum(group)


@given(groups(equal=True))
def test_equal_subscriptions_differ_by_one_at_most(group: Group) -> None:
    assignment = STICKY.assign(group)
    check_assignment(group, assignment, count_slack=0)
    metrics = measure(group, assignment)
    assert metrics.max_member_partitions - metrics.min_member_partitions <= 1


@given(groups())
@settings(max_examples=70)
def test_one_follow_up_settles_and_nothing_comes_back(group: Group) -> None:
    check_settles(group)


@given(groups(), st.integers(0, 3))
def test_slack_settles_too_and_leaves_alone_what_is_within_it(group: Group, slack: int) -> None:
    check_settles(group, slack=slack)
    assignment = get_assignor("cooperative-sticky", count_slack=slack).assign(group)
    after = follow_up(group, assignment)
    again = get_assignor("cooperative-sticky", count_slack=slack).assign(after)
    assert (again == assignment).all()


@given(groups())
def test_unchanged_group_moves_nothing(group: Group) -> None:
    assignment = STICKY.assign(group)
    after = follow_up(group, assignment)
    assert (STICKY.assign(after) == assignment).all()


@given(groups(conflicts=False))
def test_names_matter_by_their_order_only(group: Group) -> None:
    renamed = Group.from_arrays(
        topics=[f"x{name}" for name in group.topics],
        num_partitions=np.diff(group.topic_start),
        member_ids=[f"y{name}" for name in group.member_ids],
        subscriptions=(
            np.repeat(np.arange(group.num_members), np.diff(group.subscription_start)),
            group.subscription_topic,
        ),
        claims=(group.claim_row, group.claim_member, group.claim_generation),
    )
    for name in ("cooperative-sticky", "lag-aware"):
        assert (get_assignor(name).assign(renamed) == get_assignor(name).assign(group)).all()


def test_chain_evens_what_no_single_move_can() -> None:
    # 2, 1, 0 becomes 1, 1, 1: a takes t only, b takes t and u, c takes u only.
    members = [
        Member("a", ("t",), owned=(("t", 0), ("t", 1)), generation=1),
        Member("b", ("t", "u"), owned=(("u", 0),), generation=1),
        Member("c", ("u",), generation=1),
    ]
    group = Group.from_members({"t": 2, "u": 1}, members)
    assert member_counts(group, STICKY.assign(group)).tolist() == [1, 1, 1]


def test_fewest_moves_are_found_again_after_members_have_exchanged_their_counts() -> None:
    """16 partitions of 5 members: the search exchanges who has 3 and who has 4, and has to keep count."""
    members = [
        Member("a", ("t", "u", "v"), owned=(("t", 0),), generation=1),
        Member("b", ("t", "u", "v", "w"), owned=(("u", 0), ("v", 0), ("w", 0), ("w", 1)), generation=1),
        Member("c", ("t", "w"), owned=(("w", 2),), generation=1),
        Member("d", ("t", "u", "w"), owned=(("t", 1), ("w", 3)), generation=1),
        Member(
            "e",
            ("t", "u", "v", "w"),
            owned=(("v", 1), ("v", 2), ("v", 3), ("v", 4), ("w", 4), ("w", 5)),
            generation=1,
        ),
    ]
    group = Group.from_members({"t": 3, "u": 1, "v": 6, "w": 6}, members)
    assignment = STICKY.assign(group)
    assert sorted(member_counts(group, assignment)) == [3, 3, 3, 3, 4]
    assert moves_of_live(group, assignment) == 3
    assert optimum(group) == (4 * 9 + 16, 3)


def test_member_never_gets_what_it_does_not_take_though_it_owned_it() -> None:
    members = [
        Member("a", (), owned=(("t", 0),), generation=1),
        Member("b", ("t",), generation=1),
        Member("c", ("u",), owned=(("t", 1), ("t", 7)), generation=1),
    ]
    group = Group.from_members({"t": 2, "u": 1}, members)
    assert STICKY.assign(group).tolist() == [1, 1, 2]


def test_newer_generation_wins_a_conflict() -> None:
    members = [
        Member("a", ("t",), owned=(("t", 0), ("t", 1)), generation=3),
        Member("b", ("t",), owned=(("t", 0), ("t", 1)), generation=4),
        Member("c", ("t",), owned=(("t", 2), ("t", 3)), generation=4),
    ]
    group = Group.from_members({"t": 4}, members)
    assignment = STICKY.assign(group)
    assert group.owner.tolist() == [1, 1, 2, 2]
    assert sorted(member_counts(group, assignment).tolist()) == [1, 1, 2]
    assert count_moves(group, assignment) == 1


def test_negative_slack_is_refused() -> None:
    with pytest.raises(ProblemError, match="count_slack must be from 0 to below"):
        get_assignor("sticky", count_slack=-1)
