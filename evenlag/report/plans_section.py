"""Section of the report on plans, gates and decisions."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from evenlag.enums import PlanEvent
from evenlag.formatting import at_least_of, number
from evenlag.html.markup import Html, badge, table, when
from evenlag.report.sections import MAX_ROWS, left_out, note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from evenlag.report.model import Report

_KIND_BY_STATUS: Final[dict[str, str]] = {
    PlanEvent.APPLIED: "good",
    PlanEvent.APPROVED: "good",
    PlanEvent.PUBLISHED: "plain",
    PlanEvent.REJECTED: "warn",
    PlanEvent.IGNORED: "warn",
    PlanEvent.EXPIRED: "warn",
    PlanEvent.WITHDRAWN: "warn",
}


def plans_section(report: Report) -> Html:
    """Build the section on plans, gates and decisions.

    Parameters
    ----------
    report
        Content of the report.

    Returns
    -------
    Html
        The section without its heading.
    """
    parts: list[str] = []
    if report.plans:
        parts += ["<h3>Plans</h3>", _plan_table(report.plans), left_out(report.plans)]
    else:
        parts.append(note("No plan was proposed in the period."))
    if report.gates:
        gates = [
            (
                gate.gate,
                badge("passed", "good") if not gate.num_failed else badge("refused", "warn"),
                number(gate.num_judged),
                number(gate.num_failed),
                gate.last_refusal or "",
            )
            for gate in report.gates
        ]
        columns = ("gate", "verdict", "judged#", "refused#", "last refusal")
        parts += ["<h3>Gates</h3>", table(columns, gates, caption="Plans that each gate judged")]
    if report.decisions:
        decisions = [
            (each.decision, number(each.count), when(each.last_at), each.reason or "")
            for each in report.decisions
        ]
        heads = ("decision", "snapshots#", "last at", "last reason")
        parts += [
            "<h3>Decisions</h3>",
            table(heads, decisions, caption="Planning decisions by snapshot"),
        ]
    return Html("".join(parts))


def _plan_table(plans: Sequence[Mapping[str, Any]]) -> Html:
    columns = (
        "plan", "slot", "status", "assignor", "mode", "moves#", "most loaded#", "predicted#", "actual#",
        "why",
    )  # fmt: skip
    rows = [
        (
            Html(f"<code>{escape(plan['plan_id'][:12])}</code>"),
            when(plan["slot"]),
            badge(plan["status"] or "-", _KIND_BY_STATUS.get(plan["status"] or "", "plain")),
            Html(f'<span class="whole">{escape(plan["assignor"])}</span>'),
            plan["mode"],
            number(plan["moves"]),
            at_least_of(
                plan["max_member_lag_before_records"], plan["num_unknown_lags"], plan["num_partitions"]
            ),
            at_least_of(
                plan["max_member_lag_predicted_records"], plan["num_unknown_lags"], plan["num_partitions"]
            ),
            at_least_of(
                plan["max_member_lag_actual_records"],
                plan["num_unknown_partitions_actual"],
                plan["num_partitions_actual"],
            ),
            plan["reason"] or "",
        )
        for plan in plans[:MAX_ROWS]
    ]
    return table(columns, rows, caption="Plans, newest first; lag of the most loaded member in records")
