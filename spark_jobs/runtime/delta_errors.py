"""What Spark raises while it reads or writes a table, as one error that names the table and the cause."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import LakeConflictError, LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Causes that stand deep in a task's stack trace, in the words of the operating system.
_SYSTEM_CAUSES: Final = re.compile(
    r"No space left on device|Read-only file system|Permission denied|Disk quota exceeded|File too large"
    r"|Operation not permitted|Input/output error"
)
_CONFLICT: Final = re.compile(r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)")
_CONFLICT_CLASS: Final = re.compile(r"\.(Concurrent\w+|MetadataChanged|ProtocolChanged)(Write)?Exception")
_MAX_CAUSES: Final = 20
# Others commit within a second or so; what still conflicts after that is no accident.
_ATTEMPTS: Final = 5
_FIRST_WAIT_S: Final = 0.2


@contextmanager
def as_lake_error(message: str) -> Iterator[None]:
    """Turn what Spark raises into one error: the message, then the cause.

    Raises
    ------
    LakeConflictError
        When another writer's commit came in between; nothing was written.
    LakeError
        For any other failure.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        names, texts = _causes(error)
        told = f"{message}: {_cause(texts)}"
        if any(_CONFLICT_CLASS.search(name) for name in names) or _CONFLICT.search("\n".join(texts)):
            raise LakeConflictError(told) from error
        raise LakeError(told) from error


def write_again_on_conflict(message: str, write: Callable[[], object]) -> None:
    """Write, and again when another writer's commit came in between.

    Only where no lock of ours keeps writers apart, and only for writes that depend on what is in the table
    (a MERGE, a replaced day): blind appends conflict with a change of the table's columns or properties, and
    with nothing else.

    Parameters
    ----------
    message
        What failed, should it fail.
    write
        The whole write; it may be called several times.

    Raises
    ------
    LakeConflictError
        When it still conflicts after five attempts, about six seconds.
    LakeError
        For any other failure.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with as_lake_error(message):
                write()
        except LakeConflictError:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_FIRST_WAIT_S * 2**attempt)
        else:
            return


def _causes(error: Any) -> tuple[list[str], list[str]]:
    """Class names and texts of a Java exception and of what caused it, the outermost first."""
    names, texts = [type(error).__name__], [str(error)]
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None and len(names) < _MAX_CAUSES:
        names.append(str(cause.getClass().getName()))
        texts.append(str(cause.getMessage() or cause.getClass().getSimpleName()))
        cause = cause.getCause()
    return names, texts


def _cause(texts: list[str]) -> str:
    for text in texts:
        if found := _SYSTEM_CAUSES.search(text):
            return found.group()
    return texts[-1].strip().splitlines()[0] if texts[-1].strip() else texts[0].strip().splitlines()[0]
