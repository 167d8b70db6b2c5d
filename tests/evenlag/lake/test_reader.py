"""Filters of the light reader on tables of both writers, beside plain Python over an independent reader."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenlag.errors import SchemaError
from evenlag.lake.arrow_schema import stored_schema
from evenlag.lake.delta_log import open_table, read_actions
from evenlag.lake.file_pruning import may_match
from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import Column
from spark_jobs.runtime.delta_lake import Lake
from tests.support.lakes.odd_table import (
    CLUSTERS,
    DAYS,
    MICROSECONDS,
    NAMES,
    NOON,
    ODD,
    ODD_BY_MONTH,
    SHARES,
    TOP,
    write_odd_table,
    write_odd_table_directly,
)
from tests.support.lakes.snapshots import frame
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = pytest.mark.jvm

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, values: any(left == value for value in values),
}
VALUES: dict[str, list[Any]] = {
    "cluster": [*CLUSTERS, "nobody", "c%2F"],
    "day": [*DAYS, DAYS[0] - timedelta(days=1)],
    "number": [-1, 0, 17, 30, 40, 10**12],
    "name": [*(name for names in NAMES for name in names if name is not None), "zz", TOP, "x" * 31],
    "passed": [True, False],
    "at": [NOON + timedelta(days=day, microseconds=moment) for day in (0, 1) for moment in MICROSECONDS]
    + [NOON + timedelta(microseconds=moment) for moment in (122_999, 124_000, 1_000_000)],
    "share": [share for share in SHARES if share is not None],
    "small": [0, 1, 2, 3],
}


class Written:
    """The table, to be read by both readers."""

    def __init__(self, root: Path, table: Table) -> None:
        self.root = root
        self.table = table
        self.reader = LakeReader(str(root))
        self.rows = read_rows(root, ODD.name)

    def expected(self, filters: list[tuple[str, str, Any]]) -> list[int]:
        """Filter in plain Python; null fulfils nothing."""
        return sorted(row["number"] for row in self.rows if all(fulfils(row, *one) for one in filters))

    def found(self, filters: list[tuple[str, str, Any]]) -> list[int]:
        """Filter by the product."""
        return sorted(self.reader.read(self.table, columns=["number"], filters=filters)["number"].to_pylist())

    def check(self, filters: list[tuple[str, str, Any]]) -> None:
        """Compare both."""
        found, expected = self.found(filters), self.expected(filters)
        if any((column, sign) == ("share", "!=") for column, sign, _ in filters):
            # Parquet's statistics do not cover NaN: Arrow leaves out a file whose other values are all equal.
            missing = set(expected) - set(found)
            assert all(math.isnan(row["share"]) for row in self.rows if row["number"] in missing), filters
            expected = [number for number in expected if number not in missing]
        assert found == expected, filters


def fulfils(row: dict[str, Any], column: str, sign: str, value: Any) -> bool:
    """Whether a row fulfils a filter."""
    own = row[column]
    return own is not None and OPERATORS[sign](own, value)


@pytest.fixture(scope="module")
def written_by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("odd") / "lake"
    write_odd_table(Lake(spark, str(root)))
    return Written(root, ODD)


@pytest.fixture(scope="module")
def months_by_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("odd") / "lake"
    write_odd_table(Lake(spark, str(root)), ODD_BY_MONTH)
    return Written(root, ODD_BY_MONTH)


@pytest.fixture(scope="module")
def months_directly(tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("odd") / "lake"
    write_odd_table_directly(str(root))
    return Written(root, ODD_BY_MONTH)


@pytest.fixture(
    params=[
        "written_by_spark",
        pytest.param("months_by_spark", marks=pytest.mark.extended),
        "months_directly",
    ]
)
def written(request: pytest.FixtureRequest) -> Written:
    found: Written = request.getfixturevalue(request.param)
    return found


@pytest.mark.extended
def test_both_writers_write_the_same_rows(months_by_spark: Written, months_directly: Written) -> None:
    both = [
        sorted(str(sorted(plain(row).items())) for row in written.rows)
        for written in (months_by_spark, months_directly)
    ]
    assert {row["month"] for row in months_by_spark.rows} == {date(2026, 3, 1)}
    assert both[0] == both[1]


def test_the_table_has_what_made_filters_lose_rows(written_by_spark: Written) -> None:
    written = written_by_spark
    log = written.root / ODD.name / "_delta_log"
    assert list(log.glob("*.checkpoint*.parquet"))
    texts = [file.read_text(encoding="utf-8") for file in log.glob("*.json")]
    assert any('"name":"' not in text.partition("maxValues")[2].replace("\\", "") for text in texts)
    assert all('"passed":true' not in text.replace("\\", "") for text in texts)
    assert len(written.rows) == 2 * 2 * sum(len(names) for names in NAMES)


@pytest.mark.parametrize("column", VALUES)
@pytest.mark.parametrize("sign", OPERATORS)
def test_each_filter_finds_what_plain_python_finds(written: Written, column: str, sign: str) -> None:
    for value in VALUES[column]:
        wanted = [value] if sign == "in" else value
        written.check([(column, sign, wanted)])


def one_filter() -> st.SearchStrategy[tuple[str, str, Any]]:
    """Any column, operator and value of the table, and some that it has not."""

    def of_column(column: str) -> st.SearchStrategy[tuple[str, str, Any]]:
        values = st.sampled_from(VALUES[column])
        if column == "name":
            values |= st.text(max_size=40)
        single = st.tuples(
            st.just(column), st.sampled_from([sign for sign in OPERATORS if sign != "in"]), values
        )
        several = st.tuples(st.just(column), st.just("in"), st.lists(values, max_size=4))
        return single | several

    return st.sampled_from(sorted(VALUES)).flatmap(of_column)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(filters=st.lists(one_filter(), max_size=3))
def test_filters_together_find_what_plain_python_finds(
    written: Written, filters: list[tuple[str, str, Any]]
) -> None:
    written.check(filters)


def test_all_values_are_read_as_they_were_written(written: Written) -> None:
    found = sorted(written.reader.read(written.table).to_pylist(), key=lambda row: row["number"])
    rows = [{name: row[name] for name in ODD.column_names} for row in written.rows]
    expected = sorted(rows, key=lambda row: row["number"])
    assert [plain(row) for row in found] == [plain(row) for row in expected]


def plain(row: dict[str, Any]) -> dict[str, str]:
    """As text: NaN differs from itself, and a moment may be of pandas' type."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else repr(value) for name, value in row.items()
    }


def test_null_and_nothing_as_values_find_nothing(written: Written) -> None:
    assert written.found([("name", "=", None)]) == []
    assert written.found([("name", "in", [])]) == []
    assert written.found([("name", "in", [None, "only"])]) == written.expected([("name", "=", "only")])


def test_a_column_that_old_files_lack_fulfils_no_filter(written: Written) -> None:
    newer = replace(written.table, columns=(*ODD.columns, Column("note", "STRING", "new")))
    for sign, value in (("=", "x"), ("!=", "x"), ("in", ["x"])):
        assert written.reader.read(newer, filters=[("note", sign, value)]).num_rows == 0


def actions_of(written: Written, table: Table) -> pa.Table:
    with open_table(written.reader.paths, table) as delta:
        return read_actions(delta, written.reader.paths, table)


def test_files_are_pruned_by_day_and_by_statistics_that_are_there(written_by_spark: Written) -> None:
    written = written_by_spark
    actions = actions_of(written, ODD)

    def files(*filters: tuple[str, str, Any]) -> int:
        kept: pa.Table = may_match(actions, stored_schema(ODD), filters)
        return int(kept.num_rows)

    everything = files()
    assert everything == 3 * len(NAMES) + 1, "one day of one cluster is compacted"
    assert files(("day", "=", DAYS[1])) == 2 * len(NAMES)
    assert files(("cluster", "=", "c"), ("day", "=", DAYS[0])) == 1
    assert files(("number", "=", max(row["number"] for row in written.rows))) == 1
    assert files(("at", ">", NOON + timedelta(days=3))) == 0
    assert files(("passed", "=", True)) == everything, "what has no statistics rules out nothing"


@pytest.mark.extended
def test_a_day_selects_files_within_a_month(
    spark: SparkSession, months_by_spark: Written, months_directly: Written
) -> None:
    """By statistics, of files that Spark or deltalake wrote or compacted, for both readers."""
    own = CLUSTERS[1]
    for written in (months_by_spark, months_directly):
        actions = actions_of(written, ODD_BY_MONTH)
        rows = Lake(spark, str(written.root)).read(ODD_BY_MONTH)

        def files(cluster: str, day: date) -> tuple[int, int]:
            filters = [("cluster", "=", cluster), ("day", "=", day)]
            light = may_match(actions, stored_schema(ODD_BY_MONTH), filters).num_rows  # noqa: B023 - called here
            found = rows.where((rows.cluster == cluster) & (rows.day == day))  # noqa: B023 - called here
            return light, len(found.inputFiles())

        assert actions.num_rows == 2 * len(NAMES) + 1, "the month of the other cluster is compacted"
        assert files(own, DAYS[0]) == files(own, DAYS[1]) == (len(NAMES), len(NAMES))
        assert files("c", DAYS[0]) == files("c", DAYS[1]) == (1, 1)
        for cluster in CLUSTERS:
            assert files(cluster, date(2026, 3, 3)) == (0, 0), "the same month, and no file has the day"
        assert may_match(actions, stored_schema(ODD_BY_MONTH), [("day", ">", date(2026, 4, 1))]).num_rows == 0


def test_a_table_without_rows_and_one_with_a_null_cluster_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.append(ODD, frame(spark, ODD, []))
    reader = LakeReader(lake.paths.root)
    assert reader.read(ODD, filters=[("passed", "=", True)]).num_rows == 0
    lake.append(ODD, frame(spark, ODD, [{"cluster": None, "number": 1, "passed": True}]))
    assert reader.read(ODD, columns=["cluster", "number"]).to_pylist() == [{"cluster": None, "number": 1}]
    assert reader.read(ODD, filters=[("cluster", "!=", "c")]).num_rows == 0
    assert reader.read(ODD, columns=["number"], filters=[("passed", "=", True)])["number"].to_pylist() == [1]


def test_only_certain_bounds_name_a_files_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    table = replace(ODD, columns=(*ODD.columns[:2], Column("snapshot_id", "STRING", "id")))
    lake = Lake(spark, str(tmp_path / "lake"))
    cases: dict[date, list[str | None]] = {
        date(2026, 3, 1): ["s-1", "s-1"],
        date(2026, 3, 2): ["s-1", None],
        date(2026, 3, 3): ["s" * 40, "s" * 40],
        date(2026, 3, 4): [TOP * 33, TOP * 33],
    }
    rows = [{"day": day, "snapshot_id": name} for day, names in cases.items() for name in names]
    lake.append(table, frame(spark, table, rows))
    files = read_table_files(LakeReader(lake.paths.root), table)
    assert files is not None
    shown = {day: file.only_snapshot for (_, day), [file] in files.by_part.items()}
    assert shown == dict.fromkeys(cases) | {date(2026, 3, 1): "s-1"}


def test_a_table_of_a_newer_protocol_is_refused_and_still_described(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, str(tmp_path / "lake"))
    lake.append(ODD, frame(spark, ODD, [{"number": 1}]))
    spark.sql(f"ALTER TABLE {lake.sql_name(ODD)} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    reader = LakeReader(lake.paths.root)
    with pytest.raises(SchemaError, match="table odd: a table feature was enabled"):
        reader.read(ODD)
    files = read_table_files(reader, ODD)
    assert files is not None
    assert files.protocol[0] == 3
