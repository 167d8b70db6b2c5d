"""The query of the page on SQL counts the rows that count, on a recorded lake."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.support.pages.markdown import ROOT, Page
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from pathlib import Path

PAGE = Page(ROOT / "docs" / "how-to" / "query-with-sql.md")


def test_the_lag_by_slot_is_that_of_finished_snapshots(tmp_path: Path) -> None:
    root = extract("foreign", tmp_path).root
    newest = max(_rows(root / "snapshots"), key=lambda row: row["slot"])
    # A killed snapshot has rows, and no marker: its commit is the last one.
    max((root / "snapshots" / "_delta_log").glob("*.json")).unlink()
    assert newest not in _rows(root / "snapshots")
    lags: dict[tuple[str, Any], list[int | None]] = defaultdict(list)
    for row in _rows(root / "lag"):
        is_asked_for = all(row[name] == newest[name] for name in ("cluster", "day"))
        if is_asked_for and row["slot"] != newest["slot"] and row["status"] != "NOT_SUBSCRIBED":
            lags[row["group_id"], row["slot"]].append(row["lag_records"])
    found = _answers(root, newest["cluster"], newest["day"])
    assert [(row["group_id"], row["slot"]) for row in found] == sorted(lags, key=lambda key: key[::-1])
    for row in found:
        values = lags[row["group_id"], row["slot"]]
        known = [value for value in values if value is not None]
        assert (row["lag"], row["num_unknown"]) == (sum(known) if known else None, len(values) - len(known))
    assert {row["num_unknown"] > 0 for row in found} == {False, True}


def _answers(root: Path, cluster: str, day: Any) -> list[dict[str, Any]]:
    from deltalake import DeltaTable, QueryBuilder
    from pyarrow import table

    builder = QueryBuilder()
    for name in ("lag", "snapshots"):
        builder = builder.register(name, DeltaTable(root / name))
    query = "\n".join(PAGE.code_lines).replace("'orders'", f"'{cluster}'").replace("2026-11-23", str(day))
    rows: list[dict[str, Any]] = table(builder.execute(query).read_all()).to_pylist()
    return rows


def _rows(path: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows
