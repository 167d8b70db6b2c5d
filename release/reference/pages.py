"""The small pages: the table of assignors, the errors that are raised, and the index of decision records."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from assignor_core.assignors import COOPERATIVE, Assignor, assignor_classes
from evenlag import errors
from evenlag.errors import JobError
from release.project import ROOT
from release.reference.form import COMMAND, page, table

_BEGIN: Final = f"<!-- assignors: written by {COMMAND} -->"
_END: Final = "<!-- end of assignors -->"


def render_assignors() -> str:
    """Return the page of assignors with its table replaced."""
    return replace_table((ROOT / "docs" / "assignors.md").read_text(encoding="utf-8"))


def replace_table(text: str) -> str:
    """Return a page with the table between the two comments replaced; `ValueError` without the comments."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no table between {_BEGIN} and {_END}")
    rows = table(("name", "result", "parameters", "uses", "protocol"), map(_row, assignor_classes()))
    return f"{before}{_BEGIN}\n\n{rows}\n\n{_END}{after}"


def _row(assignor: type[Assignor]) -> tuple[str, ...]:
    summary = (assignor.__doc__ or "").strip().splitlines()[0].removesuffix(".")
    names = ", ".join(f"`{parameter.name}`" for parameter in assignor.parameters)
    uses = "load" if assignor.uses_load else "lag" if assignor.uses_lag else ""
    protocol = "cooperative" if COOPERATIVE in assignor.protocols else "eager"
    return f"`{assignor.name}`", summary, names, uses, protocol


_MEANINGS: Final = {
    1: "failure: read the message. `evenlag doctor`: a check failed; `evenlag plans approve`: approved, but "
    "no longer publishable",
    2: "usage or policy error, not retried: options, files, the policy, a missing secret; a plan that does "
    "not wait, or no [approver](approvals.md#approvers); a Spark Connect server with other code or without "
    "Delta. Correct it",
    3: "unavailable or refused: Kafka, Airflow, the lake or a Spark Connect server does not answer, or "
    "refuses credentials or an ACL. Retry, or check the system that the message names",
    4: "not found: no snapshot, or no such cluster, group, topic, partition, plan or hint. Run a cycle "
    "first, or correct the name or the period",
}
_INTRODUCTION: Final = """\
Look up an exit code or an error. An error is one line on standard error that begins with `error:` and says
what is wrong and what to do; for a policy, one line per error. The [runbook](../runbook.md) begins with
symptoms."""
_OTHERS: Final = """\
0 is success. 130: stopped by Ctrl-C, the normal end of `evenlag run --watch`; 143: by SIGTERM. 128 plus a
signal: the Spark job was killed, e.g. 137 when memory ran out; the message has the end of Spark's output.

Jobs (`python -m spark_jobs.cycle`, …) end with the same codes; Airflow does not retry a Spark task that ends
with 2 or 4. `evenlag assign` ends with 1 if a problem was malformed: its answer is `{"error": …}`. Times must
be in the years 1970 to 2999; a time without an offset is UTC.

Any other error is a fault of evenlag; its traceback is in the log."""


def render_errors() -> str:
    """Render the page."""
    classes = [
        one
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, JobError) and one is not JobError
    ]
    classes.sort(key=lambda one: (one.exit_code, one.__name__))
    codes = sorted({JobError.exit_code, *(one.exit_code for one in classes)})
    rows = (
        [
            f"`{one.__name__}`",
            str(one.exit_code),
            "yes" if one.retriable else "no",
            _when(one),
        ]
        for one in classes
    )
    return page(
        "Errors and exit codes",
        "`evenlag/errors.py`",
        [
            _INTRODUCTION,
            "## Exit codes",
            table(("code", "meaning"), ([str(code), _MEANINGS[code]] for code in codes)),
            _OTHERS,
            "## Errors",
            "*Retriable*: the same call may succeed later without any change.",
            table(("error", "exit code", "retriable", "when"), rows),
        ],
    )


def _when(error: type[JobError]) -> str:
    first = " ".join(inspect.cleandoc(error.__doc__ or "").split("\n\n")[0].split())
    return first.removeprefix("Raised ").removesuffix(".")


_RECORDS: Final = """\
Each record is one decision that a newcomer would question: its context, what was decided, and what follows.
Records of decisions that no longer hold are deleted; git keeps them
([ADR 1](0001-record-architecture-decisions.md))."""


def render_records(folder: Path = ROOT / "docs" / "adr") -> str:
    """Return the index in Markdown: number and title of each record, the newest first."""
    return page(
        "Decision records", "the records", [_RECORDS, table(("number", "decision"), _record_rows(folder))]
    )


def _record_rows(folder: Path) -> Iterator[list[str]]:
    for path in sorted(folder.glob("[0-9]*.md"), reverse=True):
        title = re.match(r"# (\d+)\. (.+)", path.read_text(encoding="utf-8"))
        if title is None:
            raise ValueError(f"{path.name}: a record begins with its number and title")
        yield [title[1], f"[{title[2]}]({path.name})"]
