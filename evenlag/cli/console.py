"""Output of the command: tables, JSON for scripts, and one line for an error."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from evenlag.enums import LagStatus, PlanEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Width of output that does not go to a terminal.
_PIPE_WIDTH: ContextVar[int] = ContextVar("_PIPE_WIDTH", default=200)
NOTHING = "-"

_STYLE_BY_STATUS: Final[dict[str, str]] = {
    PlanEvent.APPLIED: "green",
    PlanEvent.APPROVED: "green",
    PlanEvent.PUBLISHED: "cyan",
    PlanEvent.PROPOSED: "dim",
    PlanEvent.REJECTED: "yellow",
    PlanEvent.IGNORED: "yellow",
    PlanEvent.EXPIRED: "yellow",
    PlanEvent.WITHDRAWN: "yellow",
    LagStatus.OK: "green",
    LagStatus.UNKNOWN: "red",
    LagStatus.DATA_LOSS: "red",
}


# Control characters and text direction marks: names come from any client that may join a group.
_UNPRINTABLE: Final = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def printable(text: str) -> str:
    """Replace control characters by their Python escapes, so that a terminal shows them as text."""
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


class _PlainConsole(Console):
    """Prints text literally: without markup, emoji codes and control characters."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **(settings | {"markup": False, "emoji": False}))


def console(*, stderr: bool = False) -> Console:
    """Create a console for the current standard output or standard error."""
    stream = sys.stderr if stderr else sys.stdout
    return _PlainConsole(file=stream, width=None if stream.isatty() else _PIPE_WIDTH.get(), highlight=False)


@contextmanager
def wide_output(width: int) -> Iterator[None]:
    """Set the width of output that does not go to a terminal, so that no cell is wrapped."""
    token = _PIPE_WIDTH.set(width)
    try:
        yield
    finally:
        _PIPE_WIDTH.reset(token)


def print_error(message: str, *more: str) -> None:
    """Print an error on standard error, without markup; line breaks within a line are escaped."""
    lines = "\n".join(printable(line) for line in (message, *more))
    sys.stderr.write(f"error: {lines}\n")


def print_json(value: Any) -> None:
    """Print JSON on standard output: times as ISO 8601 in UTC, null for numbers that are not finite."""
    sys.stdout.write(json.dumps(_finite(value), default=_plain, indent=2, allow_nan=False) + "\n")


def table(title: str, columns: Sequence[str], *, right: Iterable[str] = (), caption: str = "") -> RichTable:
    """Create an empty table; the columns in `right` contain numbers."""
    made = RichTable(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    numbers = set(right)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=column in numbers)
    return made


def status_text(status: str | None) -> Text:
    """Color a status; the text itself is unchanged."""
    return Text(status or NOTHING, style=_STYLE_BY_STATUS.get(status or "", ""))


def number(value: float | None, *, digits: int = 0) -> str:
    """Format a number with separators; a dash if it is unknown or not finite."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Format a share as a percentage; a dash if it is unknown or not finite."""
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def duration(milliseconds: float | None) -> str:
    """Format a duration in its two largest units; a dash if it is unknown or not finite."""
    if milliseconds is None or not math.isfinite(milliseconds):
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
    """Format a time in UTC, to the second; a dash for None."""
    return NOTHING if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def _finite(value: Any) -> Any:
    """Replace floats that JSON cannot represent (infinity, NaN) by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")
