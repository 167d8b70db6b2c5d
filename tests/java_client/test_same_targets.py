"""Leaders in Java and in Python hand out the same, from the same bytes of the members' joins."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.members import TEMPORARY_MEMBER_MARK
from tests.support.java_client.groups import (
    Case,
    Joined,
    answer_in_python,
    answers_in_java,
    as_question,
    disagreements,
    random_case,
)

if TYPE_CHECKING:
    from tests.support.java_client.harness import ClientHarness

ID = uuid.UUID(int=24)
NOTHING_PUBLISHED = (None, None, None)
ALL_REASONS = {
    "NO_HINT", "FOLLOWED", "PLACED_BY_LOAD", "MAX_MOVES", "INVALID", "LOADS_STALE", "COLD", "COUNT_SLACK",
    "EXPIRED", "NO_TOPIC_IDS", "FINGERPRINT",
}  # fmt: skip


def compare(harness: ClientHarness, number: int, seed: int) -> Counter[str]:
    reasons: Counter[str] = Counter()
    found = next(disagreements(harness, number, seed, reasons), None)
    assert found is None, found
    return reasons


def test_leaders_in_both_languages_hand_out_the_same(client_harness: ClientHarness) -> None:
    reasons = compare(client_harness, 400, seed=1)
    assert set(reasons) >= ALL_REASONS


@pytest.mark.soak
def test_leaders_hand_out_the_same_to_ten_thousand_groups(client_harness: ClientHarness) -> None:
    reasons = compare(client_harness, 10_000, seed=2024)
    assert min(reasons[reason] for reason in ALL_REASONS) > 50


def group_of(*members: Joined, count: int = 4) -> Case:
    return Case({"t": (count, ID)}, members, NOTHING_PUBLISHED)


def member(name: str, *owned: int, generation: int = 5, topics: tuple[str, ...] = ("t",)) -> Joined:
    return Joined(name, None, topics, tuple(("t", number) for number in owned), generation)


def assigned_in_java(harness: ClientHarness, case: Case) -> dict[str, Any]:
    [answer] = answers_in_java(harness, [case])
    assert answer == answer_in_python(case)
    given: dict[str, Any] = answer["assigned"]
    return given


def test_a_partition_that_another_member_claims_is_withheld_for_a_round(
    client_harness: ClientHarness,
) -> None:
    """An example: b is empty and gets two of a's four partitions, but only when a has released them."""
    first = group_of(member("a", 0, 1, 2, 3), member("b"))
    assert assigned_in_java(client_harness, first) == {"a": [("t", 0), ("t", 1)], "b": []}
    second = group_of(member("a", 0, 1, generation=6), member("b", generation=6))
    assert assigned_in_java(client_harness, second) == {
        "a": [("t", 0), ("t", 1)],
        "b": [("t", 2), ("t", 3)],
    }


def test_of_two_claims_the_newer_counts_and_of_equal_ones_none(client_harness: ClientHarness) -> None:
    newer = group_of(member("a", 0), member("b", 0, generation=6), count=1)
    assert assigned_in_java(client_harness, newer) == {"a": [], "b": [("t", 0)]}
    equal = group_of(member("a", 0), member("b", 0), count=1)
    assert assigned_in_java(client_harness, equal) == {"a": [], "b": []}


def test_a_partition_beyond_the_leaders_metadata_stays_with_its_owner(client_harness: ClientHarness) -> None:
    """The leader knows two partitions; a joined with newer metadata and owns a third."""
    beyond = group_of(member("a", 2), member("b", 0, 1), count=2)
    assert assigned_in_java(client_harness, beyond) == {
        "a": [("t", 2)],
        "b": [("t", 0)],
    }


def test_a_partition_of_a_recreated_topic_is_not_kept(client_harness: ClientHarness) -> None:
    """The topic had three partitions; with another id it has two, and the claim on the third is void."""
    before = group_of(member("a", 2), member("b", 0, 1), count=3)
    after = replace(
        group_of(member("a", 2), member("b", 0, 1), count=2), topics={"t": (2, uuid.UUID(int=25))}
    )
    questions = [as_question(case, leader="recreated") for case in (before, after)]
    answers = client_harness.ask("assign", groups=questions)["groups"]
    assert sorted(answers[0]["assigned"]["a"]) == [["t", 2]]
    assert answers[1]["assigned"]["a"] == []


def test_a_client_that_sends_no_generation_is_assigned(client_harness: ClientHarness) -> None:
    """Clients before Kafka 3.5 send claims without a generation."""
    case = group_of(member("a", 0, 1, generation=-1), member("b", 2, 3, generation=-1))
    assert assigned_in_java(client_harness, case) == {
        "a": [("t", 0), ("t", 1)],
        "b": [("t", 2), ("t", 3)],
    }


def test_evenlag_s_temporary_member_is_no_part_of_the_group(client_harness: ClientHarness) -> None:
    """Whatever the group knows about hints, with the member beside it each gets what it gets without."""
    guest = Joined("a-guest", None, (), (), -1, TEMPORARY_MEMBER_MARK)
    chance = np.random.default_rng(88)
    cases = [random_case(chance) for _ in range(100)]
    beside = [replace(case, members=(*case.members[:1], guest, *case.members[1:])) for case in cases]
    alone = answers_in_java(client_harness, cases)
    assert {"FOLLOWED", "PLACED_BY_LOAD", "NO_HINT"} <= {answer["reason"] for answer in alone}
    for case, before, after in zip(beside, alone, answers_in_java(client_harness, beside), strict=True):
        wanted = {**before, "assigned": {**before["assigned"], "a-guest": []}}
        assert after == wanted
        assert answer_in_python(case) == wanted


def test_only_a_member_without_topics_and_with_the_mark_is_left_out(client_harness: ClientHarness) -> None:
    marked = Joined("b", None, ("t",), (), -1, TEMPORARY_MEMBER_MARK)
    given = assigned_in_java(client_harness, group_of(member("a"), marked))
    assert [len(given[name]) for name in "ab"] == [2, 2]
    # Another one without topics is in the group that a hint must fit.
    case = next(case for case in map(random_case, repeat(np.random.default_rng(7))) if is_followed(case))
    for user_data in (b"", TEMPORARY_MEMBER_MARK[:-1]):
        other = replace(case, members=(*case.members, Joined("z-other", None, (), (), -1, user_data)))
        [answer] = answers_in_java(client_harness, [other])
        assert answer == answer_in_python(other)
        assert answer["hint_reason"] == "FINGERPRINT"


def is_followed(case: Case) -> bool:
    return bool(answer_in_python(case)["reason"] == "FOLLOWED")


def test_an_empty_group_is_no_error(client_harness: ClientHarness) -> None:
    nobody_subscribes = group_of(member("a", topics=()), member("b", topics=()))
    assert assigned_in_java(client_harness, nobody_subscribes) == {"a": [], "b": []}
