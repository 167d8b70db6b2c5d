"""Parallel Spark queries: on small tables the driver does most of a query's work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def run_in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Run independent calls in one thread each and wait for all of them.

    Parameters
    ----------
    *calls
        They do not depend on each other. Two of them never write to one table, and none writes to a table
        that a cached frame of another reads (``docs/adr/0045``).

    Returns
    -------
    list
        Their results, in order.

    Raises
    ------
    Exception
        The first exception in the order of the calls, after all calls have ended.
    """
    with ThreadPoolExecutor(len(calls), thread_name_prefix="evenlag") as pool:
        # Copies the fields of log records; a context can be used by one thread only.
        running = [pool.submit(copy_context().run, call) for call in calls]
    return [call.result() for call in running]
