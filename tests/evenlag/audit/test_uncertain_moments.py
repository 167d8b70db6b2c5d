"""What the audit reports for a moment without a snapshot: between two of them, and while one is taken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.audit.differences import diff
from evenlag.audit.owners import group_around, owners_at
from evenlag.audit.period import require_snapshots
from evenlag.cli.audit import diff_table, owner_table
from evenlag.cli.console import console
from evenlag.errors import NotFoundError
from tests.support.lakes.audit_lake import Seen, at, period_of, snapshot_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.audit.period import AuditedPeriod

EVEN = Seen({"a1": (0, 1), "b1": (2, 3)})
MOVED = Seen({"a1": (0,), "b1": (1, 2, 3)})
SECOND = timedelta(seconds=1)


def taken(history: Sequence[Seen], times: Sequence[tuple[datetime, datetime]]) -> AuditedPeriod:
    """A history whose snapshots began and ended at given moments; their slots are others."""
    import pyarrow as pa

    period = period_of(history)
    snapshots = period.snapshots
    for name, edge in (("started_at", 0), ("finished_at", 1)):
        column = pa.array([pair[edge] for pair in times], snapshots.schema.field(name).type)
        snapshots = snapshots.set_column(snapshots.column_names.index(name), name, column)
    return replace(period, snapshots=snapshots, since=times[0][0], until=times[-1][1])


def late(number: int) -> tuple[datetime, datetime]:
    """A snapshot that begins 9 s after its slot and ends 13 s after it."""
    return at(number) + 9 * SECOND, at(number) + 13 * SECOND


def owners(period: AuditedPeriod, moment: datetime) -> list[tuple[str, str, str]]:
    return [
        (row["certainty"], row["side"], row["member_id"])
        for row in owners_at(period, moment)
        if row["partition"] == 1
    ]


def change(period: AuditedPeriod, since: datetime, until: datetime) -> tuple[str, list[str], list[str]]:
    (row,) = [row for row in diff(period, since, until) if row["partition"] == 1]
    return row["change"], row["holder_before"], row["holder_after"]


def shown(what: Any, capsys: pytest.CaptureFixture[str]) -> str:
    console().print(what)
    return " ".join(capsys.readouterr().out.split())


def test_while_the_newest_snapshot_is_being_taken_both_owners_are_candidates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    period = taken([EVEN, EVEN, MOVED], [late(0), late(1), late(2)])
    moment = at(2) + 11 * SECOND
    assert owners(period, moment) == [("CHANGING", "before", "a1"), ("CHANGING", "during", "b1")]
    around = group_around(period, moment)
    assert (around["before"]["snapshot_id"], around["after"]) == (snapshot_id(1), None)
    assert [each["snapshot_id"] for each in around["during"]] == [snapshot_id(2)]
    text = shown(owner_table(replace(period, until=moment), around, owners_at(period, moment), 9), capsys)
    assert "no reading since" not in text
    assert f"{snapshot_id(2)} (2026-11-21 23:40:09..23:40:13Z), which was being taken" in text
    # What it shows as the one before it is only known up to it.
    still = taken([EVEN, EVEN], [late(0), late(1)])
    assert owners(still, at(1) + 11 * SECOND) == [("LAST_SEEN", "before", "a1")]
    # Once it has ended, it is the last word.
    assert owners(period, late(2)[1]) == [("LAST_SEEN", "before", "b1")]


def test_while_the_first_snapshot_is_being_taken_nothing_was_seen_before() -> None:
    period = taken([EVEN, MOVED], [late(0), late(1)])
    moment = at(0) + 11 * SECOND
    assert owners(period, moment) == [("CHANGING", "during", "a1"), ("CHANGING", "after", "b1")]
    assert owners(taken([EVEN], [late(0)]), moment) == [("FIRST_SEEN", "during", "a1")]


def test_what_only_the_snapshot_being_taken_shows_is_named_once() -> None:
    gone = Seen({"a1": (0,), "b1": (2, 3), "c1": (1,)})
    period = taken([EVEN, gone, MOVED], [late(0), late(1), late(2)])
    assert owners(period, at(1) + 11 * SECOND) == [
        ("CHANGING", "before", "a1"),
        ("CHANGING", "during", "c1"),
        ("CHANGING", "after", "b1"),
    ]


def test_a_snapshot_that_ends_late_keeps_those_within_it_from_being_the_last_word() -> None:
    times = [late(0), (at(1), at(1) + 60 * SECOND), (at(1) + 20 * SECOND, at(1) + 30 * SECOND)]
    period = taken([EVEN, MOVED, MOVED], times)
    assert owners(period, at(1) + 40 * SECOND) == [("CHANGING", "before", "a1"), ("CHANGING", "during", "b1")]


def test_a_difference_across_a_move_is_no_sameness() -> None:
    # Snapshots at unequal distances over midnight; partition 1 moves between the last two.
    times = [
        (datetime.fromisoformat(f"{begin}+00:00"), datetime.fromisoformat(f"{end}+00:00"))
        for begin, end in (
            ("2026-11-21T23:59:50", "2026-11-22T00:00:03"),
            ("2026-11-22T00:00:40", "2026-11-22T00:00:44"),
            ("2026-11-22T00:04:02", "2026-11-22T00:04:09"),
        )
    ]
    period = taken([EVEN, EVEN, MOVED], times)
    (_, first), (_, second), (_, third) = times
    assert change(period, first, first + SECOND) == ("SAME", ["a1"], ["a1"])
    # The move may have come before the second one's end: it read the group while it was being taken.
    assert change(period, first, second) == ("CHANGING", ["a1"], ["a1", "b1"])
    assert change(period, first, second + 60 * SECOND) == ("CHANGING", ["a1"], ["a1", "b1"])
    assert change(period, first, third - SECOND) == ("CHANGING", ["a1"], ["a1", "b1"])
    assert change(period, second + SECOND, third) == ("CHANGING", ["a1", "b1"], ["b1"])
    assert change(period, second + SECOND, second + 2 * SECOND) == ("CHANGING", ["a1", "b1"], ["a1", "b1"])
    assert change(period, first, third) == ("MOVED", ["a1"], ["b1"])
    # Two candidates that both are another one than before: it moved, whichever it was.
    away = Seen({"a1": (0,), "b1": (2, 3), "c1": (1,)})
    times.append((third + 290 * SECOND, third + 300 * SECOND))
    shown = change(taken([EVEN, EVEN, away, MOVED], times), first, third + SECOND)
    assert shown == ("MOVED", ["a1"], ["c1", "b1"])


def test_a_partition_that_may_have_been_added_is_not_said_to_be() -> None:
    small = Seen({"a1": (0,), "b1": ()}, partitions=1)
    period = taken([small, small, EVEN], [late(0), late(1), late(2)])
    assert change(period, late(0)[1], at(2))[0] == "CHANGING"
    assert change(period, late(0)[1], late(2)[1])[0] == "ADDED"


def test_a_difference_names_the_snapshots_of_both_moments(capsys: pytest.CaptureFixture[str]) -> None:
    period = taken([EVEN, EVEN, EVEN], [late(0), late(1), late(2)])
    since, until = at(1), at(1) + 60 * SECOND
    (row,) = [row for row in diff(period, since, until) if row["partition"] == 1]
    assert (row["snapshot_id_before"], row["next_snapshot_id_before"]) == (snapshot_id(0), snapshot_id(1))
    assert (row["snapshot_id_after"], row["next_snapshot_id_after"]) == (snapshot_id(1), snapshot_id(2))
    ends = [group_around(period, moment) for moment in (since, until)]
    text = shown(diff_table(replace(period, since=since, until=until), ends, [], 4, 9), capsys)
    assert "all 4 the same" in text
    for number in range(3):
        assert f"{snapshot_id(number)} (2026-11-21 23:{30 + 5 * number}:09..23:{30 + 5 * number}:13Z)" in text
    uncertain = taken([EVEN, EVEN, MOVED], [late(0), late(1), late(2)])
    rows = [row for row in diff(uncertain, since, until) if row["change"] != "SAME"]
    text = shown(diff_table(replace(uncertain, since=since, until=until), ends, rows, 4, 9), capsys)
    assert "a1 or b1" in text
    assert "1 of 4 partitions" in text


def test_moments_after_the_newest_snapshot_have_no_difference() -> None:
    period = taken([EVEN, MOVED], [late(0), late(1)])
    with pytest.raises(NotFoundError, match=r"no snapshot after 2026-11-21 23:45:13Z .* ended at"):
        diff(period, late(3)[1], late(4)[1])


def test_a_period_in_which_no_snapshot_was_taken_is_not_answered() -> None:
    period = taken([EVEN, MOVED], [late(0), late(1)])
    require_snapshots(replace(period, since=late(0)[1], until=late(0)[1]))
    for since, until in ((late(0)[1] + SECOND, late(1)[0] - SECOND), (late(2)[0], late(3)[0])):
        with pytest.raises(NotFoundError, match="no snapshot of c was taken from"):
            require_snapshots(replace(period, since=since, until=until))
    with pytest.raises(NotFoundError, match=r"3 snapshots of c .* not in the audit yet"):
        require_snapshots(replace(period, since=late(2)[0], until=late(3)[0], num_unaudited=3))


@dataclass(frozen=True)
class Reality:
    """Who really owned partition 1, and snapshots that each read it at some time while they were taken."""

    period: AuditedPeriod
    owner_until: tuple[tuple[int, str], ...]

    def owner(self, second: int) -> str:
        return next(name for until, name in self.owner_until if second < until)


@st.composite
def realities(draw: st.DrawFn) -> Reality:
    """At most one change from one look at the group to the next: what comes back leaves no trace."""
    count = draw(st.integers(1, 5))
    clock, times, seen, ends = 0, [], [], []
    owner, read_at = "a1", 0
    for number in range(count):
        started = clock + draw(st.integers(1, 90))
        finished = started + draw(st.integers(0, 15))
        before, read_at = read_at, draw(st.integers(started, finished))
        if number and draw(st.booleans()):
            ends.append((draw(st.integers(before + 1, max(read_at, before + 1))), owner))
            if ends[-1][0] > read_at:
                ends.pop()
            else:
                owner = draw(st.sampled_from(sorted({"a1", "b1", "c1"} - {owner})))
        held = {name: (1,) if name == owner else () for name in ("a1", "b1", "c1")}
        seen.append(Seen({**held, "d1": (0, 2, 3)}))
        times.append((at(0) + started * SECOND, at(0) + finished * SECOND))
        clock = finished
    return Reality(taken(seen, times), (*ends, (10_000, owner)))


@settings(deadline=None, max_examples=300)
@given(realities(), st.integers(0, 400), st.integers(0, 400))
def test_the_real_owner_is_always_a_candidate_and_a_difference_always_true(
    reality: Reality, one: int, other: int
) -> None:
    period, (first, last) = reality.period, sorted((one, other))
    begin, end = (
        round((period.snapshots[name][place].as_py() - at(0)) / SECOND)
        for name, place in (("finished_at", 0), ("finished_at", -1))
    )
    for second in (first, last):
        shown = owners(period, at(0) + second * SECOND)
        if begin <= second <= end:
            assert reality.owner(second) in {member for _, _, member in shown}, shown
        if len(shown) == 1 and shown[0][0] == "SEEN":
            assert reality.owner(second) == shown[0][2]
    if begin <= first and last <= end:
        name, before, after = change(period, at(0) + first * SECOND, at(0) + last * SECOND)
        really = reality.owner(first), reality.owner(last)
        assert really[0] in before
        assert really[1] in after
        assert {"SAME": really[0] == really[1], "MOVED": really[0] != really[1]}.get(name, True)
