"""Errors of writes without a JVM, and repeats of those that conflict: a bounded number, with random waits."""

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from evenlag.errors import LakeConflictError, LakeError
from evenlag.lake.delta_log import one_line
from evenlag.lake.location import LakePaths
from evenlag.lake.tables import Table

_Result = TypeVar("_Result")

# With the waits, about ten seconds: more than the commits of all clusters take that meet at a full hour.
ATTEMPTS: Final = 10
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 2.0
# Messages of the operating system, which are deep in the messages of deltalake and in Spark's stack traces.
SYSTEM_CAUSES: Final = re.compile(
    r"No space left on device|Read-only file system|Permission denied|Disk quota exceeded|File too large"
    r"|Operation not permitted|Input/output error"
)


def retry_on_conflict(write: Callable[[], _Result]) -> _Result:
    """Write everything from what the table has then, and repeat it while it conflicts with another writer."""
    for attempt in range(1, ATTEMPTS):
        try:
            return write()
        except LakeConflictError:
            time.sleep(pause_s(attempt))
    return write()


def pause_s(attempt: int) -> float:
    """Return how long to wait after an attempt, from 1; random, or writers that met once meet again."""
    typical_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (attempt - 1))
    return typical_s * random.uniform(0.5, 1.5)  # noqa: S311  # not a secret


@contextmanager
def write_errors(paths: LakePaths, table: Table) -> Iterator[None]:
    """Convert deltalake's exceptions in a block, in which files of a local lake are private."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    message = f"table {table.name} of {paths.root} cannot be written"
    try:
        with paths.private_files():
            yield
    except CommitFailedError as error:
        raise LakeConflictError(f"{message}: {one_line(error)}") from error
    except (DeltaError, OSError) as error:
        found = SYSTEM_CAUSES.search(str(error))
        raise LakeError(f"{message}: {found.group() if found else one_line(error)}") from error
