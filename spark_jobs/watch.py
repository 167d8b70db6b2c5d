"""Run cycles in one warm session until interrupted: the job of ``evenlag run --watch``.

A cycle has a slot and a run id of its own, and the steps of :mod:`spark_jobs.cycle`; with ``--publish`` it
also publishes. An error that may pass is reported, and the next cycle tries again, later after each failure.
Any other error ends the job with its exit code.

Without ``--cluster`` each cluster of the policy has cycles of its own, in a thread of its own, spread over
the interval. Then no error ends the job, and clusters wait for each other only to compute in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from evenlag.enums import CycleStep
from evenlag.errors import FencedPublisherError, JobError, PolicyError
from evenlag.job_events import CycleEnded, JobEvent, JobNotice, JobProgress
from evenlag.lake.location import LakePaths
from evenlag.logging_setup import log_fields, named_logger
from evenlag.policy.loader import LoadedPolicy, find_policy_path, load_policy
from evenlag.publishing.following import Following
from evenlag.publishing.publish import publish_cycle
from evenlag.redaction import redact
from evenlag.slot_clock import SlotClock
from spark_jobs.runtime.entry_point import Job, RepeatedWork, end_process, run_job
from spark_jobs.runtime.event_channel import EventChannel
from spark_jobs.runtime.session import OpenSession, WarmSession, quiet_log
from spark_jobs.steps.cycle_steps import run_decide, run_observe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = named_logger(__name__)
_STEPS: Final = {CycleStep.OBSERVE: run_observe, CycleStep.DECIDE: run_decide}
# After so many consecutive unexpected errors the job ends: they are no faults that pass.
_MAX_UNEXPECTED: Final = 3
_WAITING: Final = "waiting for the next cycle"
# How soon a cluster that the policy gets has cycles.
_LOOK_EVERY_S: Final = 1.0
_UNEXPECTED_EXIT_CODE: Final = 1
# The JVM's output is truncated beyond this size: the job may run for months.
_MAX_LOG_BYTES: Final = 16 * 1024 * 1024


class WatchedPolicy:
    """The policy file, read again when it has changed, with the cluster that it must contain; None: any.

    loaded: The policy, if there is no `error` in the file.
    """

    loaded: LoadedPolicy
    error: PolicyError | None

    def __init__(self, config: str | None, cluster: str | None) -> None:
        self._path, self._cluster = find_policy_path(config), cluster
        self._lock = threading.Lock()
        self._signature: tuple[int, int, int] | None = None
        self._read()

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that have cycles."""
        return tuple(self.loaded.policy.clusters) if self._cluster is None else (self._cluster,)

    def refresh(self) -> bool:
        """Read the file again if it has changed."""
        with self._lock:
            if self._sign() == self._signature:
                return False
            self._read()
            return True

    def _read(self) -> None:
        # Signed before it is read: a change while it is read is noticed by the next call.
        self._signature = self._sign()
        self.error = None
        try:
            self.loaded = load_policy(self._path)
            if self._cluster is not None:
                self.loaded.cluster_settings(self._cluster)
        except PolicyError as error:
            self.error = error

    def _sign(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino


@dataclass(slots=True)
class Watch:
    """Runs the cycles of a cluster, and sends their events.

    is_alone: Whether an error that cannot pass ends the job; it is reported as any other one where the job
        has other clusters too.
    """

    cluster: str
    policy: WatchedPolicy
    clock: SlotClock
    publishes: bool
    send: Callable[[JobEvent], None]
    is_alone: bool = True
    _num_unexpected: int = field(default=0, init=False)
    _spark: SparkSession | None = field(default=None, init=False)
    # Groups take longer to follow than a cycle takes, and others wait for the next one.
    _following: Following = field(default_factory=Following, init=False)

    def run(self, session: WarmSession) -> None:
        """Run cycles until an error or an interrupt ends them, or the policy has no such cluster any more."""
        while self.cluster in self.policy.clusters:
            self._progress(_WAITING, 0, 1)
            slot = self.clock.wait()
            self._refresh_policy()
            if self.policy.error is None and self.cluster in self.policy.clusters:
                self._run_slot(session, slot)

    def _refresh_policy(self) -> None:
        if not self.policy.refresh():
            return
        error = self.policy.error
        if error is None:
            self.send(JobNotice("the policy file has changed: it applies from this cycle on"))
            return
        first, *more = str(error).splitlines()
        others = f" ({len(more)} more: evenlag policy check)" if more else ""
        self.send(JobNotice(f"no cycle runs until the policy file is corrected: {redact(first)}{others}"))

    def _run_slot(self, session: WarmSession, slot: datetime) -> None:
        loaded, started, self._spark = self.policy.loaded, time.monotonic(), None
        run_id = f"watch__{slot:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
        cycle: dict[str, Any] = {
            "cluster": self.cluster,
            "lake": loaded.policy.lake,
            "slot": slot.isoformat(),
            "run_id": run_id,
            "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        with log_fields(run_id=run_id, cluster=self.cluster, slot=slot.isoformat()):
            try:
                self._run_steps(session, loaded, slot, run_id, cycle)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001  # also Spark's when the JVM dies, deltalake's panics
                cycle |= self._handle(error, session)
            else:
                self._num_unexpected = 0
                cycle["next_slot"] = self.clock.succeeded().isoformat()
        self.send(CycleEnded(cycle | {"duration_s": round(time.monotonic() - started, 3)}))

    def _run_steps(
        self, session: WarmSession, loaded: LoadedPolicy, slot: datetime, run_id: str, cycle: dict[str, Any]
    ) -> None:
        """Run the steps; add the summary of each step to the cycle."""
        self._spark = session.get()
        for step, run_step in _STEPS.items():
            with log_fields(step=step):
                cycle[step] = run_step(self._spark, loaded, self.cluster, slot, run_id, self._progress)
        if self.publishes:
            self._progress("publishing", 0, 1)
            cycle[CycleStep.PUBLISH] = publish_cycle(loaded, self.cluster, slot, run_id, self._following)
            self._progress("publishing", 1, 1)

    def _handle(self, error: BaseException, session: WarmSession) -> dict[str, Any]:
        """Return what to report of an error that may pass; raise any other."""
        lost = session.drop_if_lost(error, self._spark)
        error = lost or error
        if isinstance(error, JobError):
            if self.is_alone and not (error.retriable or isinstance(error, FencedPublisherError)):
                raise error
            message, exit_code = str(error), error.exit_code
        else:
            message, exit_code = f"{type(error).__name__}: {error}", _UNEXPECTED_EXIT_CODE
            self._num_unexpected += 1
            if lost is None:
                _LOG.error("the cycle ended by an unexpected error", exc_info=error)
            if self.is_alone and self._num_unexpected >= _MAX_UNEXPECTED:
                raise JobError(f"{_MAX_UNEXPECTED} consecutive cycles ended by unexpected errors") from error
        if lost is not None:
            message = f"Spark's session was lost, the next cycle opens another: {message}"
        first_line = redact(message).strip().partition("\n")[0]
        return {"error": first_line, "exit_code": exit_code, "next_slot": self.clock.failed().isoformat()}

    def _progress(self, step: str, done: int, total: int) -> None:
        if self.is_alone:
            self.send(JobProgress(step, done, total))


@dataclass(slots=True)
class Watches:
    """Runs the cycles of all clusters of a policy, those that it gets later included.

    send: Called from several threads, until :meth:`run` ends.
    """

    policy: WatchedPolicy
    every: timedelta
    publishes: bool
    send: Callable[[JobEvent], None]
    _running: dict[str, threading.Thread] = field(default_factory=dict, init=False)
    _failed: list[BaseException] = field(default_factory=list, init=False)
    _is_over: bool = field(default=False, init=False)

    def run(self, session: WarmSession) -> NoReturn:
        """Run cycles until an interrupt ends them."""
        self.send(JobProgress(_WAITING, 0, 1))
        try:
            while True:
                self._start_missing(session)
                time.sleep(_LOOK_EVERY_S)
                if self._failed:
                    raise self._failed[0]
        finally:
            # The end of the session makes all cycles fail.
            self._is_over = True

    def _start_missing(self, session: WarmSession) -> None:
        clusters = self.policy.clusters
        for number, name in enumerate(clusters):
            if (known := self._running.get(name)) is None or not known.is_alive():
                offset = self.every * number / len(clusters)
                run = partial(copy_context().run, self._run, name, offset, session)
                self._running[name] = threading.Thread(target=run, daemon=True)
                self._running[name].start()

    def _run(self, cluster: str, offset: timedelta, session: WarmSession) -> None:
        try:
            time.sleep(offset.total_seconds())
            clock = SlotClock(self.every, offset=offset)
            Watch(cluster, self.policy, clock, self.publishes, self._forward, is_alone=False).run(session)
        except BaseException as error:  # noqa: BLE001  # no fault of a cluster's cycle: main ends with it
            self._failed.append(error)

    def _forward(self, event: JobEvent) -> None:
        if not self._is_over:
            self.send(event)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", help="name of the cluster in the policy; without it, all")
    parser.add_argument("--every", required=True, type=float, metavar="SECONDS", help="interval of the slots")
    parser.add_argument("--publish", action="store_true", help="publish what passed the gates")


def _prepare(arguments: argparse.Namespace) -> RepeatedWork:
    policy = WatchedPolicy(arguments.config, arguments.cluster)
    if policy.error is not None:
        raise policy.error
    LakePaths(policy.loaded.policy.lake).make_root()
    app_name = f"evenlag watch {arguments.cluster or 'all'}"

    def run(open_session: OpenSession, events: EventChannel) -> dict[str, Any]:
        send, every = partial(_send, events, app_name), timedelta(seconds=arguments.every)
        watch: Watch | Watches = Watches(policy, every, arguments.publish, send)
        if arguments.cluster is not None:
            watch = Watch(arguments.cluster, policy, SlotClock(every), arguments.publish, send)
        session = WarmSession(open_session)
        try:
            watch.run(session)
        except BaseException as error:
            session.close(error)
            raise
        return {}

    return RepeatedWork(app_name, run, lake=policy.loaded.policy.lake)


def _send(events: EventChannel, app_name: str, event: JobEvent) -> None:
    """Send an event, or log it when nobody reads events; and limit the JVM's output after a cycle."""
    events.send(event)
    if isinstance(event, CycleEnded):
        with contextlib.suppress(FileNotFoundError):
            log = quiet_log(app_name)
            if log.stat().st_size > _MAX_LOG_BYTES:
                os.truncate(log, 0)
    if events.is_open:
        return
    match event:
        case CycleEnded():
            _LOG.info("cycle: %s", json.dumps(event.cycle, default=str))
        case JobNotice():
            _LOG.warning("%s", event.message)


JOB: Final = Job("spark_jobs.watch", __doc__, _add_arguments, _prepare, lambda _: "watch")


if __name__ == "__main__":
    end_process(run_job(JOB))
