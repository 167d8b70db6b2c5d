"""Output of commands: tables, JSON for scripts, and one line for an error."""

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

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from evenlag.enums import LagStatus, PlanEvent
from evenlag.formatting import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.table import Column

    ReportProgress = Callable[[str, int, int], None]

# Width of output that does not go to a terminal.
_PIPE_WIDTH: ContextVar[int] = ContextVar("_PIPE_WIDTH", default=200)

# Text in a narrower column would be hard to read.
_LEAST_TEXT: Final = 9
# Cells of a column in addition to its text: padding on both sides, and a line.
_AROUND: Final = 3

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
    """Replace control characters and marks of text direction by their Python escapes.

    A terminal then shows them as text. Names come from any client that may join a group.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    str
        The text without characters that a terminal interprets.
    """
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


class _PlainConsole(Console):
    """Prints text literally: without markup, emoji codes and control characters."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **(settings | {"markup": False, "emoji": False}))


def console(*, stderr: bool = False) -> Console:
    """Create a console that prints text literally.

    Parameters
    ----------
    stderr
        Print on standard error, not on standard output.

    Returns
    -------
    rich.console.Console
        A console for the current stream. Its width is the terminal's; 200 cells without a terminal, unless
        :func:`wide_output` sets another width.
    """
    stream = sys.stderr if stderr else sys.stdout
    return _PlainConsole(file=stream, width=None if stream.isatty() else _PIPE_WIDTH.get(), highlight=False)


@contextmanager
def wide_output(width: int) -> Iterator[None]:
    """Set the width of output that does not go to a terminal, so that no cell is wrapped.

    Parameters
    ----------
    width
        Width in cells.

    Yields
    ------
    None
        The width applies within the context.
    """
    token = _PIPE_WIDTH.set(width)
    try:
        yield
    finally:
        _PIPE_WIDTH.reset(token)


def print_error(message: str, *more: str) -> None:
    """Print an error on standard error, without markup.

    Parameters
    ----------
    message
        The first line, printed after ``error: ``.
    more
        Further lines. Line breaks within a line are escaped.
    """
    lines = "\n".join(printable(line) for line in (message, *more))
    sys.stderr.write(f"error: {lines}\n")


def print_json(value: Any, *, is_line: bool = False) -> None:
    """Print JSON on standard output.

    Parameters
    ----------
    value
        JSON types, and times: they are printed as ISO 8601 in UTC. Numbers that are not finite are null.
    is_line
        Print it on one line, at once: one of several values.

    Raises
    ------
    TypeError
        When a value has no JSON form.
    """
    indent = None if is_line else 2
    sys.stdout.write(json.dumps(_finite(value), default=_plain, indent=indent, allow_nan=False) + "\n")
    if is_line:
        sys.stdout.flush()


def table(title: str, columns: Sequence[str], *, right: Iterable[str] = (), caption: str = "") -> RichTable:
    """Create an empty table.

    Parameters
    ----------
    title
        Title above the table.
    columns
        Headings of the columns, in order.
    right
        Headings of columns that contain numbers: they are aligned right and do not wrap.
    caption
        Text below the table; none if empty.

    Returns
    -------
    rich.table.Table
        The table, without rows.
    """
    made = RichTable(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    numbers = set(right)
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", no_wrap=column in numbers)
    return made


def fit(console: Console, shown: RichTable, optional: Sequence[str]) -> RichTable:
    """Make a filled table fit a console's width.

    Numbers (columns that do not wrap) keep their width, texts are folded, and headings wrap between words.

    Parameters
    ----------
    console
        The console that prints the table.
    shown
        A table of :func:`table`; it is changed in place.
    optional
        Headings of columns that may be left out, in the order in which they are left out.

    Returns
    -------
    rich.table.Table
        The same table; its caption names the columns that are left out.
    """
    if _total(_full_width(column) for column in shown.columns) <= console.width:
        return shown
    widths = [_least_width(column) for column in shown.columns]
    left_out = []
    for name in optional:
        if _total(widths) <= console.width:
            break
        place = next((i for i, each in enumerate(shown.columns) if str(each.header) == name), None)
        if place is not None:
            del shown.columns[place], widths[place]
            left_out.append(name)
    for column, width in zip(shown.columns, widths, strict=True):
        column.min_width = width
        if column.no_wrap:
            column.header = Text("\n".join(str(column.header).split()), justify="right")
        else:
            column.overflow = "fold"
    if left_out:
        told = f"A wider terminal or --json shows more: {', '.join(left_out)}"
        shown.caption = f"{shown.caption}. {told}" if shown.caption else told
    return shown


def status_text(status: str | None) -> Text:
    """Color a status.

    Parameters
    ----------
    status
        A lag status or a plan event; None when there is none.

    Returns
    -------
    rich.text.Text
        The status, unchanged, with its color; a dash for None.
    """
    return Text(status or NOTHING, style=_STYLE_BY_STATUS.get(status or "", ""))


@contextmanager
def shown_progress(*, is_repeated: bool = False) -> Iterator[ReportProgress]:
    """Show each step as a progress bar on a terminal, or as a line on standard error without one.

    Parameters
    ----------
    is_repeated
        Whether the steps are repeated: a terminal then shows the current step only.

    Yields
    ------
    callable
        Takes (step, done, total).
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    out = console(stderr=True)
    if not out.is_terminal:
        seen: set[str] = set()

        def print_step(step: str, _done: int, _total: int) -> None:
            if step not in seen:
                seen.add(step)
                out.print(step)

        yield print_step
        return
    columns: list[ProgressColumn] = [SpinnerColumn(finished_text="+"), TextColumn("{task.description}")]
    columns += [] if is_repeated else [BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    # Lines on a terminal go above the bars; a pipe gets its lines itself.
    redirected = sys.stdout.isatty()
    with Progress(*columns, console=out, transient=is_repeated, redirect_stdout=redirected) as progress:
        tasks: dict[str, Any] = {}

        def report(step: str, done: int, total: int) -> None:
            bar, shown = ("", 0) if is_repeated else (step, done)
            if bar not in tasks:
                tasks[bar] = progress.add_task(step, total=total)
            progress.update(tasks[bar], description=step, completed=shown, total=total)

        yield report


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


def _total(widths: Iterable[int]) -> int:
    return sum(width + _AROUND for width in widths) + 1


def _full_width(column: Column) -> int:
    return max(cell_len(str(text)) for text in (column.header, *column.cells))


def _least_width(column: Column) -> int:
    texts = [str(cell) for cell in column.cells]
    words = [word for text in texts for word in text.split()]
    heading = max((cell_len(word) for word in str(column.header).split()), default=0)
    if column.no_wrap:
        return max([heading, *map(cell_len, texts)])
    return max(heading, min(_LEAST_TEXT, max(map(cell_len, words), default=0)))
