"""Events of a job as JSON lines: the protocol between a job's process and the process that started it.

A job writes its events to a file descriptor of its own (``--events-fd``). Spark and the libraries write to
standard output and standard error, so their output cannot corrupt an event. Each event is one JSON object on
one line; ``event`` names its kind. A reader ignores lines that it does not know, so that either side may be
newer.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias, get_args


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The job's process runs and has read its arguments.

    spark_log: File that receives the JVM's output; None when the JVM writes to the job's own output.
    """

    event: ClassVar[str] = "started"
    job: str
    spark_log: str | None = None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A step started (``done`` is 0), continued, or finished (``done`` equals ``total``)."""

    event: ClassVar[str] = "progress"
    step: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class JobResult:
    """The job's summary; its keys depend on the job."""

    event: ClassVar[str] = "result"
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job failed. After a result, it means that part of the work was done.

    message: One line, or one line per mistake in the policy.
    """

    event: ClassVar[str] = "error"
    message: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class CycleEnded:
    """One cycle of a job that runs cycles until it is stopped has ended, well or not.

    cycle: ``cluster, lake, slot, run_id, started_at, duration_s, next_slot``, the summary of each step that
        has ended, and after a failure ``error`` and ``exit_code``.
    """

    event: ClassVar[str] = "cycle"
    cycle: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobNotice:
    """Something that the user should know, although the job continues."""

    event: ClassVar[str] = "notice"
    message: str


JobEvent: TypeAlias = JobStarted | JobProgress | JobResult | JobFailed | CycleEnded | JobNotice
_KINDS: dict[str, type[JobEvent]] = {kind.event: kind for kind in get_args(JobEvent)}


def encode_event(event: JobEvent) -> str:
    r"""Encode an event as one line of JSON; values without a JSON type (moments, days) become text.

    Examples
    --------
    >>> encode_event(JobProgress("observe", 1, 2))
    '{"event": "progress", "step": "observe", "done": 1, "total": 2}\n'
    """
    return json.dumps({"event": event.event, **asdict(event)}, default=str) + "\n"


def decode_event(line: str) -> JobEvent | None:
    """Decode one line; None if it is not an event of a known kind.

    Examples
    --------
    >>> decode_event('{"event": "error", "message": "no such cluster", "exit_code": 2}')
    JobFailed(message='no such cluster', exit_code=2)
    >>> decode_event("log4j: something else") is None
    True
    """
    try:
        values = json.loads(line)
        return _KINDS[values.pop("event")](**values)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
