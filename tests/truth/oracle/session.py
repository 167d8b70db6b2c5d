"""Runs commands on a lake and reads their JSON, their printed tables and their exported files."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.checks import parse_json_strictly
from tests.truth.oracle.forms import as_csv_text, as_json, as_printed
from tests.truth.oracle.printed import parse_tables

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.truth.oracle.checks import Checks, Runner
    from tests.truth.oracle.lake_rows import LakeRows, Row
    from tests.truth.oracle.printed import PrintedTable

EXPORTS: Final = ("json", "csv", "parquet")
# Number of rows to show: more than a recorded lake has.
_ALL: Final = ("--limit", "100000")
_WITHOUT_LIMIT: Final = frozenset({"compare", "lake", "report", "policy"})


class Session:
    """One cluster of a lake, and the command to run.

    checks: Receives the comparisons.
    folder: For exported files and pages.
    """

    def __init__(self, rows: LakeRows, run: Runner, checks: Checks, folder: Path) -> None:
        self.rows, self.checks, self.folder = rows, checks, folder
        self._run = run
        self._known: set[str] = set()

    def is_first(self, command: str) -> bool:
        """Return whether this is the first call for a command: exports are compared once."""
        if command in self._known:
            return False
        self._known.add(command)
        return True

    def same(self, command: str, value: str, shown: Any, expected: Any) -> None:
        """Compare a value: times as JSON has them, printed text without control characters."""
        wanted = as_json(expected)
        self.checks.same(command, value, shown, as_printed(wanted) if "printed" in value else wanted)

    def ask(self, command: str, *arguments: str) -> Any:
        """Return the JSON output of a command; None, and a difference, if it fails."""
        shown = self._invoke(command, (*arguments, "--json"), exit_code=0)
        return None if shown is None else parse_json_strictly(shown)

    def printed(
        self, command: str, *arguments: str, is_whole: bool = False
    ) -> tuple[list[PrintedTable], str]:
        """Return the printed tables of a command, and its complete output."""
        limit = () if is_whole else self._limit(command)
        shown = self._invoke(command, (*arguments, *limit), exit_code=0) or ""
        return parse_tables(shown), shown

    def fails(self, command: str, *arguments: str, exit_code: int) -> None:
        """Compare the exit code of a command that must fail."""
        self._invoke(command, arguments, exit_code=exit_code)

    def exported(self, command: str, *arguments: str, suffix: str) -> list[Row] | None:
        """Return the rows that a command exports, with the types of JSON; None if it fails."""
        path = self.folder / f"export.{suffix}"
        path.unlink(missing_ok=True)
        # Its standard output has been compared already.
        if self._invoke(command, (*arguments, "--export", str(path), "--json"), exit_code=0) is None:
            return None
        return _READERS[suffix](path.read_bytes())

    def _limit(self, command: str) -> tuple[str, ...]:
        return () if command.split(maxsplit=1)[0] in _WITHOUT_LIMIT else _ALL

    def _invoke(self, command: str, arguments: Sequence[str], *, exit_code: int) -> str | None:
        """Standard output; None if the exit code is another one."""
        where = ("--lake", str(self.rows.lake), "--cluster", self.rows.cluster)
        done = self._run((*command.split(), *arguments, *where))
        name = f"exit code of {' '.join(arguments)}"
        self.checks.same(command, name, done.returncode, exit_code)
        return done.stdout if done.returncode == exit_code else None


def compare_exports(
    session: Session, command: str, arguments: Sequence[str], expected: Sequence[Row]
) -> None:
    """Compare the exported files of each format with the expected rows."""
    # A column has one type: an integer in a column of floats is written as a float.
    fractions = {name for row in expected for name, value in row.items() if isinstance(value, float)}
    # Missing values are null.
    names = dict.fromkeys(name for row in expected for name in row)
    rows = [{name: _in_column(row.get(name), name in fractions) for name in names} for row in expected]
    for suffix in EXPORTS:
        shown = session.exported(command, *arguments, suffix=suffix)
        wanted = [_FORMS[suffix](row) for row in rows]
        if suffix == "csv" and shown is not None:
            shown = [
                {name: _number(value, name in fractions) for name, value in row.items()} for row in shown
            ]
        session.checks.same(f"{command} --export .{suffix}", " ".join(arguments), shown, wanted)


def _in_column(value: Any, is_fraction: bool) -> Any:  # whether the column has floats
    return float(value) if is_fraction and value is not None else value


def _number(cell: str, is_fraction: bool) -> Any:  # whether the column has floats
    return float(cell) if is_fraction and cell else cell


def _csv_rows(content: bytes) -> list[Row]:
    return [dict(row) for row in csv.DictReader(io.StringIO(content.decode("utf-8")))]


def _parquet_rows(content: bytes) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(pa.BufferReader(content)).to_pylist()
    return [{name: as_json(value) for name, value in row.items()} for row in rows]


def _json_rows(content: bytes) -> list[Row]:
    rows: list[Row] = parse_json_strictly(content.decode("utf-8"))
    return rows


def _as_csv(row: Row) -> Row:
    return {name: _csv_cell(as_json(value)) for name, value in row.items()}


def _csv_cell(value: Any) -> str | float:
    import json

    if value is None:
        return ""
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        return as_csv_text(value)
    return json.dumps(value)


def _as_plain(row: Row) -> Row:
    return {name: as_json(value) for name, value in row.items()}


_READERS: Final = {"json": _json_rows, "csv": _csv_rows, "parquet": _parquet_rows}
_FORMS: Final = {"json": _as_plain, "csv": _as_csv, "parquet": _as_plain}
