"""The common part of every job: arguments, logging, session, events, errors and the end of the JVM.

A job's module (``spark_jobs.cycle``, …) declares a :class:`Job` and calls :func:`run_job`. It runs as
``python -m spark_jobs.<job>``, or as the application of ``spark-submit``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from evenlag.errors import JobError
from evenlag.job_events import JobFailed, JobProgress, JobResult, JobStarted
from evenlag.lake.location import LakePaths
from evenlag.logging_setup import airflow_run_id, log_fields, named_logger, set_up_logging
from evenlag.policy.loader import LAKE_VARIABLE, find_policy_path
from evenlag.private_files import OWNER_ONLY
from evenlag.redaction import redact
from spark_jobs.runtime.event_channel import EventChannel
from spark_jobs.runtime.progress import ReportProgress
from spark_jobs.runtime.session import has_quiet_log, open_session, quiet_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG = named_logger(__name__)
_INTERRUPTED = 130
# A repeat of a task may have other values here.
_NOT_PART: Final = frozenset({"quiet", "events_fd", "run_id", "config"})


@dataclass(frozen=True, slots=True)
class JobWork:
    """The work of a job, after its arguments and its policy have been checked.

    is_large: Whether the job processes millions of rows; used on a local master only.
    lake: Root of the lake that it writes, whose folder decides who may read the files; None: none.
    """

    app_name: str
    run: Callable[[SparkSession, ReportProgress], Mapping[str, Any]]
    is_large: bool = False
    lake: str | None = None


@dataclass(frozen=True, slots=True)
class RepeatedWork:
    """The work of a job that opens sessions itself, by a function that `run` gets: whenever it needs one."""

    app_name: str
    run: Callable[[Callable[[], AbstractContextManager[SparkSession]], EventChannel], Mapping[str, Any]]
    lake: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job.

    prepare: Reads the policy and checks the arguments, before a JVM starts.
    """

    module: str
    description: str | None
    add_arguments: Callable[[argparse.ArgumentParser], None]
    prepare: Callable[[argparse.Namespace], JobWork | RepeatedWork]
    step: Callable[[argparse.Namespace], str]


class IncompleteJobError(JobError):
    """Raised when a job has a result, but part of its work failed."""

    def __init__(self, error: JobError, result: Mapping[str, Any]) -> None:
        super().__init__(str(error))
        self.retriable = error.retriable
        self.exit_code = error.exit_code
        self.result = result


def run_job(job: Job, argv: Sequence[str] | None = None) -> int:
    """Run a job; the exit code is that of its error, 1 for an unexpected one, 130 after an interrupt."""
    parser = argparse.ArgumentParser(prog=job.module, description=job.description)
    job.add_arguments(parser)
    parser.add_argument("--config", help="the policy file (default: EVENLAG_CONFIG, else evenlag.yaml)")
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="write Spark's own output to a file, which is removed unless the job fails",
    )
    parser.add_argument(
        "--events-fd",
        type=int,
        metavar="N",
        help="write progress, result and error as JSON lines to this file descriptor; the job ends when its "
        "reader does",
    )
    arguments = parser.parse_args(argv)
    cluster, slot = getattr(arguments, "cluster", None), getattr(arguments, "slot", None)
    fields = {
        "run_id": getattr(arguments, "run_id", None) or airflow_run_id(),
        "cluster": cluster if isinstance(cluster, str) else None,
        "step": job.step(arguments),
        "slot": None if slot is None else slot.isoformat(),
    }
    with log_fields(**fields), EventChannel(arguments.events_fd) as events:
        return _run(job, arguments, events)


def end_process(exit_code: int) -> NoReturn:
    """End the process of a job at once, without the interpreter's clean-up.

    Threads of gRPC and Arrow would still run in it, and may end the process by a signal instead.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(exit_code)


def _run(job: Job, arguments: argparse.Namespace, events: EventChannel) -> int:
    step = job.step(arguments)
    try:
        set_up_logging(is_command=events.is_open)
        work = job.prepare(arguments)
        spark_log = quiet_log(work.app_name) if arguments.quiet and has_quiet_log() else None
        events.send(JobStarted(job.module, None if spark_log is None else str(spark_log)))
        identity = identify_job(job.module, vars(arguments))
        umask = OWNER_ONLY if work.lake is None else LakePaths(work.lake).umask
        open_for_job = partial(open_session, job_identity=identity, umask=umask, is_quiet=arguments.quiet)
        _work(work, step, events, open_for_job)
    except JobError as error:
        message = redact(str(error))
        if isinstance(error, IncompleteJobError):
            _report_result(step, error.result, events)
        if not events.is_open:
            _LOG.error("%s failed: %s", step, message)
        events.send(JobFailed(message, error.exit_code))
        return error.exit_code
    except KeyboardInterrupt:
        events.send(JobFailed("interrupted", _INTERRUPTED))
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # every failure must reach the reader of the events
        _LOG.critical("%s ended by an unexpected error", step, exc_info=True)
        events.send(JobFailed(redact(f"{type(error).__name__}: {error}"), 1))
        return 1
    return 0


def _work(
    work: JobWork | RepeatedWork,
    step: str,
    events: EventChannel,
    open_for_job: Callable[..., AbstractContextManager[SparkSession]],
) -> None:
    if isinstance(work, RepeatedWork):
        # Not the repeat of a task: two of them must not end each other's sessions in turn.
        result = work.run(partial(open_for_job, work.app_name, job_identity=None), events)
        _report_result(step, result, events)
        return
    with open_for_job(work.app_name, is_large=work.is_large) as spark:
        result = work.run(spark, lambda *progress: events.send(JobProgress(*progress)))
        # Before the JVM ends, which takes a second: whoever waits for the result can go on.
        _report_result(step, result, events)


def _report_result(step: str, result: Mapping[str, Any], events: EventChannel) -> None:
    if events.is_open:
        events.send(JobResult(result))
    else:
        _LOG.info("%s: %s", step, json.dumps(result, default=str))


def moment_argument(text: str) -> datetime:
    """Parse an ISO 8601 time with a UTC offset, as ``type`` of an argument."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no offset: write e.g. {text}+00:00")
    return moment


def identify_job(module: str, arguments: Mapping[str, Any]) -> str:
    """Return the same text for a job and its repeat.

    Two projects on one server have other policy files or other environments, and so other texts.
    """
    policy = find_policy_path(arguments.get("config"))
    identifying = {name: str(value) for name, value in arguments.items() if name not in _NOT_PART}
    return json.dumps(
        [module, identifying, str(policy.absolute()), os.environ.get(LAKE_VARIABLE)], sort_keys=True
    )
