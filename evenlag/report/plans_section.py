"""Section of the report on plans, gates and decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.enums import PlanEvent
from evenlag.formatting import at_least_of, number
from evenlag.html.markup import Html, badge, details, table, when
from evenlag.report.sections import MAX_ROWS, left_out, note
from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from evenlag.report.model import GateSummary, Report

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
    """Build the section on plans, gates and decisions."""
    parts: list[str] = []
    if report.plans:
        parts += ["<h3>Plans</h3>", _plan_table(report.plans), left_out(report.plans)]
    else:
        parts.append(note("No plan was proposed in the period."))
    if report.gates:
        parts += ["<h3>Gates</h3>", _gates(report.gates)]
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


def _gates(gates: Sequence[GateSummary]) -> Html:
    """Gates that refused a plan as a table, the others below it, folded."""
    refused = [gate for gate in gates if gate.num_failed]
    passed = [gate for gate in gates if not gate.num_failed]
    shown = "" if refused else "<p>Every gate passed every plan.</p>"
    if refused:
        columns = ("gate", "judged#", "refused#", "last refusal")
        rows = [
            (
                gate.gate,
                number(gate.num_judged),
                badge(number(gate.num_failed), "warn"),
                gate.last_refusal or "",
            )
            for gate in refused
        ]
        shown = table(columns, rows, caption="Gates that refused plans")
    if not passed:
        return Html(shown)
    judged = [(gate.gate, number(gate.num_judged)) for gate in passed]
    gate_table = table(("gate", "judged#"), judged, caption="Gates that passed every plan")
    noun = "gate" if len(passed) == 1 else "gates"
    return Html(shown + details(f"{len(passed):,} {noun} passed every plan", gate_table))


def _plan_table(plans: Sequence[Mapping[str, Any]]) -> Html:
    columns = (
        "plan", "slot", "status", "assignor", "mode", "moves#", "most loaded#", "predicted#", "actual#",
        "why",
    )  # fmt: skip
    rows = [
        (
            Html(f"<code>{page_text(plan['plan_id'][:12])}</code>"),
            when(plan["slot"]),
            badge(plan["status"] or "-", _KIND_BY_STATUS.get(plan["status"] or "", "plain")),
            Html(f'<span class="whole">{page_text(plan["assignor"])}</span>'),
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
