"""The demo's terminal output: steps with a spinner and their time, tables, a verdict."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from evenlag.cli.layout import Column, Table, key, numbers
from evenlag.formatting import number
from sandbox.airflow.rest import DagRun
from sandbox.demo.result import DemoResult, MemberLag, Promise, listed

_CYCLE = ("observe", "decide", "publish")
_MARK_BY_STATE = {
    "success": ("✓", "green"),
    "failed": ("✗", "red"),
    "upstream_failed": ("✗", "red"),
    "up_for_retry": ("↻", "yellow"),
    "running": ("▶", "cyan"),
}


class Story:
    """Reports a demo on the terminal; without a terminal it prints plain lines."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(
            file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 110
        )
        self._started = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start of the demo."""
        return time.monotonic() - self._started

    def say(self, text: str, *, style: str = "") -> None:
        """Print a line."""
        self.console.print(Text(text, style=style), soft_wrap=True)

    def chapter(self, text: str) -> None:
        """Print the heading of a new part."""
        self.console.print()
        self.console.rule(Text(text, style="bold"), align="left", style="dim")

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner during a step, then its duration; yields a function that adds details."""
        started = time.monotonic()
        details = [""]

        def tell(detail: str) -> None:
            details[0] = detail
            status.update(f"{text}: {detail}")

        with self.console.status(text) as status:
            yield tell
        line = Text.assemble(("✓ ", "green"), text)
        if details[0]:
            line.append(f": {details[0]}")
        line.append(f"  {time.monotonic() - started:.1f} s", style="dim")
        self.console.print(line, soft_wrap=True)

    @contextmanager
    def dag_run(self, text: str) -> Iterator[Callable[[DagRun], None]]:
        """Show the tasks of a run and their current states; yields a function that updates them."""
        spinner = Spinner("dots", text=text)
        latest: list[DagRun] = []
        with Live(spinner, console=self.console, transient=True) as live:

            def show(run: DagRun) -> None:
                latest[:] = [run]
                live.update(Group(spinner, _task_line(run)))

            yield show
        for run in latest:
            self.console.print(
                Text.assemble(("✓ ", "green"), text, (f"  {run.duration_s:.1f} s", "dim")), soft_wrap=True
            )
            self.console.print(_task_line(run))

    def lag_table(self, result: DemoResult) -> None:
        """Show each member's lag before, predicted, and after."""

        def marked(member: MemberLag, value: int, color: str) -> Text:
            return Text(number(value), style=f"bold {color}" if member.before == result.max_before else "")

        columns = (
            key("consumer", lambda member: member.name),
            Column("before", lambda member: marked(member, member.before, "red"), is_number=True),
            numbers("predicted", lambda member: number(member.predicted)),
            Column("after", lambda member: marked(member, member.after, "green"), is_number=True),
            Column("partitions before", lambda member: listed(member.partitions_before)),
            Column("partitions after", lambda member: listed(member.partitions_after)),
        )
        table = Table("Lag of each consumer, in records", columns, result.members)
        most = map(number, (result.max_before, result.max_predicted, result.max_after))
        table.add_row("most loaded", *most, "", "", style="bold")
        self.console.print()
        self.console.print(table)

    def promises(self, promises: Sequence[Promise]) -> None:
        """Show each promise, and whether it was kept."""
        kept, broken = Text("✓", style="green"), Text("✗", style="bold red")
        columns = (
            Column("", lambda promise: kept if promise.kept else broken),
            key("promise", lambda promise: promise.text),
            Column("seen", lambda promise: promise.seen),
        )
        self.console.print()
        self.console.print(Table("What was promised", columns, promises))


def _task_line(run: DagRun) -> Text:
    line = Text("  ")
    # In the order of the cycle, other tasks last; Airflow's response has another order.
    known = [task for task in _CYCLE if task in run.task_states]
    for task in [*known, *sorted(set(run.task_states) - set(known))]:
        state = run.task_states[task]
        mark, style = _MARK_BY_STATE.get(state or "", ("·", "dim"))
        line.append(f"{mark} {task} ", style=style)
        line.append(f"{state or 'waiting'}   ", style="dim")
    return line
