"""Answers as files: CSV, Parquet, JSON, whole or not at all."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
import typer
from typer.testing import CliRunner

from evenlag.cli.export import ExportOption, export_rows
from evenlag.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 3, 1, 12, 0, tzinfo=timezone(timedelta(hours=2)))
ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "partition": 1, "from": AT, "held": ["a", "b"], "share": 0.5, "day": AT.date()},
    {"topic": "=cmd()", "partition": None, "from": None, "held": [], "share": float("nan"), "late": True},
]


def test_csv_holds_what_a_spreadsheet_shows_and_no_formula(tmp_path: Path) -> None:
    path = tmp_path / "answer.CSV"
    assert export_rows(ROWS, path) == 2
    with path.open(encoding="utf-8", newline="") as file:
        header, first, second = csv.reader(file)
    assert header == ["topic", "partition", "from", "held", "share", "day", "late"]
    assert first == ["orders", "1", "2026-03-01T10:00:00+00:00", '["a", "b"]', "0.5", "2026-03-01", ""]
    assert second == ["'=cmd()", "", "", "[]", "", "", "true"]


def test_json_is_one_array_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    export_rows(ROWS, path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content[0]["from"] == "2026-03-01T10:00:00+00:00"
    assert content[1] == {
        "topic": "=cmd()",
        "partition": None,
        "from": None,
        "held": [],
        "share": None,
        "day": None,
        "late": True,
    }


def test_parquet_keeps_types(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "answer.parquet"
    export_rows(ROWS, path)
    shown = pq.read_table(path).to_pylist()
    assert shown[0]["from"].astimezone(UTC) == AT
    assert (shown[0]["day"], shown[0]["held"]) == (date(2026, 3, 1), ["a", "b"])


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_an_arrow_table_keeps_its_columns_even_without_rows(tmp_path: Path, suffix: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / f"empty{suffix}"
    assert export_rows(pa.table({"group_id": pa.array([], pa.string())}), path) == 0
    if suffix == ".parquet":
        assert pq.read_table(path).column_names == ["group_id"]
    else:
        assert path.read_text().split() == (["group_id"] if suffix == ".csv" else ["[", "]"])


def test_a_column_of_several_types_becomes_text(tmp_path: Path) -> None:
    path = tmp_path / "mixed.json"
    export_rows([{"value": 1}, {"value": "two"}, {"value": None}], path)
    assert [row["value"] for row in json.loads(path.read_text())] == ["1", '"two"', None]


def test_a_file_is_replaced_as_a_whole_or_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    path.write_text("old")

    with pytest.raises(TypeError):
        export_rows([{"value": object()}], path)
    assert path.read_text() == "old"
    export_rows([{"value": 1}], path)
    assert json.loads(path.read_text()) == [{"value": 1}]
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere/a\.csv cannot be written: No such file"):
        export_rows(ROWS, tmp_path / "nowhere" / "a.csv")


def test_the_option_refuses_another_suffix_before_any_work() -> None:
    app = typer.Typer()

    @app.command()
    def ask(export: ExportOption = None) -> None:
        raise AssertionError(export)

    result = CliRunner().invoke(app, ["--export", "answer.xlsx"])
    assert result.exit_code == 2
    assert "must end in" in result.output


def test_a_link_in_a_folder_that_others_write_to_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenlag.cli.export.secrets.token_hex", lambda _bytes: "guessed")
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (tmp_path / ".answer.csv.guessed.new").symlink_to(victim)
    with pytest.raises(UsageError, match=r"answer\.csv cannot be written: File exists"):
        export_rows(ROWS, tmp_path / "answer.csv")
    assert victim.read_text() == "keep"
