"""`evenlag plans`: plans with their gates and outcomes; manual approval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.console import console, print_json, status_text
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.option_types import argument, option
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption, LakeOption
from evenlag.cli.tables.layout import Table
from evenlag.cli.tables.plan_tables import SHORT_ID, gate_values, measures_table, move_table, plan_table
from evenlag.context import find_cluster, find_lake, find_policy
from evenlag.errors import NotFoundError, UsageError
from evenlag.formatting import (
    answered_by,
    did_you_mean,
    moment,
)
from evenlag.queries.lag import client_names, read_group_members
from evenlag.queries.plan_rows import event_order, groups_without_plan, plan_rows

if TYPE_CHECKING:
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

_DEFAULT_DAYS = 7
_DEFAULT_LIMIT = 20

app = typer.Typer(
    cls=ShowByDefault,
    help="Show plans with their status and reasons; approve or reject a plan that waits for approval. "
    "Without a subcommand: show [PLAN].",
)


@app.command(SHOW)
def plans(
    plan_id: Annotated[
        str | None, argument("PLAN", "A plan id, or its first characters.", option_types.plan_id)
    ] = None,
    *,
    group: Annotated[str | None, option("--group -g", "GROUP", "Plans of this group only.")] = None,
    days: Annotated[
        int | None,
        option(
            "--days",
            "N",
            f"Number of days to look back; default {_DEFAULT_DAYS}.",
            option_types.whole(0, option_types.MAX_DAYS),
        ),
    ] = None,
    limit: Annotated[
        int | None,
        option(
            "--limit",
            "N",
            f"Number of plans to show; default {_DEFAULT_LIMIT}.",
            option_types.whole(1, option_types.MAX_ROWS),
        ),
    ] = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    lake: LakeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show plans with their status and reasons, newest first; one plan with its gates and moves."""
    reader = find_lake(lake, config)
    name = find_cluster(reader, cluster)
    if plan_id is not None:
        if days is not None or limit is not None:
            raise UsageError("--days and --limit go with the list of plans, not with one PLAN")
        found = the_plan(reader, name, plan_id)
        if group not in {None, found["group_id"]}:
            raise NotFoundError(
                f"plan {found['plan_id'][:SHORT_ID]} belongs to the group {found['group_id']!r}, "
                f"not {group!r}"
            )
        from evenlag.publishing.sealing.verified_plans import seal_state

        # Without --config, a lake that is named need not be that of the policy in the current folder.
        policy = find_policy(config) if lake is None or config is not None else None
        _show_plan(reader, found, seal_state(policy, reader, found), as_json=as_json)
        return
    days, limit = _DEFAULT_DAYS if days is None else days, limit or _DEFAULT_LIMIT
    rows = plan_rows(reader, name, group=group, days=days)
    without = groups_without_plan(reader, name, group=group)
    if not rows and not without:
        raise NotFoundError(_nothing(reader, name, group, days))
    if as_json:
        print_json({"cluster": name, "plans": rows[:limit], "without_plan": without[:limit]})
        return
    if rows:
        console().print(plan_table(f"Plans of {name}", rows[:limit], caption=_left(len(rows), limit)))
    if without:
        shown = Table(
            f"Groups without a plan, slot {moment(without[0]['slot'])}",
            ("group", "mode", "why"),
            optional=("mode",),
            caption=_left(len(without), limit),
        )
        for row in without[:limit]:
            shown.add_row(row["group_id"], row["policy_mode"], row["reason"])
        console().print(shown)


def _left(found: int, limit: int) -> str:
    return f"{found - limit} more: --limit {found}" if found > limit else ""


def the_plan(reader: LakeReader, cluster: str, prefix: str) -> dict[str, Any]:
    """Find the only plan whose id begins with a prefix."""
    found = plan_rows(reader, cluster, plan_prefix=prefix.lower())
    if not found:
        raise NotFoundError(f"there is no plan {prefix} on {cluster}: evenlag plans lists them")
    if len(found) > 1:
        raise UsageError(f"{len(found)} plans begin with {prefix}: give more characters")
    return found[0]


def _nothing(reader: LakeReader, cluster: str, group: str | None, days: int) -> str:
    from evenlag.lake.tables import PLANS

    if group is None:
        return f"there are no plans on {cluster} in the last {days} days"
    # The names of the newest day with plans are enough to find a spelling mistake.
    of_cluster: list[Filter] = [("cluster", "=", cluster)]
    names = reader.read_newest(PLANS, "day", columns=["group_id"], filters=of_cluster)
    known = set(names["group_id"].to_pylist())
    return f"there are no plans for the group {group!r} on {cluster}{did_you_mean(group, known - {group})}"


def _show_plan(
    reader: LakeReader, plan: dict[str, Any], seal: tuple[bool | None, str], *, as_json: bool
) -> None:
    from evenlag.enums import GroupType
    from evenlag.lake.tables import GATE_RESULTS, OUTCOMES, PLAN_ASSIGNMENTS, PLAN_EVALUATIONS

    # The outcome is based on a later snapshot, possibly of another day.
    wanted: list[Filter] = [
        ("cluster", "=", plan["cluster"]),
        ("day", ">=", plan["day"]),
        ("plan_id", "=", plan["plan_id"]),
    ]
    events = sorted(reader.read_events(filters=wanted).to_pylist(), key=event_order)
    gates = reader.read(
        GATE_RESULTS, columns=[name for name in GATE_RESULTS.column_names if name != "seal"], filters=wanted
    ).to_pylist()
    rows = reader.read(PLAN_ASSIGNMENTS, filters=[*wanted, ("day", "=", plan["day"])])
    moves = (
        rows.filter(rows["moved"]).sort_by([("topic", "ascending"), ("partition", "ascending")]).to_pylist()
    )
    outcome = next(iter(reader.read(OUTCOMES, filters=wanted).to_pylist()), None)
    score = next(iter(reader.read(PLAN_EVALUATIONS, filters=wanted).to_pylist()), None)
    if as_json:
        answer = {"plan": plan, "events": events, "gates": gates, "moves": moves, "outcome": outcome}
        print_json(answer | {"score": score, "verified": seal[0], "verified_reason": seal[1]})
        return
    out = console()
    out.print(plan_table(f"Plan {plan['plan_id']}", [plan]))
    mark = {True: "Verified", False: "NOT AS SEALED, do not approve it", None: "Not verified"}[seal[0]]
    out.print(f"{mark}: {seal[1]}.", highlight=False, markup=False)
    out.print(measures_table(plan, outcome))
    if plan["group_type"] == GroupType.CONSUMER:
        out.print("The group speaks the consumer protocol (KIP-848): its brokers assign.", highlight=False)
    if plan["mode_reason"]:
        out.print(f"Planned in {plan['mode']}: {plan['mode_reason']}.", highlight=False)
    if score is not None:
        verdict = {True: "It paid off", False: "It did not pay off", None: "Whether it paid off is open"}
        out.print(f"{verdict[score['paid_off']]}: {score['reason']}.", highlight=False)
    history = Table("What happened", ("event", "at", "who", "why"), keys=("event",))
    for event in events:
        history.add_row(
            status_text(event["event"]), moment(event["at"]), answered_by(event), event["reason"] or ""
        )
    out.print(history)
    verdicts = Table(
        "Gates",
        ("gate", "passed", "observed", "allowed", "verdict"),
        keys=("gate",),
        right=("observed", "allowed"),
        optional=("observed", "allowed"),
    )
    for gate in gates:
        verdicts.add_row(
            gate["gate"],
            "yes" if gate["passed"] else "NO",
            *gate_values(gate["observed"], gate["allowed"]),
            gate["message"],
        )
    out.print(verdicts)
    members = read_group_members(reader, plan["cluster"], plan["snapshot_id"], plan["group_id"])
    out.print(move_table(moves, client_names(members)))
