"""Logging of jobs, tasks, the publisher and the command: text or one line of JSON, with run and plan.

Modules use :func:`named_logger`. The code that starts an operation sets its context with :func:`log_fields`;
every record in this scope contains these fields, whichever module or library logs it. Airflow logs through
structlog: its records get the same fields.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from evenlag.errors import PolicyError
from evenlag.redaction import redact
from evenlag.safe_text import log_text, printable

FORMAT_VARIABLE: Final = "EVENLAG_LOG_FORMAT"
TEXT: Final = "text"
JSON: Final = "json"

# Context fields of a record, in output order; documented in docs/reference/logs.md.
FIELDS: Final = ("run_id", "cluster", "step", "slot", "snapshot_id", "group_id", "plan_id")
# Airflow sets it for its tasks; Spark drivers that a task submits inherit it.
_AIRFLOW_RUN_VARIABLE: Final = "AIRFLOW_CTX_DAG_RUN_ID"
# kafka logs every connection and retry at INFO, py4j every call.
_VERBOSE_LOGGERS: Final = ("kafka", "py4j")

_fields: ContextVar[Mapping[str, str]] = ContextVar("evenlag_log_fields", default={})  # noqa: B039  # never mutated


def named_logger(name: str) -> logging.Logger:
    """Return a logger whose records are safe for any handler, also for Airflow's and an application's own.

    Names from Kafka in a message or an exception cannot begin a line of their own, and contain no characters
    that a terminal interprets. Its records have no arguments, because these are part of the message.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_escape)
    return logger


@contextmanager
def log_fields(**fields: str | None) -> Iterator[None]:
    """Add context fields to all log records in this scope. Nested scopes add to the outer ones.

    **fields: Values of :data:`FIELDS`; None is ignored.
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
    """Return the context fields that are set, in the order of :data:`FIELDS`, for another process."""
    fields = _fields.get()
    return {name: fields[name] for name in FIELDS if name in fields}


def airflow_run_id() -> str | None:
    """Return the id of the Airflow run of this process; None outside of Airflow."""
    return os.environ.get(_AIRFLOW_RUN_VARIABLE) or None


def set_up_logging(*, is_command: bool = False) -> None:
    """Log to standard error in the format of ``EVENLAG_LOG_FORMAT``, uncaught exceptions too.

    A command logs in text format warnings and errors only. Does nothing if the root logger has handlers.
    """
    form = _form()
    _log_to_stderr(form, logging.WARNING if is_command and form == TEXT else logging.INFO)


@dataclass(frozen=True, slots=True)
class WorkerLog:
    """Format and context fields of the Spark driver for its Python workers; part of a task's closure."""

    form: str
    fields: Mapping[str, str]

    @classmethod
    def of_driver(cls) -> Self:
        """Capture the format and the context fields of the driver."""
        return cls(_form(), present_fields())

    @contextmanager
    def about(self, **fields: str | None) -> Iterator[None]:
        """Log in a worker to the executor's standard error, with fields in addition to the driver's."""
        # A worker runs many tasks: only the first one installs the handler.
        _log_to_stderr(self.form, logging.INFO)
        with log_fields(**{**self.fields, **fields}):
            yield


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``at, level, logger, message``, the context fields, ``exception`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record."""
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        # The handler's filter has formatted it.
        if record.exc_text:
            entry["exception"] = record.exc_text
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """Readable text: time in UTC, level, logger and message, then the context fields in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self.converter = time.gmtime
        self.default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name is the base class's
        """Format a record without its exception; names in it cannot forge another record."""
        record.message = log_text(record.message)
        line = super().formatMessage(record)
        fields = " ".join(f"{name}={printable(value)}" for name, value in _fields_of(record).items())
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
    for name in _VERBOSE_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger(__name__).critical("ended by an error", exc_info=(kind, error, trace))


def _prepare(record: logging.LogRecord) -> bool:
    """Mask secrets in the message and the exception. A handler's filter sees the records of all loggers.

    Records of kafka-python are left out, unless its logger has level ``DEBUG``: an error of a connection is a
    line of :mod:`evenlag.kafka.connection`, and others are raised.
    """
    if record.name.partition(".")[0] == "kafka" and not logging.getLogger("kafka").isEnabledFor(
        logging.DEBUG
    ):
        return False
    record.msg, record.args = redact(record.getMessage()), None
    if record.exc_info and not record.exc_text:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
    if record.exc_text:
        record.exc_text = log_text(redact(record.exc_text))
    if record.stack_info:
        record.stack_info = log_text(redact(record.stack_info))
    return True


def _escape(record: logging.LogRecord) -> bool:
    # Secrets first: the indent of lines would change one that has several.
    record.msg, record.args = log_text(redact(record.getMessage())), None
    if record.exc_info and not record.exc_text:
        record.exc_text = log_text(redact(logging.Formatter().formatException(record.exc_info)))
    return True


def _fields_of(record: logging.LogRecord) -> dict[str, str]:
    """Context fields of a record: its own ``extra`` overrides the scope's."""
    around = present_fields()
    known = {name: getattr(record, name, None) or around.get(name) for name in FIELDS}
    return {name: redact(str(value)) for name, value in known.items() if value is not None}


@contextmanager
def _structlog_fields(fields: Mapping[str, str]) -> Iterator[None]:
    """Bind the fields in structlog, too, if the process has imported it, as Airflow's tasks do."""
    structlog = sys.modules.get("structlog")
    if structlog is None:
        yield
        return
    shown = {name: printable(value) for name, value in fields.items()}
    with structlog.contextvars.bound_contextvars(**shown):
        yield
