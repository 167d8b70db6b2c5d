"""The two-phase step: who claims a partition is waited for, and what is not seen is left alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.assignors import COOPERATIVE, assignor_names, get_assignor
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves
from assignor_core.protocol import cooperative_step, next_round, settle
from assignor_core.verify import check_assignment
from tests.support.strategies import groups


def step_of(members: list[Member], target: list[int]) -> list[int]:
    group = Group.from_members({"t": len(target)}, members)
    return list(cooperative_step(group, np.array(target, dtype=np.int32)).assignment.tolist())


def test_new_partition_waits_for_any_claim_also_a_stale_or_unsubscribed_one() -> None:
    claim = (("t", 0),)
    new = Member("b", ("t",), generation=9)
    for old in (Member("a", ("t",), owned=claim, generation=1), Member("a", (), owned=claim)):
        assert step_of([old, new], [1]) == [-1]
    assert step_of([Member("a", ("t",)), new], [1]) == [1]


def test_claimant_keeps_unless_another_claims_as_newly() -> None:
    claim = (("t", 0),)
    mine = Member("a", ("t",), owned=claim, generation=5)
    for generation, kept in ((4, 0), (5, -1), (6, -1)):
        assert step_of([mine, Member("b", ("t",), owned=claim, generation=generation)], [0]) == [kept]


def test_topic_without_metadata_is_left_with_who_holds_it() -> None:
    members = [
        Member("a", ("t", "x"), owned=(("x", 0), ("x", 1)), generation=5),
        Member("b", ("t", "x"), owned=(("x", 1),), generation=4),
        Member("c", ("t",), owned=(("x", 2),), generation=5),
    ]
    group = Group.from_members({"t": 1}, members)
    step = cooperative_step(group, np.array([0], dtype=np.int32))
    assert step.kept_unknown == ((0, "x", 0), (0, "x", 1))


@given(groups(), st.randoms(use_true_random=False))
def test_rule_holds_row_by_row(group: Group, random: object) -> None:
    rng = np.random.default_rng(random.randint(0, 2**32))  # type: ignore[attr-defined]
    target = rng.integers(-1, group.num_members, group.num_partitions).astype(np.int32)
    step = cooperative_step(group, target)
    claims = list(zip(group.claim_row, group.claim_member, group.claim_generation, strict=True))
    for row, member in enumerate(target):
        others = [g for r, m, g in claims if r == row and m != member]
        own = [g for r, m, g in claims if r == row and m == member]
        allowed = member >= 0 and (max(others, default=-99) < max(own) if own else not others)
        assert step.assignment[row] == (member if allowed else -1)
    assert step.follow_up == bool((step.assignment != target).any())


NAMES = [name for name in assignor_names() if COOPERATIVE in get_assignor(name).protocols]


@given(st.sampled_from(NAMES), groups(lags=True, equal=True), groups(lags=True))
def test_every_cooperative_assignor_settles_in_one_follow_up(
    name: str, equal_group: Group, any_group: Group
) -> None:
    assignor = get_assignor(name)
    for group in [equal_group] if name.startswith("constrained") else [equal_group, any_group]:
        target = assignor.assign(group)
        settled = settle(group, assignor, target)
        assert settled.rounds <= 2
        check_assignment(group, settled.assignment)
        # The last round came to rest: everybody holds what it was handed, and nothing moves any more.
        after = next_round(group, settled.assignment)
        assert (after.claim_generation > group.claim_generation.max(initial=0)).all()
        if not assignor.plans_once:
            assert count_moves(after, assignor.assign(after)) == 0


def test_eager_assignor_is_settled_at_once() -> None:
    group = Group.from_members({"t": 2}, [Member("a", ("t",), owned=(("t", 1),)), Member("b", ("t",))])
    assignor = get_assignor("range")
    settled = settle(group, assignor, assignor.assign(group))
    assert (settled.rounds, settled.assignment.tolist()) == (1, [0, 1])
