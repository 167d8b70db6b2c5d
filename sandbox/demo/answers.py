"""The last step of the demo: compares the output of commands and report with the content of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sandbox.demo.result import Promise
from sandbox.truth.check_lake import check_lake, summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox.truth.checks import Runner

_MAX_DIFFERENCES: Final = 20


def compare_answers(lake: Path, run: Runner, folder: Path, tell: Callable[[str], None]) -> Promise:
    """Run every command on the lake, and compare each value with the rows of the tables.

    folder: For exported files, the report's page, and ``differences.txt`` if there are any; created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checks = check_lake(lake, run, folder)
    told = summary(checks)
    tell(told)
    seen = told
    if checks.differences:
        path = folder / "differences.txt"
        path.write_text("".join(f"{each}\n" for each in checks.differences), encoding="utf-8")
        shown = "; ".join(str(each) for each in checks.differences[:_MAX_DIFFERENCES])
        seen = f"{len(checks.differences):,} differ, all of them in {path}: {shown}"
    return Promise("the commands and the report show what the lake holds", not checks.differences, seen)
