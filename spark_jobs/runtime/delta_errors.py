"""Convert Spark's exceptions on table I/O to one error that names the table and the cause."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake import conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CONFLICT: Final = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
_CONFLICT_CLASS: Final = re.compile(r"\.(Concurrent\w+|MetadataChanged|ProtocolChanged)(Write)?Exception")
_MAX_CAUSES: Final = 20
_PYTHON_TRACE: Final = "Traceback (most recent call last):"
# The form of a server's errors: "(class) message", then the stack trace with its causes.
_TRACE: Final = "JVM stacktrace:"
_CLASS_BEFORE_MESSAGE: Final = re.compile(r"^\([\w.$]+\) ")
_TRACE_BEGIN: Final = re.compile(r"[\w.$]+")
_CAUSED_BY: Final = re.compile(r"^Caused by: (?P<name>[\w.$]+)(?:: (?P<text>.*))?$", re.MULTILINE)


@contextmanager
def as_lake_error(message: str) -> Iterator[None]:
    """Convert Spark's exceptions into one error: the message, then the cause."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        names, texts = _remote_causes(error) if _is_remote(error) else _causes(error)
        explained = f"{message}: {_cause(texts)}"
        if any(_CONFLICT_CLASS.search(name) for name in names) or _CONFLICT.search("\n".join(texts)):
            raise LakeConflictError(explained) from error
        raise LakeError(explained) from error


def retry_on_conflict(message: str, write: Callable[[], object]) -> None:
    """Write, and repeat the write after a conflict with another writer's.

    Writes conflict that depend on the table's content (a replaced or compacted day). Appends conflict only
    with a change of columns or properties.
    """

    def attempt() -> None:
        with as_lake_error(message):
            write()

    conflicts.retry_on_conflict(attempt)


def _causes(error: Any) -> tuple[list[str], list[str]]:
    """Return class names and messages of a Java exception and its causes, outermost first."""
    names, texts = [type(error).__name__], [str(error)]
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and len(names) < _MAX_CAUSES:
        names.append(str(cause.getClass().getName()))
        texts.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return names, texts


def _is_remote(error: BaseException) -> bool:
    """Whether an error comes from a Spark Connect server: its stack trace is text, not Java objects."""
    return type(error).__module__ == "pyspark.errors.exceptions.connect"


def _remote_causes(error: Any) -> tuple[list[str], list[str]]:
    """Return class names and messages of a server's error and its causes, outermost first."""
    message, _, trace = str(error).partition(_TRACE)
    names, texts = [type(error).__name__], [_CLASS_BEFORE_MESSAGE.sub("", message.strip())]
    if first := _TRACE_BEGIN.match(trace.strip()):
        names.append(first.group())
    for found in _CAUSED_BY.finditer(trace):
        names.append(found["name"])
        texts.append(found["text"] or found["name"].rpartition(".")[2])
    return names[:_MAX_CAUSES], texts[:_MAX_CAUSES]


def _cause(texts: list[str]) -> str:
    for text in texts:
        if found := conflicts.SYSTEM_CAUSES.search(text):
            return found.group()
    text = next(text.strip() for text in (texts[-1], texts[0], "unknown") if text.strip())
    lines = text.splitlines()
    # Of an error in a Python worker, the last line of its traceback tells the cause.
    return lines[-1] if _PYTHON_TRACE in text else lines[0]
