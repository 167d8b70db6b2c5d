"""`evenlag run`: one cycle against a cluster, by hand."""

from __future__ import annotations

import contextlib
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import BootstrapOption, Target, find_target
from evenlag.cli.console import console, print_json
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption  # noqa: TC001  # Typer reads them
from evenlag.cli.plans import plan_table
from evenlag.enums import ResetPolicy  # noqa: TC001  # Typer reads it
from evenlag.queries.plans import plan_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Report = Callable[[str, int, int], None]


def run(
    *,
    bootstrap_servers: BootstrapOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            "-g",
            parser=option_types.pattern,
            metavar="TEXT",
            help="With --bootstrap-servers: plan for these groups (name, glob or /regex/).",
        ),
    ] = None,
    lake: Annotated[
        str | None,
        typer.Option(
            "--lake",
            parser=option_types.lake_root,
            metavar="TEXT",
            help="With --bootstrap-servers: where the tables go.",
        ),
    ] = None,
    reset_policy: Annotated[
        ResetPolicy | None,
        typer.Option(
            "--reset-policy",
            help="With --bootstrap-servers: auto.offset.reset of the groups. It tells how far behind a "
            "partition without a commit is; unset, that is not known, and such a partition is not moved.",
        ),
    ] = None,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="Also publish what passed the gates: for groups in mode auto of the policy file, or for the "
            "groups named by --group.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run one cycle: observe the cluster, plan every group, put the plans through the gates.

    Nothing is published unless --publish is given. Needs Java and Spark (the extra named spark).
    """
    target = find_target(
        bootstrap_servers,
        config,
        cluster,
        lake=lake,
        groups=tuple(group or ()),
        publish=publish,
        reset_policy=reset_policy.value if reset_policy else None,
    )
    slot = datetime.now(UTC)
    slot = slot.replace(microsecond=slot.microsecond // 1000 * 1000)
    run_id = f"command__{slot:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    with _progress() as report:
        answer = _cycle(target, slot, run_id, publish=publish, report=report)
    answer |= {"cluster": target.name, "lake": target.loaded.policy.lake, "slot": slot, "run_id": run_id}
    rows = _plans(target, answer["observe"].get("snapshot_id"))
    if as_json:
        print_json(answer | {"plans": rows})
        return
    _show(answer, rows, publish=publish)


def _cycle(target: Target, slot: datetime, run_id: str, *, publish: bool, report: Report) -> dict[str, Any]:
    from evenlag.logging_setup import log_fields
    from spark_jobs.runtime.quiet_session import quiet_session

    report("starting Spark", 0, 1)
    with quiet_session(f"evenlag-run-{target.name}") as spark:
        report("starting Spark", 1, 1)
        from spark_jobs.cycle import run_decide, run_observe

        answer: dict[str, Any] = {}
        for step, act in (("observe", run_observe), ("decide", run_decide)):
            with log_fields(run_id=run_id, cluster=target.name, step=step, slot=slot.isoformat()):
                answer[step] = act(spark, target.loaded, target.name, slot, run_id, report)
    if publish:
        from evenlag.publishing.publish import publish_hints

        report("publishing", 0, 1)
        with log_fields(run_id=run_id, cluster=target.name, step="publish", slot=slot.isoformat()):
            done = publish_hints(target.loaded, target.name, slot, run_id, actor="command")
        answer["publish"] = done.summary()
        report("publishing", 1, 1)
    return answer


def _plans(target: Target, snapshot_id: str | None) -> list[dict[str, Any]]:
    from evenlag.lake.reader import LakeReader

    if snapshot_id is None:
        return []
    return plan_rows(LakeReader(target.loaded.policy.lake), target.name, snapshot_id=snapshot_id)


def _show(answer: dict[str, Any], rows: list[dict[str, Any]], *, publish: bool) -> None:
    out = console()
    observed = answer["observe"]
    seen = f"{observed.get('num_groups', 0)} groups, {observed.get('num_partitions', 0)} partitions"
    if rows:
        out.print(plan_table(f"Plans of {answer['cluster']} ({seen})", rows))
    else:
        out.print(f"{answer['cluster']}: {seen}, nothing to change in the groups that are planned.")
    if not publish:
        out.print("Nothing was published (--publish does). Look closer with: evenlag plans, evenlag lag")
    out.print(f"Tables are in {answer['lake']}", soft_wrap=True)


@contextlib.contextmanager
def _progress() -> Iterator[Report]:
    """Show steps with a bar each on a terminal; tell them in lines where there is none."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    out = console(stderr=True)
    if not out.is_terminal:
        seen: set[str] = set()

        def tell(step: str, _done: int, _total: int) -> None:
            if step not in seen:
                seen.add(step)
                out.print(step)

        yield tell
        return
    columns = (SpinnerColumn(finished_text="+"), TextColumn("{task.description}"), BarColumn(),
               MofNCompleteColumn(), TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=out) as progress:
        tasks: dict[str, Any] = {}

        def report(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=total)
            progress.update(tasks[step], completed=done, total=total)

        yield report
