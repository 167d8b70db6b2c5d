"""`evenlag plans`: plans with their gates and outcomes; manual approval, recorded like one in Airflow.

`approve` and `reject` record the answer themselves, as the account that runs them, or send it to Airflow by a
user's token. What they may do is the policy's choice (``command_approvals``).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from evenlag.cli.cluster_target import Target, find_target
from evenlag.cli.console import console, print_json, status_text
from evenlag.cli.grammar import SHOW, ShowByDefault
from evenlag.cli.layout import GROUP, PARTITION, SHORT_ID, TOPIC, Column, Table, key, numbers
from evenlag.cli.option_types import MAX_DAYS, MAX_ROWS, argument, flag, option, whole
from evenlag.cli.option_types import moment as moment_type
from evenlag.cli.option_types import plan_id as plan_id_type
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption, LakeScope, ReasonOption
from evenlag.context import find_policy, newest_snapshot
from evenlag.enums import CommandApprovals, GroupType, PlanEvent
from evenlag.errors import JobError, NotFoundError, UsageError
from evenlag.formatting import (
    answered_by,
    at_least,
    at_least_of,
    did_you_mean,
    duration,
    exact_of,
    moment,
    number,
    percent,
    speed_text,
)
from evenlag.lake.filters import Filter, matching
from evenlag.lake.tables import GATE_RESULTS, OUTCOMES, PLAN_ASSIGNMENTS, PLAN_EVALUATIONS, PLANS
from evenlag.queries.lag import client_names, read_group_members, read_speeds
from evenlag.queries.plan_rows import event_order, groups_without_plan, plan_rows

if TYPE_CHECKING:
    from evenlag.airflow_rest import AirflowRest
    from evenlag.lake.reader import LakeReader
    from evenlag.publishing.answers.actors import Actor
    from evenlag.publishing.publish import PublishReport

PlanArgument = Annotated[str, argument("PLAN", "The plan id, or its first characters.", plan_id_type)]
_DEFAULT_DAYS = 7
_DEFAULT_LIMIT = 20
_THOUSAND = 1_000

app = typer.Typer(
    cls=ShowByDefault,
    help="Show plans with their status and reasons; approve or reject a plan that waits for approval. "
    "Without a subcommand: show [PLAN].",
)


@app.command(SHOW)
def plans(
    plan_id: Annotated[
        str | None, argument("PLAN", "A plan id, or its first characters.", plan_id_type)
    ] = None,
    *,
    group: Annotated[str | None, option("--group -g", "GROUP", "Plans of this group only.")] = None,
    days: Annotated[
        int | None,
        option("--days", "N", f"Number of days to look back; default {_DEFAULT_DAYS}.", whole(0, MAX_DAYS)),
    ] = None,
    since: Annotated[
        datetime | None, option("--since", "MOMENT", "Plans of cycles from this moment on.", moment_type)
    ] = None,
    status: Annotated[
        PlanEvent | None, typer.Option("--status", help="Plans with this status only.", case_sensitive=False)
    ] = None,
    limit: Annotated[
        int | None,
        option("--limit", "N", f"Number of plans to show; default {_DEFAULT_LIMIT}.", whole(1, MAX_ROWS)),
    ] = None,
    scope: LakeScope,
    as_json: JsonOption = False,
) -> None:
    """Show plans with their status and reasons, newest first; one plan with its gates and moves."""
    reader, name = scope.open()
    if plan_id is not None:
        if (days, since, status, limit) != (None, None, None, None):
            raise UsageError(
                "--days, --since, --status and --limit go with the list of plans, not with one PLAN"
            )
        found = _the_plan(reader, name, plan_id)
        if group not in {None, found["group_id"]}:
            raise NotFoundError(
                f"plan {found['plan_id'][:SHORT_ID]} belongs to the group {found['group_id']!r}, "
                f"not {group!r}"
            )
        from evenlag.publishing.sealing.verified_plans import seal_state

        # Without --config, a lake that is named need not be that of the policy in the current folder.
        policy = find_policy(scope.config) if scope.lake is None or scope.config is not None else None
        _show_plan(reader, found, seal_state(policy, reader, found), as_json=as_json)
        return
    if days is not None and since is not None:
        raise UsageError("give --days or --since, not both")
    limit = limit or _DEFAULT_LIMIT
    if since is None:
        days = _DEFAULT_DAYS if days is None else days
        first = newest_snapshot(reader, name)["day"] - timedelta(days=days)
    else:
        first = since.date()
    rows = plan_rows(reader, name, group=group, between=(first, date.max))
    rows = [
        row
        for row in rows
        if (since is None or row["slot"] >= since) and (status is None or row["status"] == status)
    ]
    without = groups_without_plan(reader, name, group=group) if status is None else []
    if not rows and not without:
        raise NotFoundError(_nothing(reader, name, group, days, status))
    if as_json:
        print_json({"cluster": name, "plans": rows[:limit], "without_plan": without[:limit]})
        return
    if rows:
        console().print(plan_table(f"Plans of {name}", rows, limit=limit))
    if without:
        title = f"Groups without a plan, slot {moment(without[0]['slot'])}"
        console().print(Table(title, _NO_PLAN_COLUMNS, without, optional=("mode",), limit=limit))


def _the_plan(reader: LakeReader, cluster: str, prefix: str) -> dict[str, Any]:
    """Find the only plan whose id begins with a prefix."""
    found = plan_rows(reader, cluster, plan_prefix=prefix.lower())
    if not found:
        raise NotFoundError(f"there is no plan {prefix} on {cluster}: evenlag plans lists them")
    if len(found) > 1:
        raise UsageError(f"{len(found)} plans begin with {prefix}: give more characters")
    return found[0]


def _nothing(
    reader: LakeReader, cluster: str, group: str | None, days: int | None, status: PlanEvent | None
) -> str:
    if group is None or status is not None:
        period = "since then" if days is None else f"in the last {days} days"
        what = "plans" if status is None else f"plans with the status {status}"
        return f"there are no {what} on {cluster} {period}"
    # The names of the newest day with plans are enough to find a spelling mistake.
    names = reader.read_newest(PLANS, "day", columns=["group_id"], filters=matching(cluster=cluster))
    known = set(names["group_id"].to_pylist())
    return f"there are no plans for the group {group!r} on {cluster}{did_you_mean(group, known - {group})}"


def _of_plan(plan: Mapping[str, Any]) -> list[Filter]:
    # The outcome is based on a later snapshot, possibly of another day.
    return matching(cluster=plan["cluster"], plan_id=plan["plan_id"], since=plan["day"])


def _show_plan(
    reader: LakeReader, plan: dict[str, Any], seal: tuple[bool | None, str], *, as_json: bool
) -> None:
    wanted = _of_plan(plan)
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
    out.print(f"{mark}: {seal[1]}.")
    out.print(_measures_table(plan, outcome))
    if plan["expected"]:
        out.print(_expected_table(plan, outcome, score))
    if plan["group_type"] == GroupType.CONSUMER:
        out.print("The group speaks the consumer protocol (KIP-848): its brokers assign.")
    if plan["mode_reason"]:
        out.print(f"Planned in {plan['mode']}: {plan['mode_reason']}.")
    if score is not None:
        verdict = {True: "It paid off", False: "It did not pay off", None: "Whether it paid off is open"}
        out.print(f"{verdict[score['paid_off']]}: {score['reason']}.")
    out.print(Table("What happened", _EVENT_COLUMNS, events))
    optional = ("observed", "allowed")
    out.print(Table("Gates", _GATE_COLUMNS, gates, optional=optional))
    members = read_group_members(reader, plan["cluster"], plan["snapshot_id"], plan["group_id"])
    clients = client_names(members)
    found = read_speeds(reader, plan["cluster"], plan["snapshot_id"], plan["group_id"])
    speeds = sorted(found.get(plan["group_id"], {}).values(), key=lambda member: str(member["member_id"]))
    if speeds:
        out.print(_speed_table(plan, speeds, clients))
    out.print(_move_table(moves, clients))


_ACTOR_HELP = "Your name, if several people use this account; recorded beside the account."
_AIRFLOW_HELP = (
    "Decide through this Airflow, with the token in EVENLAG_AIRFLOW_TOKEN or in the file that "
    "EVENLAG_AIRFLOW_TOKEN_FILE names; else $EVENLAG_AIRFLOW_URL."
)


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """Why a plan is approved or rejected, by whom, and where that is recorded."""

    reason: ReasonOption
    actor: Annotated[str | None, option("--actor", "NAME", _ACTOR_HELP)] = None
    airflow_url: Annotated[str | None, option("--airflow-url", "URL", _AIRFLOW_HELP)] = None
    config: ConfigOption = None
    cluster: ClusterOption = None
    as_json: JsonOption = False


@app.command("approve")
def approve(
    plan: PlanArgument,
    *,
    publish: Annotated[
        bool, flag("--publish/--no-publish", "Publish immediately (default), or in the next cycle.")
    ] = True,
    answer: _Answer,
) -> None:
    """Approve a plan that waits for approval, and publish it if its group has not changed since."""
    from evenlag.publishing.publish import publish_hints
    from evenlag.publishing.writing.blind_writes import try_again_when_fenced

    target = find_target(None, answer.config, answer.cluster)
    access = _airflow(target, answer)
    if access is not None:
        if not publish:
            raise UsageError("--no-publish has no effect here: in Airflow, the run of the plan publishes it")
        recorded = _answer_in_airflow(target, access, plan, answer, PlanEvent.APPROVED)
        _print_answer(recorded, as_json=answer.as_json)
        return
    head, recorded = _record(target, plan, answer, PlanEvent.APPROVED)
    if not publish:
        _print_answer(recorded | {"published": False}, as_json=answer.as_json)
        return
    only, run_id = {head["plan_id"]}, recorded["run_id"]
    try:
        report = try_again_when_fenced(
            lambda: publish_hints(
                target.loaded, target.name, head["slot"], run_id, actor="command", only=only
            )
        )
    except JobError as error:
        error.args = (f"the plan is approved, but not published yet (the next cycle tries again): {error}",)
        raise
    _print_answer(recorded | _published(target, head, report), as_json=answer.as_json)


@app.command("reject")
def reject(plan: PlanArgument, *, answer: _Answer) -> None:
    """Reject a plan that waits for approval; needs the lake, but not Kafka."""
    target = find_target(None, answer.config, answer.cluster)
    access = _airflow(target, answer)
    if access is None:
        _, recorded = _record(target, plan, answer, PlanEvent.REJECTED)
    else:
        recorded = _answer_in_airflow(target, access, plan, answer, PlanEvent.REJECTED)
    _print_answer(recorded, as_json=answer.as_json)


def _airflow(target: Target, answer: _Answer) -> AirflowRest | None:
    """Return the Airflow to answer through, None to record it here; check what the policy allows."""
    from evenlag.publishing.answers.actors import NotAnApproverError, channel_rule
    from evenlag.publishing.answers.airflow_request import find_access

    rule = target.settings.command_approvals
    if rule is CommandApprovals.REFUSE:
        raise NotAnApproverError(
            f"{channel_rule(target.name, rule)}: answer on Airflow's page, under Required Actions"
        )
    access = find_access(answer.airflow_url)
    if access is None and rule is CommandApprovals.AIRFLOW:
        raise NotAnApproverError(
            f"{channel_rule(target.name, rule)}: give --airflow-url, and your token in EVENLAG_AIRFLOW_TOKEN"
        )
    if access is not None and answer.actor is not None:
        raise UsageError("--actor has no effect with Airflow: its token names the user")
    return access


def _answer_in_airflow(
    target: Target, access: AirflowRest, prefix: str, answer: _Answer, status: PlanEvent
) -> dict[str, Any]:
    from evenlag.lake.reader import LakeReader
    from evenlag.publishing.answers.airflow_request import answer_request
    from evenlag.publishing.approvals import check_waiting, read_plan

    plan_id = _the_plan(LakeReader(target.loaded.policy.lake), target.name, prefix)["plan_id"]
    # Whoever answers needs no key: Airflow checks the user, and its task the plan.
    found = read_plan(target.loaded, target.name, plan_id, datetime.now(UTC), is_sealed=False)
    check_waiting(target.loaded, found)
    request = found.request
    if request is None:
        raise NotFoundError(
            f"Airflow was not asked about plan {plan_id[:SHORT_ID]}: see the DAG lag_rebalance of "
            f"{target.name}, tasks find_waiting and ask"
        )
    is_approved = status == PlanEvent.APPROVED
    actor = answer_request(access, request, approve=is_approved, reason=answer.reason)
    return _recorded(found.head, actor, answer, status, request["run_id"]) | {"airflow": access.url}


def _record(
    target: Target, prefix: str, answer: _Answer, status: PlanEvent
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record the answer of this account; return the row of the plan, and the answer to print."""
    from evenlag.lake.reader import LakeReader
    from evenlag.publishing import approvals
    from evenlag.publishing.answers.actors import Actor

    found = _the_plan(LakeReader(target.loaded.policy.lake), target.name, prefix)
    now = datetime.now(UTC)
    actor = Actor.of_command(answer.actor)
    run_id = f"command__{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    head = approvals.record_answer(
        target.loaded,
        target.name,
        found["plan_id"],
        approve=status == PlanEvent.APPROVED,
        actor=actor,
        reason=answer.reason,
        run_id=run_id,
        now=now,
    )
    return head, _recorded(head, actor, answer, status, run_id)


def _recorded(
    plan: Mapping[str, Any], actor: Actor, answer: _Answer, status: PlanEvent, run_id: str
) -> dict[str, Any]:
    head = {name: plan[name] for name in ("cluster", "plan_id", "group_id")}
    return {**head, "status": status.value, **actor.columns(), "reason": answer.reason, "run_id": run_id}


def _published(target: Target, head: dict[str, Any], report: PublishReport) -> dict[str, Any]:
    """Return the result of publishing the plan, by this command or by another run that was first."""
    from evenlag.lake.reader import LakeReader

    if report.held:
        return {"published": False, "sequence": None, "held": report.held[0][2]}
    events = LakeReader(target.loaded.policy.lake).read_events(filters=_of_plan(head)).to_pylist()
    newest = {event["event"]: event for event in events}
    if PlanEvent.PUBLISHED in newest:
        sequence = newest[PlanEvent.PUBLISHED]["sequence"]
        missing = next((reason for *_, reason in report.not_taken_up), None)
        return {"published": True, "sequence": sequence, "held": None, "not_taken_up": missing}
    ended = newest.get(PlanEvent.EXPIRED) or newest.get(PlanEvent.WITHDRAWN) or {}
    raise JobError(
        f"the plan is approved, but will not be published: {ended.get('reason')}. Later cycles plan again"
    )


def _print_answer(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    line = f"{answer['group_id']}: plan {answer['plan_id'][:SHORT_ID]} is {answer['status']}"
    if "airflow" in answer:
        what = "and publishes it" if answer["status"] == PlanEvent.APPROVED else "with the reason"
        line += f" by {answered_by(answer)}; the run {answer['run_id']} of Airflow records it {what}"
    elif answer.get("sequence") is not None:
        line += f" and published, sequence {answer['sequence']}"
        if answer.get("not_taken_up"):
            line += f"; the group has not taken it up so far: {answer['not_taken_up']}"
    elif answer.get("held"):
        line += f"; it waits to be published: {answer['held']}"
    elif "published" in answer:
        line += "; the next cycle publishes it"
    console().print(f"{line}.", soft_wrap=True)


def _lag_column(heading: str, lag: str, num_unknown: str) -> Column:
    return numbers(heading, lambda row: at_least(row[lag], row[num_unknown]))


_PLAN_COLUMNS: Final = (
    Column("plan", lambda row: row["plan_id"][:SHORT_ID]),
    Column("slot", lambda row: moment(row["slot"])),
    GROUP,
    Column("mode", lambda row: row["mode"]),
    Column("status", lambda row: status_text(row["status"])),
    numbers("moves", lambda row: number(row["moves"])),
    _lag_column("most loaded", "max_member_lag_before_records", "num_unknown_lags"),
    _lag_column("predicted", "max_member_lag_predicted_records", "num_unknown_lags"),
    _lag_column("actual", "max_member_lag_actual_records", "num_unknown_partitions_actual"),
    Column("why", lambda row: "; ".join(filter(None, (row["reason"], _decision(row), *_unknown_lags(row))))),
)
_NO_PLAN_COLUMNS: Final = (
    GROUP,
    Column("mode", lambda row: row["policy_mode"]),
    Column("why", lambda row: row["reason"]),
)
_EVENT_COLUMNS: Final = (
    key("event", lambda event: status_text(event["event"])),
    Column("at", lambda event: moment(event["at"])),
    Column("who", answered_by),
    Column("why", lambda event: event["reason"] or ""),
)
_GATE_COLUMNS: Final = (
    key("gate", lambda gate: gate["gate"]),
    Column("passed", lambda gate: "yes" if gate["passed"] else "NO"),
    numbers("observed", lambda gate: gate_values(gate["observed"], gate["allowed"])[0]),
    numbers("allowed", lambda gate: gate_values(gate["observed"], gate["allowed"])[1]),
    Column("verdict", lambda gate: gate["message"]),
)


def plan_table(title: str, rows: Iterable[dict[str, Any]], *, limit: int | None = None) -> Table:
    """Build the table of plans."""
    optional = ("mode", "slot", "moves", "why", "predicted", "actual", "most loaded")
    return Table(title, _PLAN_COLUMNS, rows, optional=optional, limit=limit)


def _speed_table(plan: dict[str, Any], speeds: list[dict[str, Any]], clients: dict[str, str]) -> Table:
    """Build the table of the members' measured speeds in a plan's snapshot."""
    columns = (
        Column("member", lambda member: member["member_id"]),
        Column("client", lambda member: clients.get(member["member_id"], "")),
        numbers("speed/s", lambda member: speed_text(member["speed_records_per_s"], member["is_bound"])),
        numbers("confidence", lambda member: f"{member['confidence'] or 0:.0%}"),
    )
    title = "Speeds that it was planned by" if plan["capacities"] else "Speeds"
    return Table(title, columns, speeds, optional=("client", "confidence"))


def _move_table(moves: Iterable[dict[str, Any]], clients: dict[str, str]) -> Table:
    """Build the table of a plan's moves; `clients` are instance ids or client ids by member id."""
    columns = (
        TOPIC,
        PARTITION,
        numbers("lag", lambda move: number(move["lag_records"])),
        key("from", lambda move: move["owner_before"] or "nobody"),
        Column("client", lambda move: clients.get(move["owner_before"] or "", "")),
        key("to", lambda move: move["owner_after"] or "nobody"),
        Column("its client", lambda move: clients.get(move["owner_after"] or "", "")),
    )
    return Table("Moves", columns, moves, optional=("its client", "client"))


def _measures_table(plan: dict[str, Any], outcome: dict[str, Any] | None) -> Table:
    shown = Table("Lag", (key("metric"), *map(numbers, ("before", "predicted", "actual"))))
    before, after, seen = plan["metrics_before"], plan["metrics_after"], outcome or {}
    planned = plan["num_unknown_lags"], plan["num_partitions"]
    actual = seen.get("num_unknown_partitions"), seen.get("num_partitions")
    shown.add_row(
        "most loaded member",
        *(at_least_of(metrics.get("max_member_lag_records"), *planned) for metrics in (before, after)),
        at_least_of(seen.get("max_member_lag_actual_records"), *actual),
    )
    shown.add_row(
        "skew (most loaded / mean)",
        *(exact_of(metrics.get("lag_skew"), *planned, digits=2) for metrics in (before, after)),
        exact_of(seen.get("lag_skew_actual"), *actual, digits=2),
    )
    if outcome is not None:
        total = at_least_of(outcome["total_lag_before_records"], *planned)
        shown.add_row("the group's lag", total, "", at_least_of(outcome["total_lag_actual_records"], *actual))
    shown.add_row("partitions per member", _range(before), _range(after), "")
    if plan["across_racks_before"] is not None:
        shares = (percent(plan[f"across_racks_{when}"]) for when in ("before", "after"))
        shown.add_row("load across racks", *shares, "")
    gain = "gain, by the known load" if plan["num_unknown_partitions"] else "gain"
    shown.add_row(gain, "", percent(plan["gain"]), "")
    shown.add_row("adherence", "", "", percent(seen.get("adherence")))
    return shown


def _expected_table(
    plan: dict[str, Any], outcome: dict[str, Any] | None, score: dict[str, Any] | None
) -> Table:
    """Build the table of a plan's predictions, with their intervals of 90 %, and of how they came true."""
    scored = [
        {each["measure"]: each for each in (row or {}).get("expected") or ()} for row in (outcome, score)
    ]
    headings = ("in", "predicted", "from", "to", "actual", "held")
    shown = Table("Predictions", (key("prediction"), *map(numbers, headings)))
    for each in plan["expected"]:
        is_lag = each["measure"] == "total_lag_records"
        form = number if is_lag else duration
        found = scored[each["is_horizon"]].get(each["measure"], {})
        held = {True: "yes", False: "NO", None: ""}[found.get("held")]
        values = (
            form(value) for value in (each["predicted"], each["lower"], each["upper"], found.get("actual"))
        )
        shown.add_row("lag" if is_lag else "time behind", duration(1000 * each["ahead_s"]), *values, held)
    return shown


def _decision(row: dict[str, Any]) -> str:
    return f"decided by {row['decided_by']}" if row["decided_by"] else ""


def _unknown_lags(row: dict[str, Any]) -> list[str]:
    counts = (
        ("when planned", row["num_unknown_lags"], row["num_partitions"]),
        ("actual", row["num_unknown_partitions_actual"], row["num_partitions_actual"]),
    )
    return [
        f"{when}, the lag of {number(unknown)} of {number(of)} partitions is not known"
        for when, unknown, of in counts
        if unknown
    ]


def _range(metrics: dict[str, Any]) -> str:
    low, high = metrics.get("min_member_partitions"), metrics.get("max_member_partitions")
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def gate_values(observed: str | None, allowed: str | None) -> tuple[str, str]:
    """Return what a gate observed and allows, for reading: numbers with separators and four digits."""
    exact = (observed or "", allowed or "")
    short = (_readable(exact[0]), _readable(exact[1]))
    return exact if short[0] == short[1] and exact[0] != exact[1] else short


def _readable(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    if not isfinite(value):
        return text
    # Above a thousand, a fraction says nothing.
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= _THOUSAND else f"{value:.4g}"
