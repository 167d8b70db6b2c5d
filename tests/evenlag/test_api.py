"""The Python API: rows that count, beside an independent reader's; a notebook; a light import."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
import pytest

import evenlag
from assignor_core.errors import ProblemError, UnknownAssignorError
from evenlag.errors import NotFoundError, UsageError
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, OUTCOMES
from tests.truth.oracle.lake_rows import LakeRows
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from tests.truth.recorded_lakes import RecordedLake

ROOT: Final = Path(__file__).resolve().parents[2]
CLUSTER: Final = "names"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedLake:
    """A recorded lake with two days, as if the last snapshot was killed before its marker."""
    found = extract(CLUSTER, tmp_path_factory.mktemp("recorded") / "here")
    max((found.root / "snapshots" / "_delta_log").glob("*.json")).unlink()
    return found


@pytest.fixture
def lake(recorded: RecordedLake) -> evenlag.Lake:
    return evenlag.open(str(recorded.root))


@pytest.fixture
def oracle(recorded: RecordedLake) -> LakeRows:
    return LakeRows(recorded.root, CLUSTER)


def keyed(rows: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {tuple(row[name] for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


LAG_KEY: Final = ("snapshot_id", "group_id", "topic", "topic_id", "partition")


def test_lag_has_the_rows_of_finished_snapshots_and_no_others(lake: evenlag.Lake, oracle: LakeRows) -> None:
    markers = {row["snapshot_id"]: row["slot"] for row in oracle.rows("snapshots")}
    written = oracle.rows("lag")
    counting = [row for row in written if row["snapshot_id"] in markers]
    assert len(counting) < len(written)
    slots = sorted(markers.values())
    everything = lake.lag(since=slots[0])
    assert everything.schema == arrow_schema(LAG)
    # The lake was recorded by a version with fewer columns.
    columns = list(written[0])
    assert keyed(everything.select(columns).to_pylist(), *LAG_KEY) == keyed(counting, *LAG_KEY)
    group = counting[0]["group_id"]
    cases = [
        (lake.lag(), slots[-1], slots[-1], None),
        (lake.lag(until=slots[3] + timedelta(seconds=1)), slots[3], slots[3], None),
        (lake.lag(since=slots[2], until=slots[5], group=group), slots[2], slots[5], group),
        (lake.lag(until=slots[0] - timedelta(seconds=1)), slots[-1], slots[0], None),
    ]
    for found, first, last, wanted in cases:
        expected = [
            row
            for row in counting
            if first <= row["slot"] <= last and (wanted is None or row["group_id"] == wanted)
        ]
        assert keyed(found.select(columns).to_pylist(), *LAG_KEY) == keyed(expected, *LAG_KEY)


def test_plans_have_their_last_event_and_outcome(lake: evenlag.Lake, oracle: LakeRows) -> None:
    found = lake.plans()
    plans, outcomes = oracle.rows("plans"), keyed(oracle.rows("outcomes"), "plan_id")
    assert set(found["plan_id"].to_pylist()) == {row["plan_id"] for row in plans}
    assert found["slot"].to_pylist() == sorted((row["slot"] for row in plans), reverse=True)
    assert {"payload", "settings", "seal"}.isdisjoint(found.column_names)
    for row in found.to_pylist():
        events = {event["event"] for event in oracle.where("plan_events", plan_id=row["plan_id"])}
        assert row["status"] in events
        actual = outcomes.get((row["plan_id"],), {"max_member_lag_actual_records": None, "adherence": None})
        assert row["max_member_lag_actual_records"] == actual["max_member_lag_actual_records"]
        assert row["adherence"] == actual["adherence"]
        assert actual.get("outcome") in {None, row["status"]}
    first = min(row["slot"] for row in plans)
    later = lake.plans(since=first + timedelta(milliseconds=1))
    assert later.num_rows == sum(row["slot"] > first for row in plans) < found.num_rows
    none = lake.plans(until=first - timedelta(days=1))
    assert (none.num_rows, none.schema) == (0, found.schema)


def test_outcomes_are_those_of_the_table(lake: evenlag.Lake, oracle: LakeRows) -> None:
    found, rows = lake.outcomes(), oracle.rows("outcomes")
    assert found.schema == arrow_schema(OUTCOMES)
    assert keyed(found.select(list(rows[0])).to_pylist(), "plan_id") == keyed(rows, "plan_id")
    last = max(row["slot"] for row in rows)
    assert lake.outcomes(since=last).num_rows == sum(row["slot"] == last for row in rows)


def test_ownership_says_who_owned_a_partition_in_a_snapshot(lake: evenlag.Lake, oracle: LakeRows) -> None:
    """The intervals of the two days touch at midnight: joined, there are fewer."""
    days = oracle.rows("ownership")
    found = lake.ownership()
    assert 0 < found.num_rows < len(days)
    at = days[0]["first_seen_at"]
    then = lake.ownership(since=at, until=at, group=days[0]["group_id"])
    is_then = pc.and_(pc.less_equal(then["first_seen_at"], at), pc.greater_equal(then["last_seen_at"], at))
    seen = {(row["topic"], row["partition"], row["member_id"]) for row in then.filter(is_then).to_pylist()}
    assert seen == {
        (row["topic"], row["partition"], row["member_id"])
        for row in days
        if row["group_id"] == days[0]["group_id"] and row["first_seen_at"] <= at <= row["last_seen_at"]
    }
    with pytest.raises(NotFoundError, match="nobody-has-it"):
        lake.ownership(group="nobody-has-it")


def test_mistakes_say_what_is_wrong(lake: evenlag.Lake, recorded: RecordedLake, tmp_path: Path) -> None:
    naive = datetime(2026, 11, 1)  # noqa: DTZ001 - the mistake
    for read in (lake.lag, lake.plans, lake.outcomes, lake.ownership):
        with pytest.raises(UsageError, match="no time zone"):
            read(since=naive)
    with pytest.raises(NotFoundError, match="no snapshot yet"):
        evenlag.open(str(tmp_path / "nothing"))
    with pytest.raises(NotFoundError, match=r"'nmaes'.*'names'"):
        evenlag.open(str(recorded.root), cluster="nmaes")
    with pytest.raises(AttributeError, match=r"evenlag.*opne"):
        evenlag.opne  # type: ignore[attr-defined]  # noqa: B018 - the mistake


def test_assign_solves_a_plain_problem() -> None:
    """Computed manually: no member can have less than the largest lag, 900 of 1,720 records."""
    owners = {"a": [("t", 0), ("t", 1)], "b": [("t", 2), ("t", 3)]}
    topics, members = {"t": 4}, {"a": ["t"], "b": ["t"]}
    found = evenlag.assign(topics, members, owners=owners, lags={"t": [900, 800, 10, 10]})
    lags = sorted(sum([900, 800, 10, 10][partition] for _, partition in pairs) for pairs in found.values())
    assert lags == [820, 900]
    assert evenlag.assign(topics, members, owners=owners, assignor="sticky") == owners
    assert evenlag.assign(topics, members, assignor="range") == owners
    with pytest.raises(ProblemError, match="c are not members"):
        evenlag.assign(topics, members, owners={"c": [("t", 0)]})
    with pytest.raises(ProblemError, match="3 lags for 4 partitions"):
        evenlag.assign(topics, members, lags={"t": [1, 2, 3]})
    with pytest.raises(UnknownAssignorError, match="did you mean 'sticky'"):
        evenlag.assign(topics, members, assignor="stikcy")
    with pytest.raises(TypeError, match="max_moves"):
        evenlag.assign(topics, members, assignor="range", max_moves=1)


def test_the_import_loads_nothing_and_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert evenlag.__version__ == project["version"]
    code = "import sys; before = set(sys.modules); import evenlag; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    found = {name.partition(".")[0] for name in done.stdout.split()}
    assert found <= {"evenlag", *sys.stdlib_module_names}
    assert not {"importlib.metadata", "dataclasses"} & set(done.stdout.split())
    assert "evenlag.api" not in done.stdout


def test_the_notebook_runs(recorded: RecordedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_LAKE", str(recorded.root))
    notebook = json.loads((ROOT / "examples" / "lake.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 5
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), names)  # noqa: S102 - our own notebook
    assert names["lake"].cluster == CLUSTER
    assert names["plans"].num_rows
    assert names["owners"].num_rows
    moves = {pair for pairs in names["after"].values() for pair in pairs}
    assert moves == {("orders", partition) for partition in range(4)}
    assert datetime.now(UTC) > names["lag"]["slot"][0].as_py()
