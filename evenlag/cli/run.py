"""`evenlag run`: one cycle of a cluster, started manually."""

from __future__ import annotations

import json
import secrets
import tempfile
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import BootstrapOption, Target, find_target
from evenlag.cli.console import console, print_json
from evenlag.cli.job_runner import job_runner, shown_progress
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption  # Typer reads them
from evenlag.cli.plans import plan_table
from evenlag.enums import CycleStep, ResetPolicy
from evenlag.errors import JobError
from evenlag.lake.snapshot_ids import floor_to_ms
from evenlag.queries.plans import plan_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.cli.job_runner import JobRunner, ReportProgress


def run(
    context: typer.Context,
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
            help="With --bootstrap-servers: auto.offset.reset of the groups. It determines the lag of a "
            "partition without a commit; unset, that lag is unknown, and such a partition is not moved.",
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

    Nothing is published unless --publish is given. Needs Spark (the extra named spark) and Java 17 or newer.
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
    slot = floor_to_ms(datetime.now(UTC))
    run_id = f"command__{slot:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    with shown_progress() as report, _policy_file(target, config) as policy_file:
        answer = _cycle(job_runner(context), target, policy_file, slot, run_id, report)
        if publish:
            answer[CycleStep.PUBLISH] = _publish(target, slot, run_id, report)
    answer |= {"cluster": target.name, "lake": target.loaded.policy.lake, "slot": slot, "run_id": run_id}
    rows = _plans(target, answer["observe"].get("snapshot_id"))
    if as_json:
        print_json(answer | {"plans": rows})
        return
    _show(answer, rows, publish=publish)


def _cycle(
    run_job: JobRunner,
    target: Target,
    policy_file: Path | None,
    slot: datetime,
    run_id: str,
    report: ReportProgress,
) -> dict[str, Any]:
    arguments = [CycleStep.OBSERVE, CycleStep.DECIDE, f"--cluster={target.name}"]
    arguments += [f"--slot={slot.isoformat()}", f"--run-id={run_id}"]
    if policy_file is not None:
        arguments.append(f"--config={policy_file}")
    result = run_job("cycle", arguments, report)
    return _recorded_summaries(target, run_id) if result is None else result


def _recorded_summaries(target: Target, run_id: str) -> dict[str, Any]:
    """Read the summaries in ``runs``: a driver on another host has no pipe to this process."""
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import RUNS

    filters = [("cluster", "=", target.name), ("run_id", "=", run_id)]
    rows = LakeReader(target.loaded.policy.lake).read(RUNS, columns=["step", "summary"], filters=filters)
    found = {row["step"]: json.loads(row["summary"]) for row in rows.to_pylist()}
    missing = [step for step in (CycleStep.OBSERVE, CycleStep.DECIDE) if step not in found]
    if missing:
        raise JobError(
            f"the job ended and recorded no {' and no '.join(missing)} of run {run_id} in the lake"
        )
    return found


def _publish(target: Target, slot: datetime, run_id: str, report: ReportProgress) -> dict[str, Any]:
    from evenlag.logging_setup import log_fields
    from evenlag.publishing.publish import publish_hints

    report("publishing", 0, 1)
    with log_fields(run_id=run_id, cluster=target.name, step=CycleStep.PUBLISH, slot=slot.isoformat()):
        done = publish_hints(target.loaded, target.name, slot, run_id, actor="command")
    report("publishing", 1, 1)
    return done.summary()


@contextmanager
def _policy_file(target: Target, config: Path | None) -> Iterator[Path | None]:
    """Provide the policy file for the job's process; None when the job finds the file as this process did.

    Without a policy file, the policy that the options are equivalent to is written to a temporary file. It
    refers to secrets by the names of variables, and contains none.
    """
    if target.written_policy is None:
        yield config
        return
    with tempfile.TemporaryDirectory(prefix="evenlag-") as folder:
        file = Path(folder) / "evenlag.yaml"
        file.write_text(target.written_policy, encoding="utf-8")
        yield file


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
        out.print("Nothing was published (--publish does). More with: evenlag plans, evenlag lag")
    out.print(f"Tables are in {answer['lake']}", soft_wrap=True)
