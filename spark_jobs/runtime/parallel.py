"""Independent Spark work in parallel: on small tables the driver does most of the work of a query."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def run_in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Run each call in its own thread and wait for all of them.

    *calls: Independent calls. Two of them never write to the same table, and none writes to a table whose
        DataFrame another one caches and unpersists (``docs/adr/0052``).
    """
    with ThreadPoolExecutor(len(calls), thread_name_prefix="evenlag") as pool:
        # Each call keeps the fields of the caller's log records. A context can be used in one thread only.
        running = [pool.submit(copy_context().run, call) for call in calls]
    return [call.result() for call in running]
