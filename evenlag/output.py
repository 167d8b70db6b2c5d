"""How the command speaks: tables for people, JSON for scripts, one plain line for an error."""

from __future__ import annotations

import json
import sys
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Into a file or a pipe there is no width to fit: nothing is cut.
_PIPE_WIDTH = 200
NOTHING = "-"

_STYLE_BY_STATUS = {
    "APPLIED": "green",
    "APPROVED": "green",
    "PUBLISHED": "cyan",
    "PROPOSED": "dim",
    "REJECTED": "yellow",
    "IGNORED": "yellow",
    "EXPIRED": "yellow",
    "WITHDRAWN": "yellow",
    "OK": "green",
    "UNKNOWN": "red",
    "DATA_LOSS": "red",
}


def console(*, stderr: bool = False) -> Console:
    """Make a console for standard output or standard error as it is now (tests replace both)."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False)


def print_error(message: str) -> None:
    """Say on standard error what went wrong, without markup."""
    sys.stderr.write(f"error: {message}\n")


def print_json(value: Any) -> None:
    """Write JSON to standard output; moments as ISO 8601 in UTC."""
    sys.stdout.write(json.dumps(value, default=_plain, indent=2) + "\n")


def table(title: str, columns: Sequence[str], *, right: Iterable[str] = (), caption: str = "") -> RichTable:
    """Make an empty table; the columns in `right` hold numbers."""
    made = RichTable(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    numbers = set(right)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=column in numbers)
    return made


def status_text(status: str | None) -> Text:
    """Colour a status; it stays readable without colours."""
    return Text(status or NOTHING, style=_STYLE_BY_STATUS.get(status or "", ""))


def number(value: float | None, *, digits: int = 0) -> str:
    """Write a number with separators; a dash for what is not known."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Write a share as per cent."""
    return NOTHING if value is None else f"{100 * value:.1f} %"


def duration(milliseconds: float | None) -> str:
    """Write a duration in the two largest units that matter."""
    if milliseconds is None:
        return NOTHING
    seconds = int(milliseconds // 1000)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for index, (name, size) in enumerate(units):
        if seconds >= size or name == "s":
            rest = seconds % size
            smaller = units[index + 1] if index + 1 < len(units) else None
            tail = f" {rest // smaller[1]} {smaller[0]}" if smaller and rest >= smaller[1] else ""
            return f"{seconds // size} {name}{tail}"
    raise AssertionError("the last unit takes everything")


def moment(value: datetime | None) -> str:
    """Write a moment in UTC, to the second."""
    return NOTHING if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
