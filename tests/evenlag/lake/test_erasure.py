"""What an erasure request finds in texts, JSON and nested values, and what it leaves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import MEMBERSHIPS, PLANS, RUNS, SNAPSHOTS, TABLES
from evenlag.lake.upkeep.erasure import ERASED, Erasure

ID = "alice-0f221b58-70ba-46c5-ade1-ff290d24d82f"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("alice", "alice", ERASED),
        ("alice", f"m:{ID}", f"m:{ERASED}"),
        ("alice", f'{{"i:alice":[0],"x":"{ID}"}}', f'{{"i:{ERASED}":[0],"x":"{ERASED}"}}'),
        ("alice", "alice,alice and alice.", f"{ERASED},{ERASED} and alice."),
        ("alice", "malice alice-2 alice_b", "malice alice-2 alice_b"),
        (ID, f"{ID} of alice", f"{ERASED} of alice"),
        ("/10.0.0.1", "host /10.0.0.1, not /10.0.0.11", f"host {ERASED}, not /10.0.0.11"),
        ('a"\\b*', json.dumps({"k": 'a"\\b*'}), json.dumps({"k": ERASED})),
        ("\u00e9ve", json.dumps(["\u00e9ve"]), json.dumps([ERASED])),
    ],
)
def test_a_name_is_found_where_it_stands_alone(name: str, text: str, expected: str) -> None:
    assert re.sub(Erasure(name, is_group=False).pattern, ERASED, text) == expected


def erased(erasure: Erasure, table: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    import pyarrow as pa

    data = pa.Table.from_pylist(rows, schema=arrow_schema(table))
    batches = list(erasure.erase(data.to_batches(), table))
    assert all(batch.schema == data.schema for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def test_nested_values_and_texts_are_changed_and_nothing_else() -> None:
    one = {"member_id": ID, "client_id": "alice", "client_host": "/h", "assignment": None}
    row = {"group_id": "alice", "members": [one, one | {"member_id": "bob", "client_id": "bob"}]}
    (after,) = erased(Erasure("alice", is_group=False), MEMBERSHIPS, [row])
    assert after["group_id"] == "alice", "a group of the same name"
    assert [member["member_id"] for member in after["members"]] == [ERASED, "bob"]
    assert [member["client_id"] for member in after["members"]] == [ERASED, "bob"]
    assert {member["client_host"] for member in after["members"]} == {"/h"}


def test_a_group_is_deleted_and_its_name_goes_from_texts_about_others() -> None:
    group = Erasure("billing", is_group=True)
    plans = [{"group_id": name, "plan_id": name} for name in ("billing", "billing-2", "other")]
    assert [row["plan_id"] for row in erased(group, PLANS, plans)] == ["billing-2", "other"]
    (run,) = erased(group, RUNS, [{"run_id": "billing", "summary": '{"failures": {"billing": "no"}}'}])
    assert (run["run_id"], run["summary"]) == ("billing", '{"failures": {"erased": "no"}}')
    problem = {"kind": "group", "name": "billing", "error": "no answer for billing"}
    (snapshot,) = erased(
        group, SNAPSHOTS, [{"problems": [problem, problem | {"name": "other", "error": ""}]}]
    )
    assert [(one["name"], one["error"]) for one in snapshot["problems"]] == [
        (ERASED, "no answer for erased"),
        ("other", ""),
    ]


def test_every_table_with_a_column_for_a_name_is_looked_at() -> None:
    left_out = {name for name, table in TABLES.items() if not Erasure("x", is_group=True).applies_to(table)}
    assert left_out == {"policies", "audited_snapshots", "downsampled_days", "hourly_rates"}
    assert all("group_id" not in TABLES[name].column_names for name in left_out)
