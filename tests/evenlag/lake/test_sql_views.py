"""The SQL views of a lake: every row of theirs counts, in DuckDB and Spark, whatever jobs were killed."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlglot

import evenlag
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.reader import LakeReader
from evenlag.lake.sql_views import SqlEngine, view_statements
from evenlag.lake.tables import ADVICE, PLAN_ASSIGNMENTS, PLANS, SNAPSHOT_TABLES, SNAPSHOTS, SPEEDS, TABLES
from evenlag.lake.writer import append_once
from tests.support.pages.markdown import ROOT
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table
    from tests.support.fixtures.command import Evenlag

PAGE = ROOT / "docs" / "how-to" / "query-with-sql.md"


def _extension() -> Path:
    """Return DuckDB's extension ``delta``, as a package brings it."""
    found = find_spec("duckdb_extension_delta")
    assert found is not None
    assert found.origin is not None
    return next(Path(found.origin).parent.rglob("*.duckdb_extension"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A lake whose last snapshot and last plan were killed before they were finished, in an odd folder."""
    found = extract("hints", tmp_path / "Jane's lake, 5 % é").root
    for table in (SNAPSHOTS, PLANS):
        max((found / table.name / "_delta_log").glob("*.json")).unlink()
    return found


@pytest.fixture
def database(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"extension_directory": str(tmp_path / "extensions")}) as opened:
        opened.execute(f"INSTALL '{_extension()}'")
        yield opened


def test_the_views_have_the_rows_that_count(root: Path, database: duckdb.DuckDBPyConnection) -> None:
    reader = LakeReader(str(root))
    for statement in view_statements(reader, SqlEngine.DUCKDB):
        database.execute(statement)
    left_out = set()
    for table in filter(reader.exists, TABLES.values()):
        columns = [column.name for column in table.columns]
        key = "snapshot_id" if table in SNAPSHOT_TABLES else "plan_id"
        rows = reader.read(table)
        if table in SNAPSHOT_TABLES or table == PLAN_ASSIGNMENTS:
            finished = reader.read(PLANS if table == PLAN_ASSIGNMENTS else SNAPSHOTS)[key].to_pylist()
            counted = [row for row in rows.to_pylist() if row[key] in finished]
            if len(counted) < rows.num_rows:
                left_out.add(table.name)
        else:
            counted = rows.to_pylist()
        answer = database.execute(f"SELECT * FROM evenlag.{table.name}").to_arrow_table()  # noqa: S608 - our names
        shown = [name for name in columns if name in answer.column_names]
        key_columns = list(dict.fromkeys(("cluster", *table.key)))
        keys = answer.group_by(key_columns).aggregate([([], "count_all")])
        assert max(keys["count_all"].to_pylist(), default=1) == 1, table.name
        assert _sorted(answer.select(shown).to_pylist()) == _sorted(
            [{name: row[name] for name in shown} for row in counted]
        ), table.name
    assert left_out == {table.name for table in (*SNAPSHOT_TABLES, PLAN_ASSIGNMENTS)}


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    # DuckDB adds whole numbers up to 128 bits, which are decimals in Arrow.
    plain = [
        {name: float(value) if isinstance(value, int | Decimal) else value for name, value in row.items()}
        for row in rows
    ]
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in plain)


def test_before_anything_is_finished_no_row_counts(root: Path, database: duckdb.DuckDBPyConnection) -> None:
    for table in (SNAPSHOTS, PLANS):
        shutil.rmtree(root / table.name)
    for statement in view_statements(LakeReader(str(root)), SqlEngine.DUCKDB):
        database.execute(statement)
    for table in (*SNAPSHOT_TABLES, PLAN_ASSIGNMENTS):
        assert LakeReader(str(root)).read(table).num_rows
        count = f"SELECT count(*) FROM evenlag.{table.name}"  # noqa: S608 - the names are ours
        assert database.execute(count).fetchall() == [(0,)]


@pytest.mark.parametrize("engine", SqlEngine)
def test_every_statement_is_one_of_its_engine(root: Path, engine: SqlEngine) -> None:
    statements = list(view_statements(LakeReader(str(root)), engine))
    for statement in statements:
        (parsed,) = sqlglot.parse(statement, read=engine.value, error_level=sqlglot.ErrorLevel.RAISE)
        assert parsed is not None
        assert parsed.key == ("command" if statement.startswith("CALL ") else "create")
    assert len([statement for statement in statements if "/lag" in statement]) == 1


@pytest.mark.extended
@pytest.mark.jvm
def test_spark_answers_as_duckdb(
    spark: SparkSession,
    questions: tuple[evenlag.Lake, list[str]],
    database: duckdb.DuckDBPyConnection,
) -> None:
    lake, queries = questions
    for statement in view_statements(lake.reader, SqlEngine.DUCKDB):
        database.execute(statement)
    try:
        for statement in view_statements(lake.reader, SqlEngine.SPARK):
            spark.sql(statement)
        for query in queries:
            [translated] = sqlglot.transpile(query, read="duckdb", write="spark")
            answer = database.execute(query).to_arrow_table().to_pylist()
            assert _sorted(spark.sql(translated).toArrow().to_pylist()) == _sorted(answer), query
    finally:
        for schema in ("evenlag", "evenlag_tables"):
            spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def questions(tmp_path: Path) -> tuple[evenlag.Lake, list[str]]:
    """A lake with rows for all queries of the page, and these queries for its cluster and day."""
    root = extract("hints", tmp_path / "Jane's lake, 5 % é").root
    cluster, day = "north", date(2026, 11, 23)
    head: dict[str, Any] = {"cluster": cluster, "day": day, "slot": datetime(2026, 11, 23, 3, tzinfo=UTC)}
    for snapshot_id, is_met in (("20261123T030000000Z-b", False), ("20261123T020000000Z-a", None)):
        of_group = head | {"snapshot_id": snapshot_id, "end_read_at": head["slot"]}
        member = dict.fromkeys(_fields(SPEEDS, "members")) | {
            "client_id": "billing-1", "speed_records_per_s": 120.0, "is_bound": True, "confidence": 0.5,
        }  # fmt: skip
        speeds = of_group | {"group_id": "billing", "members": [member]}
        append_once(str(root), SPEEDS, [speeds], [("snapshot_id", "=", snapshot_id)])
        advice = [
            of_group | {"group_id": group, "target_wait_s": 30, "wait_ms": 45_500, "is_target_met": known}
            for group, known in (("billing", is_met), ("bare", True), ("deaf", None))
        ]
        append_once(str(root), ADVICE, advice, [("snapshot_id", "=", snapshot_id)])
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    of_lake = {"'orders'": f"'{cluster}'", "'billing'": "'review'", "'invoices'": "'returns'"}
    of_lake["12:00:00"] = "02:33:20.9"
    for ours, theirs in of_lake.items():
        queries = [query.replace(ours, theirs) for query in queries]
    return evenlag.open(str(root), cluster=cluster), queries


def _fields(table: Table, column: str) -> list[str]:
    field = arrow_schema(table).field(column)
    return [each.name for each in field.type.value_type]


def test_the_queries_of_the_page_answer_as_the_product(
    questions: tuple[evenlag.Lake, list[str]], database: duckdb.DuckDBPyConnection
) -> None:
    lake, queries = questions
    for statement in view_statements(lake.reader, SqlEngine.DUCKDB):
        database.execute(statement)
    owners, lags, plans, speeds, late = (database.execute(query).fetchall() for query in queries)
    _check(lake, owners, lags, plans)
    assert speeds == [("billing", "billing-1", 120.0, True, 0.5)]
    assert [(group, target_s, float(wait_s)) for group, target_s, wait_s, _ in late] == [
        ("billing", 30, 45.5)
    ]


def _check(lake: evenlag.Lake, owners: list[Any], lags: list[Any], plans: list[Any]) -> None:
    at = datetime(2026, 11, 23, 2, 33, 20, 900_000, tzinfo=UTC)
    intervals = lake.ownership(group="review", since=at, until=at).to_pylist()
    expected = [
        (row["state"], row["member_id"], row["client_id"], row["client_host"])
        for row in intervals
        if row["partition"] == 3 and row["first_seen_at"] <= at <= row["last_seen_at"]
    ]
    assert owners == expected
    assert len(owners) == 1
    by_slot: dict[tuple[str, datetime], list[int | None]] = defaultdict(list)
    since = datetime(2026, 11, 23, tzinfo=UTC)
    for row in lake.lag(since=since, until=since + timedelta(days=1)).to_pylist():
        if row["status"] != "NOT_SUBSCRIBED":
            by_slot[row["group_id"], row["slot"]].append(row["lag_records"])
    by_hour: dict[tuple[datetime, str], list[list[int | None]]] = defaultdict(list)
    for (group, slot), values in by_slot.items():
        by_hour[slot.replace(minute=0, second=0, microsecond=0), group].append(values)
    assert [(hour, group, most, unknown) for group, hour, most, unknown in lags] == [
        (
            hour,
            group,
            max((sum(known) for known in map(_known, of_hour) if known), default=None),
            sum(values.count(None) for values in of_hour),
        )
        for (hour, group), of_hour in sorted(by_hour.items())
    ]
    assert {unknown > 0 for *_, unknown in lags} == {False, True}
    outcomes = {row["plan_id"]: row for row in lake.outcomes().to_pylist()}
    assert sorted(plans) == sorted(
        (
            row["slot"],
            row["group_id"],
            row["moves"],
            *(
                outcomes.get(row["plan_id"], {}).get(name)
                for name in ("outcome", "max_member_lag_before_records", "max_member_lag_actual_records")
            ),
        )
        for row in lake.plans().to_pylist()
    )
    assert any(row[3] == "APPLIED" for row in plans)


def _known(values: list[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def test_they_are_created_in_a_database(
    evenlag: Evenlag, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with duckdb.connect() as database:
        database.execute(f"INSTALL '{_extension()}'")
    file = tmp_path / "lake.duckdb"
    for _ in range(2):
        assert evenlag("lake", "views", "--for", "duckdb", "--lake", root, "--into", file).exit_code == 0
    snapshots = LakeReader(str(root)).read(SNAPSHOTS).num_rows
    with duckdb.connect(file, read_only=True) as database:
        assert database.execute("SELECT count(*) FROM evenlag.snapshots").fetchall() == [(snapshots,)]


def test_mistakes_are_told(evenlag: Evenlag, root: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no database " * 1_000, encoding="utf-8")
    for engine, file, says in (
        ("duckdb", other, "not a valid DuckDB database file"),
        ("spark", tmp_path / "new", "--into goes with --for duckdb"),
        ("hive", other, "duckdb"),
    ):
        answer = evenlag("lake", "views", "--for", engine, "--lake", root, "--into", file)
        assert (answer.exit_code, len(answer.stderr.splitlines())) == (2, 1), answer.stderr
        assert says in answer.stderr
    assert other.read_text(encoding="utf-8").startswith("no database")
    assert not (tmp_path / "new").exists()
