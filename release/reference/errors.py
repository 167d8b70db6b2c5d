"""The page of errors, from the classes that jobs and commands raise."""

from __future__ import annotations

import inspect
from typing import Final

from evenlag import errors
from evenlag.errors import JobError
from release.reference.form import page, table

_MEANINGS: Final = {
    1: "failure: read the message. If a package or Java is missing, it names what to install. For "
    "`evenlag doctor`: a check failed; for `evenlag plans approve`: approved, but no longer publishable",
    2: "usage or configuration, not retried: a missing file or folder, contradicting options, a value out of "
    "range; an error of the policy; a missing secret; another cluster under a known name; a plan that waits "
    "for no decision, a decision of somebody who is not an [approver](approvals.md#approvers) or over a "
    "channel that the policy does not allow; a Spark Connect server that runs other code or has no Delta. "
    "Correct it; restart that server after an update",
    3: "no answer: Kafka, Airflow or a Spark Connect server does not answer, refuses the credentials, or has "
    "no ACL for evenlag, or the lake cannot be read or written: try again, or check the system that the "
    "message names",
    4: "not found: no snapshot yet or none in the period, no such cluster, group, topic, partition, plan or "
    "hint: run a cycle first, or correct the name or the period",
}
_INTRODUCTION: Final = """\
An error is one line on standard error that begins with `error:` and says what is wrong and what to do; for a
policy, one line per mistake. [Troubleshooting](../runbook.md) begins with symptoms."""
_OTHERS: Final = """\
0 is success. 130: stopped by Ctrl-C, which is also the normal end of `evenlag run --watch`; the job that the
command started has ended, and its JVM. 128 plus a signal: the Spark job that the command started was killed,
e.g. 137 by the kernel when memory ran out: read the end of Spark's output that the message shows. 143:
`evenlag run --watch` was stopped by SIGTERM.

The jobs (`python -m spark_jobs.cycle`, …) end with the same codes. Airflow does not retry a Spark task that
ends with 2 or 4. `evenlag assign` ends with 1 if a problem was malformed: its answer is then `{"error": …}`,
and the other problems are solved. Times and days must be in the years 1970 to 2999; a time without an offset
is UTC.

An error of no class below is a fault of evenlag; its traceback is in the log."""


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
