"""`evenlag run`: one cycle of a cluster, started manually, or cycles until Ctrl-C with `--watch`."""

import errno
import os
import secrets
import select
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from evenlag.cli import job_runner
from evenlag.cli.cluster_target import BootstrapOption, Target, find_target
from evenlag.cli.console import ReportProgress, console, print_json, print_line, shown_progress
from evenlag.cli.job_runner import job_arguments, sent_result
from evenlag.cli.option_types import flag, option, pattern
from evenlag.cli.options import (
    JsonOption,
    LakeScope,
    RemoteOption,
    every_option,
    reset_policy_option,
)
from evenlag.cli.plans import plan_table
from evenlag.enums import CycleStep
from evenlag.errors import LakeError, UsageError
from evenlag.formatting import at_least, moment, number
from evenlag.job_events import CycleEnded, JobNotice, JobResult
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.queries.lag import total_lag
from evenlag.queries.plan_rows import no_plan_reason, plan_rows

_GROUP_HELP = "With --bootstrap-servers: plan for these groups (name, glob or /regex/)."
_DEFAULT_INTERVAL_S = 60.0
_HEADINGS = ("groups", "lag", "change", "plans", "passed", "published", "took")
_WIDTHS = (6, 13, 10, 5, 6, 9, 7)


def run(
    *,
    bootstrap_servers: BootstrapOption = None,
    scope: LakeScope,
    group: Annotated[list[str] | None, option("--group -g", "PATTERN", _GROUP_HELP, pattern)] = None,
    reset_policy: Annotated[str | None, reset_policy_option(", and it is not moved")] = None,
    publish: Annotated[
        bool,
        flag(
            "--publish",
            "Also publish what passed the gates: for groups in mode auto of the policy file, or for the "
            "groups named by --group.",
        ),
    ] = False,
    watch: Annotated[
        bool, flag("--watch -w", "Run cycles in one Spark session, until Ctrl-C; without --cluster, of all.")
    ] = False,
    every: Annotated[float | None, every_option("cycles", _DEFAULT_INTERVAL_S)] = None,
    remote: RemoteOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run one cycle: observe the cluster, plan every group, put the plans through the gates.

    Nothing is published unless --publish is given. --watch runs cycles until Ctrl-C.

    Needs Spark (the extra named spark). Without --remote it needs Java 17 or newer.
    """
    if every is not None and not watch:
        raise UsageError("--every goes with --watch: one cycle has no interval")
    target = find_target(
        bootstrap_servers,
        scope.config,
        scope.cluster,
        lake=scope.lake,
        groups=tuple(group or ()),
        publish=publish,
        reset_policy=reset_policy,
        may_be_all=watch,
    )
    if watch:
        with target.policy_file(scope.config) as policy_file:
            arguments = job_arguments(
                cluster=target.name or None,
                every=f"{every or _DEFAULT_INTERVAL_S:g}",
                config=policy_file,
                publish=publish,
            )
            names = [] if target.name else list(target.loaded.policy.clusters)
            _watch(remote, arguments, _Cycles(as_json, max(map(len, names), default=0)))
        return
    slot = floor_to_ms(datetime.now(UTC))
    run_id = f"command__{slot:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    with shown_progress() as report, target.policy_file(scope.config) as policy_file:
        publish_once = _publisher(target, slot, run_id, report) if publish else None
        answer = _cycle(remote, target, policy_file, slot, run_id, report, publish_once)
        if publish_once is not None:
            answer[CycleStep.PUBLISH] = publish_once()
    answer |= {"cluster": target.name, "lake": target.loaded.policy.lake, "slot": slot, "run_id": run_id}
    rows = _plans(target.loaded.policy.lake, target.name, answer["observe"].get("snapshot_id"))
    if as_json:
        print_json(answer | {"plans": rows})
        return
    _show(answer, rows, publish=publish)


def _cycle(
    remote: str | None,
    target: Target,
    policy_file: Path | None,
    slot: datetime,
    run_id: str,
    report: ReportProgress,
    publish: Callable[[], dict[str, Any]] | None,
) -> dict[str, Any]:
    options = job_arguments(cluster=target.name, slot=slot.isoformat(), run_id=run_id, config=policy_file)

    def receive(event: CycleEnded | JobNotice | JobResult) -> None:
        # The job's JVM still ends: publishing need not wait for it.
        if publish is not None and isinstance(event, JobResult):
            publish()

    steps = (CycleStep.OBSERVE, CycleStep.DECIDE)
    done = job_runner.run_job("cycle", [*steps, *options], report, remote=remote, receive=receive)
    return sent_result("cycle", done)


def _publisher(
    target: Target, slot: datetime, run_id: str, report: ReportProgress
) -> Callable[[], dict[str, Any]]:
    """Return what publishes a cycle at its first call, and returns the summary at each."""

    @cache
    def publish() -> dict[str, Any]:
        from evenlag.publishing.publish import publish_cycle

        report("publishing", 0, 1)
        summary = publish_cycle(target.loaded, target.name, slot, run_id)
        report("publishing", 1, 1)
        return summary

    return publish


def _plans(lake: str, cluster: str, snapshot_id: str | None) -> list[dict[str, Any]]:
    from evenlag.lake.reader import LakeReader

    if snapshot_id is None:
        return []
    return plan_rows(LakeReader(lake), cluster, snapshot_id=snapshot_id)


def _watch(remote: str | None, arguments: list[str], cycles: "_Cycles") -> None:
    """Run cycles until Ctrl-C, SIGTERM or the end of what reads the output."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        with _end_with_reader(), shown_progress(is_repeated=True) as report:
            job_runner.run_job("watch", arguments, report, remote=remote, receive=cycles.receive)
    except KeyboardInterrupt:
        counts = f"{number(cycles.num_cycles)} cycles, {number(cycles.num_failed)} failed"
        console(stderr=True).print(f"stopped after {counts}")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _end_with_reader() -> Iterator[None]:
    """End a block when the process that reads standard output ends, as in ``… | head -2``.

    The next write would notice it too, but may be far away.
    """
    over, gone = threading.Event(), threading.Event()

    def wait_for_end(descriptor: int) -> None:
        watch = select.poll()
        # No event is requested: an error is always reported.
        watch.register(descriptor, 0)
        watch.poll()
        if not over.is_set():
            gone.set()
            os.kill(os.getpid(), signal.SIGINT)

    with suppress(OSError):
        number = sys.stdout.fileno()
        if stat.S_ISFIFO(os.fstat(number).st_mode):
            threading.Thread(target=wait_for_end, args=(number,), daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        if not gone.is_set():
            raise
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
    finally:
        over.set()


@dataclass(slots=True)
class _Cycles:
    """Shows the cycles of a watch as they end; keeps nothing of them but counts and the last lag.

    cluster_width: Width of the column with the clusters' names; 0: there is one cluster only.
    last_lag, num_unread_groups: Of the last cycle, by cluster.
    """

    as_json: bool
    cluster_width: int = 0
    num_cycles: int = 0
    num_failed: int = 0
    last_lag: dict[str, int | None] = field(default_factory=dict)
    num_unread_groups: dict[str, int] = field(default_factory=dict)

    def receive(self, event: CycleEnded | JobNotice | JobResult) -> None:
        """Show a cycle on standard output; a notice or a failed cycle on standard error."""
        if isinstance(event, JobNotice):
            print_line(sys.stderr, event.message)
        if not isinstance(event, CycleEnded):
            return
        cycle = dict(event.cycle)
        self.num_cycles += 1
        self.num_failed += "error" in cycle
        if self.as_json:
            rows = _plans_of(cycle)
            print_json(cycle | total_lag(cycle) | {"plans": rows}, is_line=True)
        elif "error" in cycle:
            line = f"{self._head(cycle)}  {cycle['error']}; next try: {_time(cycle['next_slot'])}"
            print_line(sys.stderr, line)
        else:
            self._print(cycle)

    def _print(self, cycle: dict[str, Any]) -> None:
        cluster, num_unread = cycle["cluster"], cycle["observe"].get("num_unread_groups", 0)
        if num_unread != self.num_unread_groups.get(cluster, 0) and (
            line := _unread_groups(cycle["observe"])
        ):
            print_line(sys.stderr, f"{cluster}: {line}" if self.cluster_width else line)
        self.num_unread_groups[cluster] = num_unread
        lag = total_lag(cycle)
        now, before = lag["lag_records"], self.last_lag.get(cluster)
        self.last_lag[cluster] = now
        decided, published = cycle["decide"], cycle.get("publish", {})
        passed = decided.get("approved", 0) + decided.get("waiting", 0)
        cells = (
            number(cycle["observe"].get("num_groups")),
            at_least(now, lag["num_unknown_partitions"]),
            f"{now - before:+,}" if now is not None and before is not None else "",
            number(decided.get("plans")),
            number(passed),
            number(published.get("published")),
            f"{cycle['duration_s']:.1f} s",
        )
        first = self._head(cycle)
        if self.num_cycles - self.num_failed == 1:
            heading = f"{'slot'.ljust(len(_time(cycle['slot'])))}{'  cluster' if self.cluster_width else ''}"
            print_line(sys.stdout, _row(heading.ljust(len(first)), _HEADINGS))
        print_line(sys.stdout, _row(first, cells))

    def _head(self, cycle: dict[str, Any]) -> str:
        time = _time(cycle["slot"])
        return f"{time}  {cycle['cluster'].ljust(self.cluster_width)}" if self.cluster_width else time


def _unread_groups(observed: dict[str, Any]) -> str | None:
    if not (count := observed.get("num_unread_groups")):
        return None
    return (
        f"{number(count)} of {number(observed['num_groups'])} groups could not be read completely. One is "
        f"{observed['unread_group']}. All are named by the column problems of the table snapshots"
    )


def _row(first: str, cells: tuple[str, ...]) -> str:
    return "  ".join((first, *(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))))


def _time(text: str) -> str:
    slot = moment(datetime.fromisoformat(text))
    return slot.partition(" ")[2] if sys.stdout.isatty() else slot


def _plans_of(cycle: dict[str, Any]) -> list[dict[str, Any]]:
    if not cycle.get("decide", {}).get("plans"):
        return []
    try:
        return _plans(cycle["lake"], cycle["cluster"], cycle["observe"].get("snapshot_id"))
    except LakeError:
        return []


def _show(answer: dict[str, Any], rows: list[dict[str, Any]], *, publish: bool) -> None:
    out = console()
    observed = answer["observe"]
    seen = f"{observed.get('num_groups', 0)} groups, {observed.get('num_partitions', 0)} partitions"
    if rows:
        out.print(plan_table(f"Plans of {answer['cluster']} ({seen})", rows))
    else:
        out.print(f"{answer['cluster']}: {seen}, {no_plan_reason(answer.get('decide', {}))}")
    if line := _unread_groups(observed):
        out.print(line)
    if not publish:
        out.print("Nothing was published (--publish does). More with: evenlag plans, evenlag lag")
    out.print(f"Tables are in {answer['lake']}", soft_wrap=True)
