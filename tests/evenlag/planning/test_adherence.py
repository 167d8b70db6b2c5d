"""State and adherence of whole groups; expected values are computed manually."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from evenlag.lake.tables import MEMBERS, PLAN_ASSIGNMENTS
from evenlag.planning.outcomes import (
    Adherence,
    GroupStatus,
    explode_assignments,
    measure_adherence,
    measure_status,
)
from tests.support.lakes.snapshots import TOPIC_IDS, arrow, member

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_the_state_of_a_group_is_that_of_its_rows() -> None:
    rows = [
        member("m-1", group="a"),
        member("m-2", group="a"),
        member(None, group="b", group_state="Empty", assignor=None),
        member(None, group="c", group_state=None, assignor=None, error="not authorised"),
    ]
    assert measure_status(arrow(MEMBERS, rows)) == {
        "a": GroupStatus("Stable", "evenlag"),
        "b": GroupStatus("Empty", None),
        "c": GroupStatus(None, None),
    }


def test_assignments_are_a_row_for_each_partition() -> None:
    people = [
        # Not part of the slice.
        member("m-0", held={"t": [9]}),
        member("m-1", held={"t": [0, 2], "u": [1]}),
        member("m-2", held={"t": []}),
        member("m-3", held={}),
        member("m-4", assignment=None),
        member("m-5", held={"u": [0]}, group_instance_id="pod-5", group="h"),
        member(None, assignment=None),
    ]
    rows = explode_assignments(arrow(MEMBERS, people).slice(1), "assignment")
    assert rows.column_names == ["group_id", "owner_after_key", "topic", "partition"]
    assert [tuple(row.values()) for row in rows.to_pylist()] == [
        ("g", "m:m-1", "t", 0),
        ("g", "m:m-1", "t", 2),
        ("g", "m:m-1", "u", 1),
        ("h", "i:pod-5", "u", 0),
    ]
    assert explode_assignments(arrow(MEMBERS, people), "target_assignment").num_rows == 0


def hinted(
    plan: str, group: str, keys: Sequence[str | None], lags: Sequence[int | None]
) -> list[dict[str, Any]]:
    """Partitions 0, 1, … of topic t, each with its hinted owner and its lag when planned."""
    return [
        {
            "plan_id": plan,
            "group_id": group,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_after_key": key,
            "lag_records": lag,
        }
        for number, (key, lag) in enumerate(zip(keys, lags, strict=True))
    ]


def test_adherence_is_the_share_of_partitions_at_their_hinted_members() -> None:
    target = [{"topic": "t", "partitions": [0, 1, 2, 3]}]
    people = [
        member("m-1", group="classic", held={"t": [0, 1]}),
        member("m-2", group="classic", held={"t": [2, 3]}),
        member("m-1", group="brokers", held={"t": [0]}, target_assignment=target),
        member("m-2", group="brokers", held={"t": [1]}, target_assignment=[]),
        member("m-9", group="static", held={"t": [0, 1]}, group_instance_id="pod-1"),
        # The same names and partitions elsewhere do not count.
        member("m-1", group="other", held={"t": [0, 1, 2, 3], "u": [0, 1, 2, 3]}),
        member("m-1", group="empty", held={}),
    ]
    plans = [
        *hinted("followed", "classic", ["m:m-1", "m:m-1", "m:m-2", "m:m-2"], [1, 2, 3, 4]),
        *hinted("half", "classic", ["m:m-1", "m:m-2", "m:m-2", "m:m-1"], [None, 2, None, 4]),
        *hinted("a quarter", "brokers", ["m:m-1"] * 4, [0, 0, 0, 0]),
        *hinted("by instance", "static", ["i:pod-1", "m:m-9"], [None, None]),
        # A partition without an owner is no part of the hint; its lag is part of the plan.
        *hinted("not all hinted", "classic", ["m:m-1", None, "m:m-1"], [1, 10, 100]),
        *hinted("none hinted", "empty", [None, None], [5, 6]),
        *hinted("no members", "gone", ["m:m-1"], [5]),
    ]
    found = measure_adherence(arrow(PLAN_ASSIGNMENTS, plans), arrow(MEMBERS, people))
    assert found == {
        "followed": Adherence(1.0, None, 10, num_left=0, num_members=2),
        "half": Adherence(0.5, None, 6, num_left=0, num_members=2),
        "a quarter": Adherence(0.25, 1.0, 0, num_left=0, num_members=2),
        # Of the two names only the one by instance is the member's.
        "by instance": Adherence(0.5, None, None, num_left=1, num_members=1),
        "not all hinted": Adherence(0.5, None, 111, num_left=0, num_members=2),
        "none hinted": Adherence(None, None, 11, num_left=0, num_members=1),
        "no members": Adherence(0.0, None, 5, num_left=1, num_members=0),
    }


@pytest.mark.parametrize("num_chunks", [1, 3])
def test_rows_in_several_chunks_are_measured_as_in_one(num_chunks: int) -> None:
    people = arrow(MEMBERS, [member("m-1", held={"t": [0, 1]}), member("m-2")])
    plan = arrow(PLAN_ASSIGNMENTS, hinted("p", "g", ["m:m-1", "m:m-1", "m:m-2"], [1, 1, 1]))
    people, plan = (
        pa.concat_tables([rows.slice(at, 1) for at in range(rows.num_rows)]) if num_chunks > 1 else rows
        for rows in (people, plan)
    )
    assert measure_adherence(plan, people) == {"p": Adherence(2 / 3, None, 3, num_left=0, num_members=2)}
