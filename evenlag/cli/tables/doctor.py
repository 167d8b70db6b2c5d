"""Results of the checks, as tables for a terminal and as JSON values for scripts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from evenlag.cli.console import table
from evenlag.doctor.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from evenlag.doctor.model import Result

_STYLES: Final = {
    Verdict.OK: "green",
    Verdict.SKIPPED: "dim",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
}


def as_plain(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Convert results to JSON types.

    Returns for each result: ``check``, ``cluster``, ``result`` (the verdict) and ``findings``, each with
    its own ``result``, ``finding`` and ``todo`` (None when there is nothing to do).
    """
    return [
        {
            "check": result.check,
            "cluster": result.cluster,
            "result": result.verdict.value,
            "findings": [
                {"result": one.verdict.value, "finding": one.message, "todo": one.remedy or None}
                for one in result.findings
            ],
        }
        for result in results
    ]


def show(results: Sequence[Result], console: Console) -> None:
    """Print one table per area and cluster, then what to do, then the number of checks by verdict.

    Each action is on one line, so that a command in it can be copied.
    """
    for cluster, area in dict.fromkeys((result.cluster, _area(result)) for result in results):
        title = f"{area} of {cluster}" if cluster else area
        shown = table(title, ("check", "result", "finding"), keys=("check", "result"))
        for result in results:
            if (result.cluster, _area(result)) != (cluster, area):
                continue
            for number, one in enumerate(result.findings):
                name = "" if number else result.check.partition(".")[2]
                shown.add_row(name, Text(one.verdict.value, style=_STYLES[one.verdict]), Text(one.message))
        console.print(shown)
    _show_todos(results, console)
    counts = Counter(result.verdict for result in results)
    console.print(", ".join(f"{counts[verdict]} {verdict.value}" for verdict in reversed(Verdict)))


def _show_todos(results: Sequence[Result], console: Console) -> None:
    todos = [
        (one.verdict, result, one)
        for result in results
        for one in result.findings
        if one.remedy and one.verdict.rank >= Verdict.WARNING.rank
    ]
    if not todos:
        return
    console.print(Text("What to do", style="bold"))
    for verdict, result, one in sorted(todos, key=lambda todo: -todo[0].rank):
        about = f"{result.check} ({result.cluster})" if result.cluster else result.check
        # Not in a table: a command that is wrapped cannot be copied.
        line = Text.assemble((verdict.value, _STYLES[verdict]), f" {about}: {one.message}")
        console.print(line, soft_wrap=True)
        console.print(Text(f"    {one.remedy}"), soft_wrap=True)


def _area(result: Result) -> str:
    return result.check.partition(".")[0]
