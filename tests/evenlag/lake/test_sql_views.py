"""The SQL views of a lake: every row of theirs counts, in DuckDB and Spark, whatever jobs were killed."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
import sqlglot

from evenlag.lake.reader import LakeReader
from evenlag.lake.sql_views import SqlEngine, view_statements
from evenlag.lake.tables import LAG, PLAN_ASSIGNMENTS, PLANS, SNAPSHOT_TABLES, SNAPSHOTS, TABLES
from tests.support.pages.markdown import ROOT
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

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
        assert _sorted(answer.select(shown).to_pylist()) == _sorted(
            [{name: row[name] for name in shown} for row in counted]
        ), table.name
    assert left_out == {table.name for table in (*SNAPSHOT_TABLES, PLAN_ASSIGNMENTS)}


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)


@pytest.mark.extended
@pytest.mark.jvm
def test_spark_answers_as_duckdb(
    spark: SparkSession, root: Path, database: duckdb.DuckDBPyConnection
) -> None:
    reader = LakeReader(str(root))
    for statement in view_statements(reader, SqlEngine.DUCKDB):
        database.execute(statement)
    try:
        for statement in view_statements(reader, SqlEngine.SPARK):
            spark.sql(statement)
        for table in filter(reader.exists, TABLES.values()):
            query = f"SELECT count(*) FROM evenlag.{table.name}"  # noqa: S608 - our names
            assert [tuple(spark.sql(query).collect()[0])] == database.execute(query).fetchall(), table.name
    finally:
        spark.sql("DROP SCHEMA IF EXISTS evenlag CASCADE")


def test_the_query_of_the_page_counts_the_lag_of_finished_snapshots(
    root: Path, database: duckdb.DuckDBPyConnection
) -> None:
    reader = LakeReader(str(root))
    for statement in view_statements(reader, SqlEngine.DUCKDB):
        database.execute(statement)
    finished = reader.read(SNAPSHOTS).to_pylist()
    cluster, day = finished[0]["cluster"], finished[0]["day"]
    lags: dict[tuple[Any, str], list[int | None]] = defaultdict(list)
    for row in reader.read(LAG).to_pylist():
        is_counted = row["snapshot_id"] in {each["snapshot_id"] for each in finished}
        if (
            is_counted
            and (row["cluster"], row["day"]) == (cluster, day)
            and row["status"] != "NOT_SUBSCRIBED"
        ):
            lags[row["slot"], row["group_id"]].append(row["lag_records"])
    [query] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    query = query.replace("'orders'", f"'{cluster}'").replace("2026-11-23", str(day))
    rows = database.execute(query).to_arrow_table().to_pylist()
    assert [(row["slot"], row["group_id"]) for row in rows] == sorted(lags)
    for row in rows:
        values = lags[row["slot"], row["group_id"]]
        known = [value for value in values if value is not None]
        assert (row["lag"], row["num_unknown"]) == (sum(known) if known else None, len(values) - len(known))


@pytest.mark.parametrize("engine", SqlEngine)
def test_every_statement_is_one_of_its_engine(root: Path, engine: SqlEngine) -> None:
    statements = list(view_statements(LakeReader(str(root)), engine))
    for statement in statements:
        (parsed,) = sqlglot.parse(statement, read=engine.value, error_level=sqlglot.ErrorLevel.RAISE)
        assert parsed is not None
        assert parsed.key == ("command" if statement.startswith("CALL ") else "create")
    named = [statement for statement in statements if "/lag" in statement]
    assert len(named) == 1


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
