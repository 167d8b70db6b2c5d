"""Imports in a thread beside other work: large packages take seconds, and many processes wait meanwhile."""

from __future__ import annotations

import gc
import importlib
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def collector_paused() -> Iterator[None]:
    """Import in a block without the garbage collector, and keep what is imported out of later collections.

    The collector would look through what is imported again and again, and once more when the process ends: a
    quarter of the processor time of imports.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if is_on:
            gc.enable()


def import_in_thread(*names: str, then: Callable[[], object] | None = None) -> threading.Thread:
    """Start to import modules in another thread. Who needs one of them imports it, and waits if necessary.

    Returns the thread; it does not keep the process alive.
    *names: Names of modules, in the order in which they are needed. One that is missing ends the thread:
        whoever needs it reports it.
    """

    def run() -> None:
        with collector_paused(), suppress(ModuleNotFoundError):
            for name in names:
                importlib.import_module(name)
            if then is not None:
                then()

    thread = threading.Thread(target=run, name="import-ahead", daemon=True)
    thread.start()
    return thread
