"""A stage for a recording: groups of consumer processes, a lake in the current folder, and what fills it."""

from __future__ import annotations

import contextlib
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from evenlag.monitoring import alerts
from evenlag.policy.loader import parse_policy
from evenlag.publishing import approvals
from evenlag.publishing.answers.actors import Actor
from evenlag.publishing.publish import publish_hints
from evenlag.publishing.revocation import withdraw_hint
from spark_jobs.compare import Request, run_compare
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from spark_jobs.steps.collect_snapshot import collect_snapshot
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.support.faulty_workload import FaultyWorkload
from tests.truth.recording.clock import shifted_children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from evenlag.policy.loader import LoadedPolicy

LAKE: Final = "lake"
# The step of a run that reads the brokers; its own steps are counted.
_READING: Final = "observe: reading Kafka"
_AT_END: Final = -1
_WARM_UP: Final = "../warm-up"
_PERSON: Final = "Ada Lovelace <ada@example.com>"
# Seconds from a slot to its reading: a scheduler is never on time.
_DELAYS_S: Final = (9.25, 12.75, 10.5, 11.125, 9.875)
# A member that says no word keeps its partitions for so long.
SESSION_S: Final = 45
_CONSUMER: Final = {
    "records_per_s": 40.0,
    "session_timeout_ms": SESSION_S * 1000,
    "extra": {"metadata_max_age_ms": 2000},
}


class Stage:
    """Everything that a recording needs, for one lake.

    spark: The session; the current folder is the stage's, so that no path gets into a table.
    folder: For journals and processes.
    servers: Where the brokers are.
    policy: The policy's text, with ``{servers}``.
    cluster: The name that cycles run under when none is given.
    """

    def __init__(self, spark: SparkSession, folder: Path, servers: str, policy: str, cluster: str) -> None:
        self._spark, self._folder, self._stack = spark, folder, ExitStack()
        self.client = {"bootstrap_servers": servers}
        self.text = policy.format(servers=servers)
        self.loaded: LoadedPolicy = parse_policy(self.text, environ={})
        self.cluster = cluster
        self.workloads: dict[str, FaultyWorkload] = {}
        self.done: list[dict[str, Any]] = []
        self._delays = cycle(_DELAYS_S)
        self._num_runs = 0
        self._acts: dict[int, list[Callable[[], Any]]] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(shifted_children())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    @property
    def lake(self) -> Lake:
        """The lake, for jobs that take it."""
        return Lake(self._spark, LAKE)

    def workload(
        self, key: str, topic: str, num_partitions: int, group_id: str | None = None, **fields: Any
    ) -> FaultyWorkload:
        """Make a group; `key` names its journal, and is its group id when none is given."""
        extra = {**_CONSUMER["extra"], **fields.pop("extra", {})}  # type: ignore[dict-item]  # a dict there
        made = FaultyWorkload(
            self.client,
            self._folder / key,
            topic=topic,
            num_partitions=num_partitions,
            group_id=key if group_id is None else group_id,
            consumer={**_CONSUMER, **fields, "extra": extra},
        )
        self.workloads[key] = self._stack.enter_context(made)
        return made

    def note(self, what: str, **about: Any) -> None:
        """Record an action with the current time."""
        sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S} {what} {about or ''}\n")
        sys.stdout.flush()
        self.done.append({"wall_ms": time.time_ns() // 1_000_000, "what": what, **about})

    def warm_up(self) -> None:
        """Run a cycle on a lake elsewhere: the first one of a session takes a minute."""
        if Path(_WARM_UP).exists():
            return
        text = self.text.replace(f"lake: {LAKE}\n", f"lake: {_WARM_UP}\n", 1)
        loaded = parse_policy(text, environ={})
        slot = datetime.now(UTC)
        run_observe(self._spark, loaded, self.cluster, slot, "warm-up")
        run_decide(self._spark, loaded, self.cluster, slot, "warm-up")

    # Snapshots. ----------------------------------------------------------------------------------------

    def collect(
        self,
        pause_s: float = 0.0,
        *,
        cluster: str | None = None,
        slot: datetime | None = None,
    ) -> None:
        """Read the cluster and compute its lag, without a decision; then wait."""
        name, slot = cluster or self.cluster, slot or self._slot()
        read = collect_snapshot(
            self.lake, self.loaded.policy, name, slot, run_id=self._run_id(), progress=self._while_read
        )
        self.note("collected", cluster=name, snapshot_id=read.rows.snapshot_id)
        time.sleep(pause_s)

    def observe(
        self, pause_s: float = 0.0, *, cluster: str | None = None, slot: datetime | None = None
    ) -> tuple[datetime, str]:
        """Observe as a run does; returns the slot and the run."""
        name, slot, run_id = cluster or self.cluster, slot or self._slot(), self._run_id()
        summary = run_observe(self._spark, self.loaded, name, slot, run_id, self._while_read)
        self.note("observed", cluster=name, snapshot_id=summary["snapshot_id"], outcomes=summary["outcomes"])
        time.sleep(pause_s)
        return slot, run_id

    def decide(self, *, cluster: str | None = None, slot: datetime | None = None) -> tuple[datetime, str]:
        """Observe and decide, and do not publish yet."""
        name = cluster or self.cluster
        slot, run_id = self.observe(cluster=name, slot=slot)
        summary = run_decide(self._spark, self.loaded, name, slot, run_id)
        self.note("decided", cluster=name, **{key: summary[key] for key in ("plans", "approved", "rejected")})
        return slot, run_id

    def publish(self, slot: datetime, run_id: str, only: list[str] | None = None) -> dict[str, Any]:
        """Publish what is approved up to a slot."""
        report = publish_hints(self.loaded, self.cluster, slot, run_id, only=only)
        found = {"published": [each[0] for each in report.published], "expired": report.expired}
        self.note("published", **found)
        return found

    def whole_cycle(self, slot: datetime | None = None) -> datetime:
        """Observe, decide, publish."""
        slot, run_id = self.decide(slot=slot)
        self.publish(slot, run_id)
        return slot

    def _while_read(self, step: str, done: int, total: int) -> None:
        if step == _READING:
            for act in self._acts.pop(done if done < total else _AT_END, ()):
                act()

    def _slot(self) -> datetime:
        return datetime.now(UTC) - timedelta(seconds=next(self._delays))

    def _run_id(self) -> str:
        self._num_runs += 1
        return f"recorded-{self._num_runs:03d}"

    # People. -------------------------------------------------------------------------------------------

    def ask(self, slot: datetime) -> list[str]:
        """Ask a person for each plan of a slot that waits; returns the plans."""
        asked = []
        for plan in approvals.find_waiting(self.loaded, self.cluster, slot):
            with contextlib.suppress(approvals.NotWaitingError):
                approvals.request_approval(
                    self.loaded,
                    self.cluster,
                    plan.head["plan_id"],
                    run_id=self._run_id(),
                    now=datetime.now(UTC),
                )
                asked.append(plan.head["plan_id"])
        self.note("asked", plans=asked)
        return asked

    def answer(self, plan_id: str, *, approve: bool, reason: str) -> None:
        """Answer as a person."""
        approvals.record_answer(
            self.loaded, self.cluster, plan_id, approve=approve, actor=Actor(_PERSON), reason=reason,
            run_id=self._run_id(), now=datetime.now(UTC),
        )  # fmt: skip
        self.note("answered", plan_id=plan_id, approve=approve)

    def withdraw(self, group_id: str, reason: str) -> None:
        """Take a hint back as a person."""
        withdraw_hint(self.loaded, self.cluster, group_id, actor=_PERSON, reason=reason)
        self.note("withdrawn", group_id=group_id)

    def alert(self) -> None:
        """Look for faults, and set them down as told."""
        now = datetime.now(UTC)
        changes = alerts.find_changes(self.loaded, self.cluster, now)
        alerts.record_changes(self.loaded, self.cluster, changes, run_id=self._run_id(), now=now)

    # Groups. -------------------------------------------------------------------------------------------

    def hot_spot(self, *keys: str, counts: tuple[int, ...] = (5000, 4000, 3000, 1000)) -> None:
        """Put most of a backlog on the partitions of one member: even by count, uneven by lag."""
        for key in keys:
            group = self.workloads[key]
            owners = group.owners()
            unlucky = max(sorted(owners), key=lambda name: len(owners[name]))
            group.fill(dict(zip(sorted(owners[unlucky]), counts, strict=False)))
            self.note("hot_spot", group=key, member=unlucky)

    @contextlib.contextmanager
    def moves(self, key: str, timeout_s: float = 60.0) -> Iterator[None]:
        """Leave the block only when the group's partitions have other owners than before it."""
        group = self.workloads[key]
        before = group.owners()
        yield
        owners = group.wait_until_owned(condition=lambda now: now != before, timeout_s=timeout_s)
        self.note("moved", group=key, owners={name: sorted(numbers) for name, numbers in owners.items()})

    def while_read(self, act: Callable[[], Any], *, step: int = _AT_END) -> None:
        """Do something during the next snapshot, after this step of its reading, or right after the last."""
        self._acts.setdefault(step, []).append(act)

    # The end. ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Stop the groups, then audit and compare every cluster by the product's own jobs."""
        for group in self.workloads.values():
            group.stop()
        for name in self.loaded.policy.clusters:
            audited = audit_assignments(self.lake, name)
            # A slot may lie on the day before its reading.
            first, last = audited.days[0] - timedelta(days=1), audited.days[-1]
            run_compare(self.lake, self.loaded, Request(name, first, last))
            run_compare(self.lake, self.loaded, Request(name, first, last, is_continuous=True))
            self.note("audited and compared", cluster=name)
