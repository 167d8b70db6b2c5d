"""The page that a person answers: what is not known of the lag is not shown as none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import PLAN_ASSIGNMENTS
from evenlag.publishing.approval_page import build_page
from evenlag.publishing.sealing.verified_plans import VerifiedPlan

SLOT = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
# Owner before and by the plan, and the lag: a partition of a, one of b and both of c are not known.
Row = tuple[str | None, str | None, int | None]
ROWS: list[Row] = [
    ("a", "a", 900),
    ("a", "b", 600),
    ("a", "a", None),
    ("b", "b", 7),
    ("b", "b", None),
    ("c", "c", None),
    ("c", "c", None),
]
# Of b no key is known; nobody has the last partition.
KEYS: dict[str | None, str] = {"a": "i:pod1", "c": "m:c"}
COUNTS = {"min_member_partitions": 2, "max_member_partitions": 3}


def page(rows: list[Row], **more: Any) -> tuple[str, list[str]]:
    import pyarrow as pa

    head = {
        "plan_id": "ab" * 32,
        "group_id": "g",
        "cluster": "c",
        "slot": SLOT,
        "assignor": "lag-aware-sticky",
        "moves": 1,
        "num_members": 3,
        "num_partitions": len(rows),
        "num_stalled_partitions": 0,
        "num_unknown_partitions": 0,
        "metrics_before": COUNTS | {"max_member_lag_records": 1500, "lag_skew": 2.5},
        "metrics_after": COUNTS | {"max_member_lag_records": 900, "lag_skew": 1.5},
        **more,
    }
    columns = [
        {
            "topic": "t",
            "partition": number,
            "owner_before": before,
            "owner_after": after,
            "owner_after_key": KEYS.get(after),
            "moved": before != after,
            "lag_records": lag,
        }
        for number, (before, after, lag) in enumerate(rows)
    ]
    assignments = pa.Table.from_pylist(columns, schema=arrow_schema(PLAN_ASSIGNMENTS))
    built = build_page(VerifiedPlan(head, assignments, {}, (), (), None, ()), answer_by=SLOT)
    return built.subject, built.body.splitlines()


def test_lag_that_is_partly_unknown_is_a_lower_bound() -> None:
    subject, lines = page(ROWS, num_unknown_lags=4)
    assert subject.endswith("most loaded member from ≥ 1,500 to ≥ 900 records")
    assert "| lag of the most loaded member | ≥ 1,500 | ≥ 900 |" in lines
    assert "| skew (most loaded / mean) | - | - |" in lines
    assert any("the lag of 4 of 7 partitions is not known" in line for line in lines)
    cells = [[cell.strip(" █▏▎▍▌▋▊▉") for cell in line.split("|")] for line in lines]
    members = {row[1]: (row[3], row[5]) for row in cells if len(row) == 7}
    assert {name: members[name] for name in ("pod1", "b", "c")} == {
        "pod1": ("≥ 1,500", "≥ 900"),
        "b": ("≥ 7", "≥ 607"),
        "c": ("-", "-"),
    }


def test_lag_that_is_known_is_itself() -> None:
    known: list[Row] = [(before, after, 5) for before, after, _ in ROWS]
    subject, lines = page(known, num_unknown_lags=0, num_unknown_partitions=3)
    assert subject.endswith("most loaded member from 1,500 to 900 records")
    assert "| skew (most loaded / mean) | 2.50 | 1.50 |" in lines
    assert not any("≥" in line or "| - |" in line for line in lines)


def test_members_go_by_their_instance_ids_and_the_plan_by_what_the_command_takes() -> None:
    rows: list[Row] = [("a", "b", 600), (None, "c", 5), ("c", None, 4), ("gone", "a", 3)]
    _, lines = page(rows, moves=4)
    assert [line for line in lines if line.startswith("| t ")] == [
        "| t 0 | 600 | pod1 | b |",
        "| t 1 | 5 | nobody | c |",
        "| t 2 | 4 | c | nobody |",
        "| t 3 | 3 | gone | pod1 |",
    ]
    assert "- plan `abababababab`, slot 2026-03-01 12:00:00Z" in lines
    assert lines[-1] == "All of it: `evenlag plans abababababab`"
