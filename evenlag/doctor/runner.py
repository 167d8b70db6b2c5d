"""Runs the checks: lanes run in parallel, each check has a timeout, and a failure stops no other check."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from evenlag.doctor.model import Result, failed, skipped
from evenlag.errors import JobError
from evenlag.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlag.doctor.model import Check, Finding, Lane

_POLL_S: Final = 0.02


def run_lanes(lanes: Iterable[Lane], *, check_timeout_s: float, timeout_s: float) -> list[Result]:
    """Run the checks of all lanes, with the lanes in parallel.

    Returns one result per check, in the order of the lanes; also for checks that timed out or were skipped.
    check_timeout_s: Timeout of one check in seconds. The rest of its lane is skipped then, as it depends on
        the same resource.
    """
    running = [_RunningLane(lane) for lane in lanes]
    deadline = time.monotonic() + timeout_s
    while any(one.goes_on(check_timeout_s) for one in running) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return [result for one in running for result in one.results(check_timeout_s)]


class _RunningLane:
    """A lane in its own thread. The thread is a daemon: a check that hangs does not block the exit."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._done: list[Result] = []
        self._began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True, name="evenlag-doctor")
        self._thread.start()

    def goes_on(self, check_timeout_s: float) -> bool:
        """Whether the lane still runs and its current check is within the timeout."""
        return self._thread.is_alive() and time.monotonic() - self._began_at <= check_timeout_s

    def results(self, check_timeout_s: float) -> list[Result]:
        """One result per check; a check without a result is reported as failed or skipped."""
        done = list(self._done)
        for number, check in enumerate(self._lane.checks[len(done) :]):
            told = (
                failed(f"no answer within {check_timeout_s:g} s", "look whether what it asks is overloaded")
                if number == 0
                else skipped(f"{self._lane.checks[len(self._done)].full_name} did not answer before it")
            )
            done.append(Result(check.full_name, self._lane.cluster, (told,)))
        return done

    def _run(self) -> None:
        try:
            for check in self._lane.checks:
                self._began_at = time.monotonic()
                findings = tuple(_look(check)) or (skipped("there is nothing to look at"),)
                self._done.append(Result(check.full_name, self._lane.cluster, findings))
        finally:
            with contextlib.suppress(Exception):
                self._lane.close()


def _look(check: Check) -> Sequence[Finding]:
    """Run a check. An exception becomes a finding, and the other checks still run."""
    try:
        return check.look()
    except JobError as error:
        return [failed(redact(error.message), redact(error.remedy) or "as the message says")]
    except ModuleNotFoundError as error:
        return [skipped(f"{error.name} is not installed here")]
    except Exception as error:  # noqa: BLE001  # a check looks at the outside world, which may do anything
        return [
            failed(f"could not be looked at: {type(error).__name__}: {redact(str(error))}", "see the message")
        ]
