"""What the audit answers, on histories of a few lines: owners, differences, causes, hints, and midnight."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.audit.anomalies import last_holders
from evenlag.audit.differences import diff
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX, join_days
from evenlag.audit.owners import owners_at
from evenlag.audit.period import OWNERSHIP_KEY
from evenlag.audit.published_hints import Hint, hint_finder, hint_verdicts
from evenlag.audit.rebalances import find_rebalances, sum_up
from evenlag.lake.tables import AUDITED_SNAPSHOTS, OWNERSHIP
from tests.support.lakes.audit_lake import STEP, TOPIC_ID, Seen, at, audit_tables, period_of, snapshot_id

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa


EVEN = Seen({"a1": (0, 1), "b1": (2, 3)})
MOVED = Seen({"a1": (0,), "b1": (1, 2, 3)})
HIDDEN = Seen(None)
EMPTY = Seen({})
ABSENT = Seen({}, is_listed=False)


def owners(history: list[Seen], when: datetime, **changes: Any) -> dict[int, list[tuple[Any, ...]]]:
    answer: dict[int, list[tuple[Any, ...]]] = {}
    for row in owners_at(replace(period_of(history), **changes), when):
        shown = (row["certainty"], row["side"], row["member_id"] or row["state"])
        answer.setdefault(row["partition"], []).append(shown)
    return answer


def test_what_two_readings_show_alike_held_in_between_also_over_midnight() -> None:
    found = owners([EVEN] * 10, at(5) + STEP / 2)
    assert found == {
        0: [("SEEN", "both", "a1")],
        1: [("SEEN", "both", "a1")],
        2: [("SEEN", "both", "b1")],
        3: [("SEEN", "both", "b1")],
    }
    row = owners_at(period_of([EVEN] * 10), at(5) + STEP / 2)[0]
    assert (row["first_seen_at"], row["last_seen_at"]) == (at(0), at(9))
    assert row["longest_gap_ms"] == STEP / timedelta(milliseconds=1)


def test_what_changed_between_two_readings_is_told_as_changing_with_both_sides() -> None:
    found = owners([EVEN, EVEN, MOVED, MOVED], at(1) + STEP / 2)
    assert found[0] == [("SEEN", "both", "a1")]
    assert found[1] == [("CHANGING", "before", "a1"), ("CHANGING", "after", "b1")]
    assert owners([EVEN, EVEN, MOVED], at(1))[1] == [("SEEN", "both", "a1")]


def test_nothing_is_claimed_where_nobody_looked_or_the_group_did_not_show_it() -> None:
    assert owners([EVEN, EVEN], at(0) + STEP / 2, max_gap_ms=1000.0)[0] == [("GAP", "both", "a1")]
    assert owners([EVEN, EVEN], at(9))[0] == [("LAST_SEEN", "before", "a1")]
    assert owners([EVEN, EVEN], at(-9))[0] == [("FIRST_SEEN", "after", "a1")]
    assert owners([EVEN, HIDDEN, HIDDEN, MOVED], at(1) + STEP / 2)[0] == [("SEEN", "both", "UNKNOWN")]
    assert owners([EVEN, EMPTY, EMPTY], at(1) + STEP / 2)[0] == [("SEEN", "both", "NOBODY")]
    assert owners([EVEN, ABSENT, ABSENT], at(1) + STEP / 2) == {}
    assert owners([EVEN, ABSENT, EVEN], at(0) + STEP / 2)[0] == [("CHANGING", "before", "a1")]


def test_two_holders_are_both_named() -> None:
    both = Seen({"a1": (0, 1), "b1": (1, 2, 3)})
    assert owners([both, both], at(0))[1] == [("SEEN", "both", "a1"), ("SEEN", "both", "b1")]


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (EVEN, EVEN, "SAME"),
        (EVEN, MOVED, "MOVED"),
        (EVEN, Seen({"a2": (0, 1), "b1": (2, 3)}), "RETURNED"),
        (Seen({"a1@pod": (0, 1), "b1": (2, 3)}), Seen({"z9@pod": (0, 1), "b1": (2, 3)}), "RETURNED"),
        # Of the same client, but it was there all the time.
        (Seen({"a1": (0, 1), "a2": (2, 3)}), Seen({"a1": (0,), "a2": (1, 2, 3)}), "MOVED"),
        (EVEN, Seen({"a1": (0,), "b1": (2, 3)}), "FREED"),
        (Seen({"a1": (0,), "b1": (2, 3)}), EVEN, "PLACED"),
        (Seen({"a1": (0,)}, partitions=1), EVEN, "ADDED"),
        (EVEN, Seen({"a1": (0,)}, partitions=1), "REMOVED"),
        (EVEN, HIDDEN, "UNKNOWN"),
    ],
)
def test_a_difference_says_what_became_of_a_partition(old: Seen, new: Seen, change: str) -> None:
    (row,) = [each for each in diff(period_of([old, new]), at(0), at(1)) if each["partition"] == 1]
    assert row["change"] == change
    assert (row["snapshot_id_before"], row["snapshot_id_after"]) == (snapshot_id(0), snapshot_id(1))


THREE = Seen({"a1": (0, 1), "b1": (2,), "c1": (3,)})
GROWN = Seen({"a1": (0, 1), "b1": (2, 3)}, partitions=5)
DEALT = Seen({"a1": (0, 1), "b1": (2, 3, 4)}, partitions=5)


@pytest.mark.parametrize(
    ("history", "causes"),
    [
        ([EVEN, THREE], ["MEMBER_JOINED"]),
        ([THREE, EVEN], ["MEMBER_LEFT"]),
        ([EVEN, Seen({"a2": (0, 1), "b1": (2, 3)})], ["MEMBER_BOUNCED"]),
        ([EVEN, Seen({"z1": (0, 1), "b1": (2, 3)})], ["MEMBER_JOINED", "MEMBER_LEFT"]),
        ([EVEN, DEALT], ["PARTITIONS_ADDED"]),
        # They are seen before the rebalance that deals them out.
        ([EVEN, GROWN, GROWN, DEALT], ["PARTITIONS_ADDED"]),
        ([EVEN, Seen({"a1": (0,), "b1": (1, 2, 3)}, topic_id="other")], ["TOPIC_RECREATED"]),
        ([EVEN, replace(MOVED, assignor="range")], ["ASSIGNOR_CHANGED"]),
        ([EVEN, HIDDEN, MOVED], ["UNKNOWN"]),
        ([EVEN, MOVED], ["UNKNOWN"]),
        # Seen while it rebalanced: one took place, though it moved nothing.
        ([EVEN, HIDDEN, EVEN], ["UNKNOWN"]),
    ],
)
def test_a_rebalance_has_the_causes_that_the_readings_show(history: list[Seen], causes: list[str]) -> None:
    (rebalance,) = find_rebalances(period_of(history))[0]
    assert rebalance["causes"] == causes
    assert rebalance["snapshot_id"] == snapshot_id(len(history) - 1)


@pytest.mark.parametrize(
    ("history", "is_alive"),
    [
        ([EVEN, Seen({"a1": (), "b1": (2, 3)})], True),
        ([EVEN, Seen({"b1": (2, 3)})], False),
        ([EVEN, EMPTY], False),
        ([EVEN, Seen({"a1": (), "b1": (2, 3)}), EMPTY], False),
        ([EVEN, Seen({"a1": (), "b1": (2, 3)}), HIDDEN], True),
        # A static member has another member id after a restart.
        ([Seen({"a1@pod": (0, 1), "b1": (2, 3)}), Seen({"z9@pod": (), "b1": (2, 3)})], True),
    ],
)
def test_a_last_holder_that_is_still_a_member_is_alive(history: list[Seen], is_alive: bool) -> None:
    row = {"group_id": "g", "topic": "t", "topic_id": TOPIC_ID, "partition": 0}
    row |= {FIRST_INDEX: 1, "num_snapshots": len(history) - 1}
    (found,) = last_holders(period_of(history), [row])
    assert (found["member_id"], found["is_alive"]) == ("a1", is_alive)


def test_an_empty_group_comes_back_with_another_assignor() -> None:
    first, second = find_rebalances(period_of([EVEN, EMPTY, replace(EVEN, assignor="range")]))[0]
    assert first["causes"] == ["MEMBER_LEFT"]
    assert (first["num_freed"], first["num_moved"]) == (4, 0)
    assert second["causes"] == ["MEMBER_JOINED", "ASSIGNOR_CHANGED"]
    assert (second["num_placed"], second["num_moved"]) == (4, 0)


def test_a_group_that_is_not_listed_for_a_while_has_no_rebalance_of_it() -> None:
    assert find_rebalances(period_of([EVEN, ABSENT, EVEN])) == ([], [])


def test_moves_are_counted_where_a_partition_changed_hands_and_a_return_is_none() -> None:
    history = [EVEN, MOVED, HIDDEN, Seen({"a2": (0,), "b1": (1, 2, 3)}), EVEN]
    rebalances, moves = find_rebalances(period_of(history))
    assert [(row["num_moved"], row["num_returned"]) for row in rebalances] == [(1, 0), (0, 1), (1, 1)]
    assert [(row["partition"], row["kind"], row["from_member_id"], row["to_member_id"]) for row in moves] == [
        (0, "RETURNED", "a1", "a2"),
        (0, "RETURNED", "a2", "a1"),
        (1, "MOVED", "a1", "b1"),
        (1, "MOVED", "b1", "a1"),
    ]
    (total,) = sum_up(rebalances)
    assert total["by_cause"] == {"UNKNOWN": 1, "MEMBER_BOUNCED": 2}
    assert (total["num_rebalances"], total["num_moved"], total["num_returned"]) == (3, 2, 2)


def test_while_two_held_a_partition_it_moved_once() -> None:
    both = Seen({"z1": (0, 1), "b1": (1, 2, 3)})
    history = [Seen({"z1": (0, 1), "b1": (2, 3)}), both, Seen({"z1": (0,), "b1": (1, 2, 3)})]
    moves = find_rebalances(period_of(history))[1]
    assert [(row["partition"], row["from_member_id"], row["to_member_id"]) for row in moves] == [
        (1, "z1", "b1")
    ]
    assert (moves[0]["last_snapshot_id"], moves[0]["first_snapshot_id"]) == (snapshot_id(0), snapshot_id(2))


def hint(published_at: datetime, **more: Any) -> Hint:
    holders = {(TOPIC_ID, number): "m:a1" if number == 0 else "m:b1" for number in range(4)}
    named: dict[str, Any] = {"plan_id": "p", "group_id": "g", "sequence": 1, "expires_at": None}
    return Hint(
        **named | {"ended_at": None, "ended_by": None, "holders": holders} | more, published_at=published_at
    )


def test_a_hint_is_followed_from_one_reading_to_another() -> None:
    history = [EVEN, EVEN, HIDDEN, MOVED, MOVED, HIDDEN, EVEN]
    (row,) = hint_verdicts(period_of(history), [hint(at(1) + STEP / 2)])
    assert row["verdict"] == "FOLLOWED"
    assert (row["share_before"], row["share_best"]) == (0.75, 1.0)
    assert (row["not_yet_at"], row["followed_from"]) == (at(1), at(3))
    assert (row["followed_until"], row["no_longer_at"]) == (at(4), at(6))
    assert row["left_because"] == "the group held something else while it stood"
    assert (row["followed_from_snapshot_id"], row["no_longer_snapshot_id"]) == (
        snapshot_id(3),
        snapshot_id(6),
    )


@pytest.mark.parametrize(
    ("history", "verdict"),
    [
        ([EVEN, EVEN, EVEN], "NOT_FOLLOWED"),
        ([Seen({"a1": (0, 1, 2), "b1": (3,)}), EVEN], "PARTLY"),
        ([EVEN, HIDDEN], "NOT_SEEN"),
        ([MOVED, MOVED], "FOLLOWED"),
    ],
)
def test_a_hint_that_is_not_followed_is_judged_by_what_was_seen(history: list[Seen], verdict: str) -> None:
    (row,) = hint_verdicts(period_of(history), [hint(at(0) + STEP / 2)])
    assert row["verdict"] == verdict


def test_a_rebalance_that_begins_to_follow_a_hint_names_its_plan() -> None:
    period = period_of([EVEN, EVEN, MOVED, MOVED])
    (rebalance,) = find_rebalances(period, find_hint=hint_finder([hint(at(1) + STEP / 2)]))[0]
    assert (rebalance["causes"], rebalance["plan_id"]) == (["HINT_APPLIED"], "p")
    # Published too late, or withdrawn before: it was something else.
    for other in (hint(at(3)), hint(at(0), ended_at=at(0) + STEP / 2, ended_by="withdrawn")):
        (rebalance,) = find_rebalances(period, find_hint=hint_finder([other]))[0]
        assert (rebalance["causes"], rebalance["plan_id"]) == (["UNKNOWN"], None)


_STATES = st.lists(
    st.sampled_from([EVEN, MOVED, HIDDEN, EMPTY, ABSENT, GROWN, THREE]), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(_STATES, st.sets(st.integers(min_value=1, max_value=11)))
def test_days_joined_say_what_one_long_day_says(history: list[Seen], midnights: set[int]) -> None:
    def day(number: int) -> date:
        return date(2026, 3, 1) + timedelta(days=sum(number >= midnight for midnight in midnights))

    def one_day(_number: int) -> date:
        return date(2026, 3, 1)

    joined, whole = period_of(history, day=day), period_of(history, day=one_day)
    assert rows_of(joined.memberships) == rows_of(whole.memberships)
    # What is inferred while a group shows nothing is inferred within its day.
    assert rows_of(joined.ownership, owned=True) == rows_of(whole.ownership, owned=True)


def test_an_owner_over_midnight_ends_when_the_next_snapshot_was_finished() -> None:
    def day(number: int) -> date:
        return date(2026, 3, 1 + number)

    import pyarrow as pa

    tables = audit_tables([EVEN, MOVED], day=day)
    took = timedelta(seconds=9)
    ends = pa.array([at(0) + took, at(1) + took], type=tables[AUDITED_SNAPSHOTS]["finished_at"].type)
    place = tables[AUDITED_SNAPSHOTS].column_names.index("finished_at")
    snapshots = tables[AUDITED_SNAPSHOTS].set_column(place, "finished_at", ends)
    rows = join_days(tables[OWNERSHIP], snapshots, OWNERSHIP_KEY).to_pylist()
    moved = {row["member_id"]: row for row in rows if row["partition"] == 1}
    assert (moved["a1"]["next_seen_at"], moved["a1"]["previous_seen_at"]) == (at(1) + took, None)
    assert (moved["b1"]["next_seen_at"], moved["b1"]["previous_seen_at"]) == (None, at(0))


def rows_of(table: pa.Table, *, owned: bool = False) -> list[dict[str, Any]]:
    rows = [row for row in table.to_pylist() if not owned or row["state"] == "OWNED"]
    assert all(row[FIRST_INDEX] + row["num_snapshots"] == row[LAST_INDEX] + 1 for row in rows)
    return rows
