"""What evenlag makes of a lake of sealed plans that was edited, and the nearest other value of a column."""

from __future__ import annotations

import math
import shutil
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.monitoring.alerts import find_edited_plans
from evenlag.publishing.publish_checks import check_eligibility
from evenlag.publishing.publishable_plans import read_publishable
from tests.support.lakes.snapshots import NOW
from tests.support.sealing.sealed_lake import is_of_plan, policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from evenlag.lake.tables import Table


def copied(root: Path, tmp_path: Path) -> Path:
    """Copy a lake."""
    target = tmp_path / "lake"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target)
    return target


def judge(root: Path) -> dict[str, str | None]:
    """Why each plan of the lake is not published, by plan id; None if it is."""
    loaded, slot = policy(root), NOW + timedelta(minutes=2)
    plans = read_publishable(loaded, "c", slot)
    refused = {item.plan["plan_id"]: item.reason for item in check_eligibility(loaded, "c", plans).expired}
    # The clock of the test is not that of the check: that a plan is old is none of its reasons here.
    return {
        plan["plan_id"]: None if " s old, " in refused.get(plan["plan_id"], "") else refused[plan["plan_id"]]
        for plan in plans
    }


def alerts(root: Path) -> dict[str, str]:
    """The plans that the alert reports, by group."""
    reader = LakeReader(str(root))
    found = find_edited_plans(reader, policy(root), "c", reader.latest_snapshot("c"), NOW)
    assert found is not None
    return found


def changed(value: Any, kind: str) -> Any:
    """Another value of the same type, as near as can be."""
    if kind.startswith("ARRAY<STRUCT<member_key"):
        return [*(value or ()), {"member_key": "i:x", "capacity": 7.0}]
    if kind.startswith("ARRAY<STRUCT<measure"):
        return [*(value or ()), {"measure": "total_lag_records", "is_horizon": True, "predicted": 7.0}]
    if value is None and kind.startswith("STRUCT"):
        name, first = kind.removeprefix("STRUCT<").rstrip(">").split(", ")[0].split(": ")
        return {name: _OF_NULL[first]}
    if value is None:
        return ["x"] if kind.startswith("ARRAY") else _OF_NULL[kind]
    if isinstance(value, dict):
        name = next(name for name, each in value.items() if each is not None)
        return value | {name: value[name] + 1}
    return next(near(value) for known, near in _NEAR.items() if isinstance(value, known))


_OF_NULL = {"STRING": "x", "INT": 7, "BIGINT": 7, "DOUBLE": 7.0, "BOOLEAN": True, "TIMESTAMP": NOW}
# A truth value is a number in Python, and a time is a date: they come first.
_NEAR: dict[type, Callable[[Any], Any]] = {
    list: lambda value: [*value, "x"],
    bool: lambda value: not value,
    float: lambda value: math.nextafter(value, math.inf),
    int: lambda value: value + 1,
    datetime: lambda value: value + timedelta(microseconds=1),
    date: lambda value: value + timedelta(days=1),
    str: lambda value: f"{value[:-1]}{'a' if value[-1:] != 'a' else 'b'}",
}


def sorted_rows(table: Table, rows: list[dict[str, Any]], plan_id: str) -> list[dict[str, Any]]:
    """The rows of a plan, in the order of their keys."""
    own = [row for row in rows if is_of_plan(table, row, plan_id)]
    return sorted(own, key=lambda row: [str(row[name]) for name in table.key])
