"""How a step reports its progress."""

from typing import Protocol


class ReportProgress(Protocol):
    """Called by a step with its name, the units done so far and the units in total."""

    def __call__(self, step: str, done: int, total: int, /) -> None:
        """Report progress: ``done`` is 0 when the step starts and ``total`` when it has finished."""


def no_progress(_step: str, _done: int, _total: int, /) -> None:
    """Report nothing: the default of steps."""
