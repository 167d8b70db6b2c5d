"""The page of errors, from the classes that jobs and commands raise."""

from __future__ import annotations

import inspect
from typing import Final

from evenlag import errors
from evenlag.errors import JobError
from release.reference.form import page, table

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
