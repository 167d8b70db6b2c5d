"""How jobs, tasks, the publisher and the command log: text for people or a line of JSON, with run and plan.

Modules log as ever, by ``logging.getLogger(__name__)``. Whoever begins a piece of work says what it is about
with :func:`log_fields`, and every record within carries it, whichever module or library wrote it. Airflow
logs through structlog: there the same fields stand in its own records.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import PolicyError
from evenlag.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType
    from typing import Self

FORMAT_VARIABLE: Final = "EVENLAG_LOG_FORMAT"
TEXT: Final = "text"
JSON: Final = "json"

# What a record may be about, in the order in which it is told; docs/operations.md says what each is.
FIELDS: Final = ("run_id", "cluster", "step", "slot", "snapshot_id", "group_id", "plan_id")
# Airflow names the run in the environment of its tasks, and so of the drivers that they submit.
_AIRFLOW_RUN_VARIABLE: Final = "AIRFLOW_CTX_DAG_RUN_ID"
# Every connection it makes, and every retry, at INFO; py4j every call.
_TALKATIVE: Final = ("kafka", "py4j")

_fields: ContextVar[Mapping[str, str]] = ContextVar("evenlag_log_fields", default={})  # noqa: B039  # never mutated


@contextmanager
def log_fields(**fields: str | None) -> Iterator[None]:
    """Say what the records within are about; within another one the fields add up.

    Parameters
    ----------
    **fields
        Of :data:`FIELDS`; None is left out.

    Raises
    ------
    TypeError
        For a field that is not documented.
    """
    unknown = set(fields) - set(FIELDS)
    if unknown:
        raise TypeError(f"no such fields of a record: {sorted(unknown)}")
    given = {name: value for name, value in fields.items() if value is not None}
    token = _fields.set({**_fields.get(), **given})
    try:
        with _structlog_fields(given):
            yield
    finally:
        _fields.reset(token)


def present_fields() -> dict[str, str]:
    """What records are about here, to be handed to another process, in the order of :data:`FIELDS`."""
    fields = _fields.get()
    return {name: fields[name] for name in FIELDS if name in fields}


def airflow_run_id() -> str | None:
    """The run of Airflow's that this process belongs to; None outside of Airflow."""
    return os.environ.get(_AIRFLOW_RUN_VARIABLE) or None


def set_up_logging(*, is_command: bool = False) -> None:
    """Log to standard error as ``EVENLAG_LOG_FORMAT`` says; for a process of ours, at its start.

    An exception that nobody catches is a record too. Where somebody has set up logging, theirs holds.

    Parameters
    ----------
    is_command
        A person reads what the command prints: as text, only warnings are logged beside it.

    Raises
    ------
    PolicyError
        When the variable names no form.
    """
    form = _form()
    _log_to_stderr(form, logging.WARNING if is_command and form == TEXT else logging.INFO)


@dataclass(frozen=True, slots=True)
class WorkerLog:
    """What a Python worker of Spark's needs to log as the driver does; travels in a task's closure.

    Attributes
    ----------
    form
        ``text`` or ``json``.
    fields
        What the driver's records were about when the task was made.
    """

    form: str
    fields: Mapping[str, str]

    @classmethod
    def of_driver(cls) -> Self:
        """Take along how the driver logs, and about what."""
        return cls(_form(), present_fields())

    @contextmanager
    def about(self, **fields: str | None) -> Iterator[None]:
        """Log in the worker, about the driver's fields and these; goes to the executor's standard error."""
        # A worker serves many tasks: what one has set up stays.
        _log_to_stderr(self.form, logging.INFO)
        with log_fields(**{**self.fields, **fields}):
            yield


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``at, level, logger, message``, the fields, ``exception`` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        told: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        if text := self._exception(record):
            told["exception"] = text
        return json.dumps(told, default=str)

    def _exception(self, record: logging.LogRecord) -> str | None:
        if record.exc_text:
            return record.exc_text
        return self.formatException(record.exc_info) if record.exc_info else None


class TextFormatter(logging.Formatter):
    """For people: the moment in UTC, level, logger and message, then the fields in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.converter = time.gmtime
        self.default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is the base class's
        """Format a record without its exception."""
        line = super().formatMessage(record)
        fields = " ".join(f"{name}={value}" for name, value in _fields_of(record).items())
        return f"{line} [{fields}]" if fields else line


def _form() -> str:
    wanted = os.environ.get(FORMAT_VARIABLE, "").lower() or TEXT
    if wanted not in {TEXT, JSON}:
        raise PolicyError(f"{FORMAT_VARIABLE} is {wanted!r}: give {TEXT} or {JSON}")
    return wanted


def _log_to_stderr(form: str, level: int) -> None:
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == JSON else TextFormatter())
    handler.addFilter(_prepare)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger(__name__).critical("ended by an error", exc_info=(kind, error, trace))


def _prepare(record: logging.LogRecord) -> bool:
    """Blot out secrets, in the exception too: a filter of the handler sees what every library logs."""
    record.msg, record.args = redact(record.getMessage()), None
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    if record.exc_text:
        record.exc_text = redact(record.exc_text)
    if record.stack_info:
        record.stack_info = redact(record.stack_info)
    return True


def _fields_of(record: logging.LogRecord) -> dict[str, str]:
    """What a record is about: its own ``extra`` wins over what is said around it."""
    around = present_fields()
    told = {name: getattr(record, name, None) or around.get(name) for name in FIELDS}
    return {name: redact(str(value)) for name, value in told.items() if value is not None}


@contextmanager
def _structlog_fields(fields: Mapping[str, str]) -> Iterator[None]:
    """Say the same to structlog where it is at work, as in Airflow's tasks; it is not imported for it."""
    structlog = sys.modules.get("structlog")
    if structlog is None:
        yield
        return
    with structlog.contextvars.bound_contextvars(**fields):
        yield
