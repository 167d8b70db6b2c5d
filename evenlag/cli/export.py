"""Export of a command's result to CSV, Parquet or JSON, as the suffix of the file says."""

from __future__ import annotations

import csv
import io
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from evenlag.cli import option_types
from evenlag.cli.console import json_value, print_line
from evenlag.cli.option_types import option
from evenlag.errors import UsageError
from evenlag.formatting import number
from evenlag.safe_text import cell_text

if TYPE_CHECKING:
    import pyarrow as pa

    Rows: TypeAlias = pa.Table | Sequence[Mapping[str, Any]]

SUFFIXES: Final = (".csv", ".parquet", ".json")


def _export_path(text: str) -> Path:
    path = option_types.path(text)
    if path.suffix.lower() not in SUFFIXES:
        name = option_types.shown(path.name)
        raise typer.BadParameter(f"{name} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    return option_types.check_folder_of(path)


_HELP: Final = "Also write all rows of the result to this file: .csv, .parquet or .json."
ExportOption = Annotated[Path | None, option("--export", "FILE", _HELP, _export_path, show_default=False)]


def export_rows(rows: Rows, path: Path) -> int:
    """Write rows to a file atomically, in the format of its suffix, and return their number.

    The columns of mappings are all of their keys, in the order of their first occurrence. In CSV, times are
    ISO 8601 in UTC, lists and structs JSON, and text that a spreadsheet would evaluate gets an apostrophe in
    front. In JSON, numbers that are not finite are null.
    """
    write = _WRITERS[path.suffix.lower()]
    table = _as_table(rows)
    write_atomically(path, lambda fresh: write(table, fresh))
    return int(table.num_rows)


def export_and_report(rows: Rows, path: Path) -> None:
    """Write rows to a file, and say on standard error how many."""
    print_line(sys.stderr, f"{number(export_rows(rows, path))} rows written to {path}")


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file, whole or not at all; `write` gets an empty file in the same folder, which is renamed."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        # Nobody else has made it: in a folder that others write to, a link would lead elsewhere.
        fresh.touch(exist_ok=False)
        write(fresh)
        fresh.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        fresh.unlink(missing_ok=True)


def _as_table(rows: Rows) -> pa.Table:
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    return pa.table(columns)


def _column(values: list[Any]) -> pa.Array:
    """Build a column; if its values have different types, as JSON text."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        plain = map(json_value, values)
        texts = [None if value is None else json.dumps(value, ensure_ascii=False) for value in plain]
        return pa.array(texts, pa.string())


def _write_csv(table: pa.Table, path: Path) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in table.column_names])
    for batch in table.to_batches():
        columns = [[_cell(value) for value in column.to_pylist()] for column in batch.columns]
        writer.writerows(zip(*columns, strict=True))
    path.write_text(text.getvalue(), encoding="utf-8")


def _cell(value: Any) -> str:
    plain = json_value(value)
    if plain is None:
        return ""
    if isinstance(plain, str):
        return cell_text(plain)
    return json.dumps(plain)


def _write_parquet(table: pa.Table, path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(table, path, compression="zstd")


def _write_json(table: pa.Table, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, row in enumerate(row for batch in table.to_batches() for row in batch.to_pylist()):
            file.write(",\n" if number else "\n")
            file.write(json.dumps(json_value(row), allow_nan=False))
        file.write("\n]\n")


_WRITERS: Final[dict[str, Callable[[pa.Table, Path], None]]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".json": _write_json,
}
