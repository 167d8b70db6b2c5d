"""Independent Spark work at the same time: on small tables a query is the work of the driver alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def run_in_parallel(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls in threads of their own and wait for all of them.

    Parameters
    ----------
    *calls
        They depend on nothing of each other; of two writes, each goes to a table of its own, and to none that
        a frame names which another call keeps and lets go of (``docs/adr/0045``).

    Returns
    -------
    list
        What they returned, in their order.

    Raises
    ------
    Exception
        The first one, in the order of the calls, after all of them have ended.
    """
    with ThreadPoolExecutor(len(calls), thread_name_prefix="evenlag") as pool:
        # What their log records are about goes with them; a context serves one thread only.
        running = [pool.submit(copy_context().run, call) for call in calls]
    return [call.result() for call in running]
