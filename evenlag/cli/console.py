"""Output of commands: tables, JSON for scripts, and one line for an error."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import IO, Any, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from evenlag.enums import LagStatus, PlanEvent
from evenlag.errors import JobError
from evenlag.formatting import NOTHING
from evenlag.safe_text import printable, printable_lines

ReportProgress = Callable[[str, int, int], None]

# Width of output that does not go to a terminal.
_PIPE_WIDTH: ContextVar[int] = ContextVar("_PIPE_WIDTH", default=200)

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
    LagStatus.OUT_OF_RANGE: "red",
}


class _PlainConsole(Console):
    """Prints text literally: without markup, emoji codes and control characters."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(printable(text), **(settings | {"markup": False, "emoji": False}))

    def print(self, *objects: Any, **settings: Any) -> None:
        # A table may be wider than the terminal, if that is asked for.
        super().print(*objects, **({"crop": False} | settings))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        # Also what is no plain string: texts with a style, and the progress bars.
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_lines(segment.text))


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text literally; without a terminal, of the width of `wide_output`."""
    stream = sys.stderr if stderr else sys.stdout
    return _PlainConsole(file=stream, width=None if stream.isatty() else _PIPE_WIDTH.get(), highlight=False)


@contextmanager
def wide_output(width: int) -> Iterator[None]:
    """Set the width of output that does not go to a terminal, so that no text is wrapped."""
    token = _PIPE_WIDTH.set(width)
    try:
        yield
    finally:
        _PIPE_WIDTH.reset(token)


def print_error(message: str, *more: str) -> None:
    """Print an error on standard error, without markup."""
    lines = "\n".join(printable(line) for line in (message, *more))
    sys.stderr.write(f"error: {lines}\n")


def print_line(stream: IO[str], line: str) -> None:
    """Print a line at once; on a terminal above a progress bar, which another console would overwrite."""
    stream.write(f"{printable(line)}\n")
    stream.flush()


def confirm(question: str) -> None:
    """Ask on stderr and read a line of stdin: only ``y`` and ``yes`` confirm, all else is an error."""
    print_line(sys.stderr, f"{question} [y/N]")
    answer = ""
    with suppress(UnicodeDecodeError):
        answer = sys.stdin.readline()
    if answer.strip().lower() not in {"y", "yes"}:
        raise JobError("not confirmed, so nothing was changed: answer y, or give --yes")


def print_json(value: Any, *, is_line: bool = False) -> None:
    """Print JSON on standard output; an iterator as a list, while it makes its values.

    Times are in ISO 8601 and UTC, numbers that are not finite null.
    """
    indent = None if is_line else 2
    encoder = json.JSONEncoder(indent=indent, allow_nan=False)
    plain = json_value(value)
    sys.stdout.writelines([encoder.encode(plain)] if is_line else encoder.iterencode(plain))
    sys.stdout.write("\n")
    if is_line:
        sys.stdout.flush()


def status_text(status: str | None) -> Text:
    """Return a lag status or a plan event in its color."""
    return Text(status or NOTHING, style=_STYLE_BY_STATUS.get(status or "", ""))


@contextmanager
def shown_progress(*, is_repeated: bool = False) -> Iterator[ReportProgress]:
    """Show each step as a progress bar on a terminal (of repeated steps the current one), else as a line."""
    from rich import progress

    out = console(stderr=True)
    if not out.is_terminal:
        seen: set[str] = set()

        def print_step(step: str, _done: int, _total: int) -> None:
            if step not in seen:
                seen.add(step)
                out.print(step)

        yield print_step
        return
    columns: list[progress.ProgressColumn] = [
        progress.SpinnerColumn(finished_text="+"),
        progress.TextColumn("{task.description}", markup=False),
    ]
    if not is_repeated:
        columns += [progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn()]
    # Lines on a terminal go above the bars; a pipe gets its lines itself.
    redirected = sys.stdout.isatty()
    with progress.Progress(*columns, console=out, transient=is_repeated, redirect_stdout=redirected) as bars:
        tasks: dict[str, Any] = {}

        def report(step: str, done: int, total: int) -> None:
            bar, shown = ("", 0) if is_repeated else (step, done)
            if bar not in tasks:
                tasks[bar] = bars.add_task(step, total=total)
            bars.update(tasks[bar], description=step, completed=shown, total=total)

        yield report


def json_value(value: Any) -> Any:
    """Convert a value to what JSON has: a moment to ISO 8601 in UTC, a float that is not finite to None."""
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(each) for each in (value if isinstance(value, list | tuple) else sorted(value))]
    if isinstance(value, Iterator):
        return _Stream(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    plain = float(value) if isinstance(value, Decimal) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


class _Stream(list[Any]):
    """A list for the JSON encoder, which only iterates over it when it indents."""

    def __init__(self, values: Iterator[Any]) -> None:
        first = list(islice(values, 1))
        super().__init__(first)  # an empty list is empty for the encoder, too
        self._values = chain(first, values)

    def __iter__(self) -> Iterator[Any]:
        return map(json_value, self._values)
