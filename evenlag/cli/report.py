"""`evenlag report`: a group and period on one self-contained HTML page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from evenlag.cli.audit import UntilOption
from evenlag.cli.console import console, print_json
from evenlag.cli.export import write_atomically
from evenlag.cli.option_types import MAX_HOURS, argument, check_folder_of, option, path, real
from evenlag.cli.options import JsonOption, LakeScope
from evenlag.errors import NotFoundError
from evenlag.formatting import moment

if TYPE_CHECKING:
    from evenlag.report.model import Report

_DEFAULT_FILE: Final = Path("evenlag-report.html")


def _file_path(text: str) -> Path:
    return check_folder_of(path(text))


def report(
    group: Annotated[
        str | None, argument("GROUP", "The group; default: the one with the largest lag.")
    ] = None,
    *,
    file: Annotated[Path, option("--file -f", "PATH", "The file to write.", _file_path)] = _DEFAULT_FILE,
    hours: Annotated[
        float, option("--hours", "HOURS", "Number of hours to look back.", real(0.01, MAX_HOURS))
    ] = 24.0,
    until: UntilOption = None,
    scope: LakeScope,
    as_json: JsonOption = False,
) -> None:
    """Write a report on a group as one HTML page: lag, owners, policies and plans; needs no network."""
    from evenlag.report.page import report_page
    from evenlag.report.read_report import read_report

    reader, name = scope.open()
    content = read_report(reader, name, group, hours=hours, until=until)
    if until is not None and content.until < until - timedelta(hours=hours):
        raise NotFoundError(
            f"there is no snapshot of {name} in the {hours:g} hours before {moment(until)}; the newest is of "
            f"{moment(content.until)}"
        )
    page = report_page(content)
    write_atomically(file, lambda fresh: fresh.write_text(page, encoding="utf-8"))
    if as_json:
        print_json(_summary(file, content))
        return
    out = console()
    period = f"{moment(content.since)} to {moment(content.until)}, {content.num_snapshots} snapshots"
    out.print(f"{content.group_id} on {name}, {period}")
    out.print(content.verdict.text, soft_wrap=True)
    for missing in _missing(content):
        out.print(f"  {missing}")
    out.print(file.resolve().as_uri(), soft_wrap=True)


def _missing(report: Report) -> list[str]:
    """Return the missing sections of the page, each with the command that creates its data."""
    from evenlag.report.page import AUDIT, COMPARE

    parts = []
    if report.timeline is None:
        parts.append(f"the owners over time are missing: {AUDIT}")
    if not report.policies:
        parts.append(f"candidates are missing: {COMPARE}")
    return parts


def _summary(file: Path, report: Report) -> dict[str, object]:
    return {
        "file": str(file.resolve()),
        "cluster": report.cluster,
        "group_id": report.group_id,
        "since": report.since,
        "until": report.until,
        "num_snapshots": report.num_snapshots,
        "verdict": report.verdict.text,
        "best_policy": next((row["policy"] for row in report.policies if row["is_best"]), None),
        "missing": _missing(report),
    }
