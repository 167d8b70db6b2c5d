"""The newest rows by file statistics, beside plain Python over an independent reader; and the files read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenlag.lake.reader import LakeReader, NewestSearch
from evenlag.lake.tables import RUNS
from evenlag.lake.writer import append_once
from tests.support.lakes.odd_table import CLUSTERS, ODD, ODD_BY_MONTH, write_odd_table_directly
from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)


class Odd:
    """The table of odd values, to be read by both readers."""

    def __init__(self, root: Path) -> None:
        write_odd_table_directly(str(root))
        self.reader = LakeReader(str(root))
        self.rows = read_rows(root, ODD.name)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Odd:
    return Odd(tmp_path_factory.mktemp("odd") / "lake")


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    by=st.sampled_from(["at", "day", "number", "small"]),
    limit=st.integers(1, 30),
    is_oldest=st.booleans(),
    cluster=st.sampled_from([*CLUSTERS, "nobody"]),
    name=st.sampled_from([None, "only", "a", "é"]),
    up_to=st.none() | st.integers(0, 45),
)
def test_the_newest_rows_are_those_that_plain_python_finds(
    odd: Odd, *, by: str, limit: int, is_oldest: bool, cluster: str, name: str | None, up_to: int | None
) -> None:
    filters: list[Any] = [("cluster", "=", cluster)]
    filters += [] if name is None else [("name", "=", name)]
    filters += [] if up_to is None else [("number", "<=", up_to)]
    matching = [
        row
        for row in odd.rows
        if row["cluster"] == cluster
        and name in {None, row["name"]}
        and (up_to is None or row["number"] <= up_to)
    ]
    values = sorted((row[by] for row in matching), reverse=not is_oldest)
    last = values[min(limit, len(values)) - 1] if values else None
    expected = sorted(
        row["number"] for row in matching if (row[by] <= last if is_oldest else row[by] >= last)
    )
    found = odd.reader.read_newest(
        ODD_BY_MONTH, by, columns=["number"], filters=filters, limit=limit, is_oldest=is_oldest
    )
    assert sorted(found["number"].to_pylist()) == expected


def runs_of(reader: LakeReader, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the files of each read from now on."""
    counts: list[int] = []
    made = LakeReader._dataset  # what a read touches is nowhere to be seen from outside

    def counting(own: LakeReader, table: Any, files: pa.Table, schema: pa.Schema) -> Any:
        counts.append(files.num_rows)
        return made(own, table, files, schema)

    monkeypatch.setattr(type(reader), "_dataset", counting)
    return counts


def write_runs(root: Path, *, days: int, steps: tuple[str, ...] = ("observe",)) -> None:
    for number in range(days):
        at = MIDNIGHT + timedelta(days=number)
        for step in steps:
            row = {
                "cluster": "c", "day": at.date(), "run_id": f"{step}-{number}", "step": step, "slot": at,
                "started_at": at, "finished_at": at + timedelta(microseconds=number),
            }  # fmt: skip
            append_once(str(root), RUNS, [row], None)


def test_one_file_of_many_is_read_and_more_only_as_long_as_nothing_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_runs(tmp_path, days=20, steps=("observe", "decide"))
    reader = LakeReader(str(tmp_path))
    counts = runs_of(reader, monkeypatch)
    found = reader.read_newest(RUNS, "finished_at", filters=[("cluster", "=", "c")])
    assert set(found["run_id"].to_pylist()) <= {"observe-19", "decide-19"}
    # Both files of the newest day have the same bound.
    assert sum(counts) <= 2
    counts.clear()
    old = [("cluster", "=", "c"), ("step", "=", "observe"), ("slot", "<=", MIDNIGHT + timedelta(days=3))]
    assert reader.read_newest(RUNS, "slot", filters=old)["run_id"].to_pylist() == ["observe-3"]
    assert sum(counts) <= 4
    counts.clear()
    assert reader.read_newest(RUNS, "slot", filters=[("cluster", "=", "nobody")]).num_rows == 0
    assert counts == []
    # Nothing matches: every file is looked at, in few reads.
    assert reader.read_newest(RUNS, "slot", filters=[("summary", "=", "nobody")]).num_rows == 0
    assert (sum(counts), len(counts) <= 6) == (40, True)


def test_a_file_without_statistics_is_always_read(tmp_path: Path) -> None:
    import pyarrow as pa

    write_runs(tmp_path, days=2)
    # deltalake has statistics of all files here; a log of another writer may have none.
    files = pa.table({"path": ["a", "b", "c"], "max.number": [5, None, 9], "min.number": [1, None, 7]})
    search = NewestSearch(files, "number", pa.int64(), [], 1)
    first = search.next_files()
    assert first is not None
    assert first["path"].to_pylist() == ["b"]
    search.add(pa.table({"number": [8]}))
    second = search.next_files()
    assert second is not None
    assert second["path"].to_pylist() == ["c"]
    search.add(pa.table({"number": [7]}))
    assert search.next_files() is None
    assert search.rows is not None
    assert search.rows["number"].to_pylist() == [8]


def test_clusters_are_known_from_the_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = LakeReader(str(tmp_path))
    assert reader.clusters(RUNS) == []
    write_runs(tmp_path, days=2)
    row = {"cluster": "a", "day": date(2026, 3, 1), "run_id": "r", "step": "observe", "slot": MIDNIGHT}
    append_once(str(tmp_path), RUNS, [row | {"started_at": MIDNIGHT, "finished_at": MIDNIGHT}], None)
    counts = runs_of(reader, monkeypatch)
    assert (reader.clusters(RUNS), counts) == (["a", "c"], [])


def test_only_files_that_were_written_since_a_moment_are_read(tmp_path: Path) -> None:
    write_runs(tmp_path, days=2)
    reader, now = LakeReader(str(tmp_path)), datetime.now(UTC)
    assert reader.read(RUNS, written_since=now - timedelta(minutes=5)).num_rows == 2
    assert reader.read(RUNS, written_since=now + timedelta(minutes=5)).num_rows == 0
