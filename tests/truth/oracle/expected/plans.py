"""`evenlag plans`: heads, events, gates, moves, outcomes and evaluations from the rows of each table."""

from __future__ import annotations

from datetime import timedelta
from decimal import Context, Decimal, InvalidOperation
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.expected.lag import at_least
from tests.truth.oracle.forms import moment, number, percent
from tests.truth.oracle.lake_rows import by, counted, known_sum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tests.truth.oracle.lake_rows import LakeRows, Row
    from tests.truth.oracle.session import Session

COMMAND: Final = "plans"
ONE: Final = "plans PLAN"
_NOT_SHOWN: Final = frozenset({"payload", "settings", "policy_hash", "assignments_hash", "seal"})
# A plan's lifecycle, by the description of events on the tables' page.
_ORDER: Final = (
    {"PROPOSED"},
    {"REJECTED", "APPROVED"},
    {"PUBLISHED"},
    {"APPLIED", "IGNORED", "EXPIRED"},
    {"WITHDRAWN"},
)
SHORT_ID: Final = 12
_WITHOUT_FRACTION: Final = 1_000


def check_plans(session: Session) -> None:
    """Compare the list of plans, with each filter option, and each plan."""
    rows = session.rows
    everything = plan_rows(rows)
    if not everything and not _groups_without_plan(rows, None):
        session.fails(COMMAND, exit_code=4)
        return
    _check_list(session, everything, ("--days", "10000"))
    newest_day = rows.newest["day"]
    for days in (0, 1, 7):
        wanted = [row for row in everything if row["day"] >= newest_day - timedelta(days=days)]
        if wanted:
            _check_list(session, wanted, ("--days", str(days)))
    for group_id in sorted({row["group_id"] for row in everything}):
        own = [row for row in everything if row["group_id"] == group_id]
        _check_list(session, own, ("--days", "10000", "--group", group_id), group_id)
    for plan in everything:
        _check_plan(session, plan)


def _check_list(
    session: Session, expected: Sequence[Row], arguments: Sequence[str], group_id: str | None = None
) -> None:
    without = _groups_without_plan(session.rows, group_id)
    shown = session.ask(COMMAND, *arguments, "--limit", "100000")
    if shown is None:
        return
    pairs = zip_longest(expected, shown["plans"])
    plans = [with_nulls(row, recorded or {}) for row, recorded in pairs if row is not None]
    wanted = {"cluster": session.rows.cluster, "plans": plans, "without_plan": without}
    session.same(COMMAND, " ".join(arguments), shown, wanted)
    if "--days" in arguments and "10000" not in arguments:
        return
    tables, _ = session.printed(COMMAND, *arguments)
    session.same(COMMAND, "tables", len(tables), bool(expected) + bool(without))
    if expected and tables:
        cells = [_plan_cells(row) for row in expected]
        session.same(COMMAND, f"printed {' '.join(arguments)}", tables[0].rows, cells)
    if without and tables:
        title = f"Groups without a plan, slot {moment(without[0]['slot'])}"
        session.same(COMMAND, "title of groups without a plan", tables[-1].title, title)
        cells = [[row["group_id"], row["policy_mode"], row["reason"] or ""] for row in without]
        session.same(COMMAND, "printed groups without a plan", tables[-1].rows, cells)


def with_nulls(row: Row, shown: Row) -> Row:
    """Return a row with nulls for columns that its table did not have when it was written."""
    return {name: None for name, value in shown.items() if value is None} | row


def plan_rows(rows: LakeRows) -> list[Row]:
    """Return all plans with their status and lag, newest first."""
    events = by(rows.events, "plan_id")
    found = [plan_row(rows, plan, events=events.get(plan["plan_id"], [])) for plan in rows.rows("plans")]
    return sorted(found, key=lambda row: (-row["slot"].timestamp(), row["group_id"]))


def rank(event: Row) -> int:
    """Return the position of an event in a plan's lifecycle."""
    return next(place for place, names in enumerate(_ORDER) if event["event"] in names)


def plan_row(
    rows: LakeRows,
    plan: Row,
    *,
    events: Sequence[Row],
    is_settled: bool = True,
    until: datetime | None = None,
) -> Row:
    """Return a plan with its status and lag, from its events."""
    head = {name: value for name, value in plan.items() if name not in _NOT_SHOWN}
    plan_id = plan["plan_id"]
    last = max(events, key=lambda event: (rank(event), event["at"]), default=None)
    outcome = (rows.one("outcomes", plan_id=plan_id) if is_settled else None) or {}
    status, reason = (last["event"], last["reason"]) if last else (None, None)
    answer_by = None
    requests = [
        row for row in rows.where("approval_requests", plan_id=plan_id) if until is None or row["at"] <= until
    ]
    if status == "PROPOSED" and requests:
        asked = [each for each in requests if each["state"] == "ASKED"]
        request = (asked or requests)[0]
        answer_by = request["answer_by"]
        reason = f"stays in shadow: {request['reason']}"
        if asked:
            reason = f"waits for a person, until {moment(answer_by)}"
    before, after = (plan[f"metrics_{when}"] or {} for when in ("before", "after"))
    return head | {
        "metrics_before": before,
        "metrics_after": after,
        "status": status,
        "reason": reason,
        "answer_by": answer_by,
        "max_member_lag_before_records": before.get("max_member_lag_records"),
        "max_member_lag_predicted_records": after.get("max_member_lag_records"),
        "max_member_lag_actual_records": outcome.get("max_member_lag_actual_records"),
        "num_partitions_actual": outcome.get("num_partitions"),
        "num_unknown_partitions_actual": outcome.get("num_unknown_partitions"),
        "adherence": outcome.get("adherence"),
    }


def _groups_without_plan(rows: LakeRows, group_id: str | None) -> list[Row]:
    decided = [row for row in rows.rows("decisions") if group_id in {None, row["group_id"]}]
    since = rows.newest["day"] - timedelta(days=1)
    recent = [row for row in rows.rows("decisions") if row["day"] >= since]
    if not recent:
        return []
    last = max(row["slot"] for row in recent)
    wanted = ("group_id", "policy_mode", "decision", "reason", "slot")
    found = [
        {name: row[name] for name in wanted}
        for row in decided
        if row["slot"] == last and row["decision"] in {"BREACH", "NOT_PLANNED", "FAILED"}
    ]
    return sorted(found, key=lambda row: str(row["group_id"]))


def _plan_cells(row: Row) -> list[str]:
    return [
        row["plan_id"][:SHORT_ID],
        moment(row["slot"]),
        row["group_id"],
        row["mode"],
        row["status"] or "-",
        number(row["moves"]),
        *lag_cells(row),
        _why(row),
    ]


def _why(row: Row) -> str:
    """The reason, then the number of partitions with unknown lag."""
    counts = {
        "when planned": (row["num_unknown_lags"], row["num_partitions"]),
        "actual": (row["num_unknown_partitions_actual"], row["num_partitions_actual"]),
    }
    unknown = [
        f"{when}, the lag of {number(count)} of {number(of_all)} partitions is not known"
        for when, (count, of_all) in counts.items()
        if count
    ]
    return "; ".join([row["reason"], *unknown] if row["reason"] else unknown)


def lag_cells(row: Row) -> list[str]:
    """Return the lag of the most loaded member: before, predicted, actual; lower bounds are marked."""
    unknown = (row["num_unknown_lags"], row["num_unknown_lags"], row["num_unknown_partitions_actual"])
    names = [f"max_member_lag_{when}_records" for when in ("before", "predicted", "actual")]
    return [at_least(number(row[name]), count) for name, count in zip(names, unknown, strict=True)]


def _lag_before(rows: LakeRows, plan: Row, member_ids: Sequence[str]) -> int | None:
    """Lag of the most loaded member before a plan: of what the members owned in its snapshot."""
    lag = counted(rows.lag_of(plan["snapshot_id"], plan["group_id"]))
    if known_sum(lag) is None:
        return None
    owned = by(lag, "owner_member_id")
    return max(known_sum(owned.get(member_id, ())) or 0 for member_id in member_ids)


def _check_plan(session: Session, plan: Row) -> None:
    rows, plan_id = session.rows, plan["plan_id"]
    events = sorted((e for e in rows.events if e["plan_id"] == plan_id), key=lambda e: (rank(e), e["at"]))
    judged = rows.where("gate_results", plan_id=plan_id)
    gates = [
        {name: value for name, value in row.items() if name not in _NOT_SHOWN}
        for row in sorted(judged, key=lambda row: row["gate"])
    ]
    assigned = [row for row in rows.assigned(plan) if row["moved"]]
    moves = [
        # Lakes that development versions wrote have one column more.
        {name: value for name, value in row.items() if name != "attempt_id"}
        for row in sorted(assigned, key=_place)
    ]
    outcome, score = rows.one("outcomes", plan_id=plan_id), rows.one("plan_evaluations", plan_id=plan_id)
    members = rows.where("members", snapshot_id=plan["snapshot_id"], group_id=plan["group_id"])
    clients = {row["member_id"]: row["group_instance_id"] or row["client_id"] or "" for row in members}
    shown = session.ask(COMMAND, plan_id)
    if shown is None:
        return
    lag_before = _lag_before(rows, plan, [row["member_id"] for row in members])
    session.checks.same(ONE, "lag before", plan["max_member_lag_before_records"], lag_before)
    numbers = [row["partition"] for row in shown["moves"]]
    session.checks.same(ONE, "moves are in order", numbers, sorted(numbers))
    shown["moves"] = sorted(shown["moves"], key=_place)
    shown["gates"] = sorted(shown["gates"], key=lambda row: row["gate"])
    pairs = zip_longest(events, shown["events"])
    whole = [with_nulls(row, recorded or {}) for row, recorded in pairs if row is not None]
    expected: Row = {"events": whole, "gates": gates, "moves": moves}
    for name, row in (("plan", plan), ("outcome", outcome), ("score", score)):
        expected[name] = with_nulls(row, shown[name] or {}) if row else None
    # No policy is given, so there is no key that could verify a seal.
    reason = "no policy of this lake and cluster is given: --config POLICY"
    expected |= {"verified": None, "verified_reason": reason}
    session.same(ONE, plan_id[:SHORT_ID], shown, expected)
    session.same(ONE, "number of moves", len(shown["moves"]), plan["moves"])
    tables, text = session.printed(COMMAND, plan_id, is_whole=True)
    by_title = {table.title: table for table in tables}
    for title, cells in (
        (f"Plan {plan_id}", [_plan_cells(plan)]),
        ("Lag", _measures(plan, outcome)),
        ("What happened", [[e["event"], moment(e["at"]), e["actor"], e["reason"] or ""] for e in events]),
        ("Gates", [_gate_cells(row) for row in gates]),
        ("Moves", [_move_cells(row, clients) for row in moves]),
    ):
        printed = by_title[title].rows if title in by_title else None
        is_list = title in {"Gates", "Moves"}
        shown_rows = sorted(printed) if printed is not None and is_list else printed
        session.same(ONE, f"printed {title}", shown_rows, sorted(cells) if is_list else cells)
    verdicts = {True: "It paid off", False: "It did not pay off", None: "Whether it paid off is open"}
    said = f"{verdicts[score['paid_off']]}: {score['reason']}." if score else ""
    session.same(ONE, "printed score", said in " ".join(text.split()) if said else True, True)


def _place(row: Row) -> tuple[Any, ...]:
    return (row["topic"], row["partition"])


def _gate_cells(row: Row) -> list[str]:
    passed = "yes" if row["passed"] else "NO"
    reported = [row["observed"] or "", row["allowed"] or ""]
    shown = [_rounded(text) for text in reported]
    return [
        row["gate"],
        passed,
        *(reported if len(set(shown)) < len(set(reported)) else shown),
        row["message"],
    ]


def _rounded(text: str) -> str:
    """Four digits of a number, and separators; a word as it is."""
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return text
    if not exact.is_finite():
        return text
    if exact == exact.to_integral_value() or abs(exact) >= _WITHOUT_FRACTION:
        return number(float(exact))
    return format(Context(prec=4).create_decimal(exact).normalize(), "f")


def _move_cells(row: Row, clients: Mapping[str, str]) -> list[str]:
    owners = [row["owner_before"] or "nobody", row["owner_after"] or "nobody"]
    named = [text for owner in owners for text in (owner, clients.get(owner, ""))]
    return [row["topic"], number(row["partition"]), number(row["lag_records"]), *named]


def _measures(plan: Row, outcome: Row | None) -> list[list[str]]:
    before, after, seen = plan["metrics_before"], plan["metrics_after"], outcome or {}
    planned = (plan["num_unknown_lags"], plan["num_partitions"])
    actual = (seen.get("num_unknown_partitions"), seen.get("num_partitions"))
    most = "max_member_lag_records"
    rows = [
        [
            "most loaded member",
            *(at_least_of(each.get(most), *planned) for each in (before, after)),
            at_least_of(seen.get("max_member_lag_actual_records"), *actual),
        ],
        [
            "skew (most loaded / mean)",
            *(_exact_of(each.get("lag_skew"), *planned) for each in (before, after)),
            _exact_of(seen.get("lag_skew_actual"), *actual),
        ],
    ]
    if outcome is not None:
        totals = (outcome["total_lag_before_records"], outcome["total_lag_actual_records"])
        rows.append(
            ["the group's lag", at_least_of(totals[0], *planned), "", at_least_of(totals[1], *actual)]
        )
    gain = "gain, by the known load" if plan["num_unknown_partitions"] else "gain"
    return [
        *rows,
        ["partitions per member", *(_range(each) for each in (before, after)), ""],
        [gain, "", percent(plan["gain"]), ""],
        ["adherence", "", "", percent(seen.get("adherence"))],
    ]


def at_least_of(value: float | None, unknown: int | None, of_all: int | None) -> str:
    """Return a number as text, with the number of unknown partitions."""
    if not unknown:
        return number(value)
    message = "-" if value is None else f"at least {number(value)}"
    return f"{message} ({_unknown_of(unknown, of_all)})"


def _exact_of(value: float | None, unknown: int | None, of_all: int | None) -> str:
    return f"- ({_unknown_of(unknown, of_all)})" if unknown else number(value, digits=2)


def _unknown_of(unknown: int, of_all: int | None) -> str:
    return f"{number(unknown)}{'' if of_all is None else f' of {number(of_all)}'} unknown"


def _range(metrics: Row) -> str:
    low, high = (metrics.get(f"{end}_member_partitions") for end in ("min", "max"))
    return number(low) if low == high else f"{number(low)} to {number(high)}"
