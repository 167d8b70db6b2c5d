"""Every kind of page that evenlag writes, with given names in all places that a name can have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.lag.group_lag import GroupLag
from evenlag.policy.gates import Entry
from evenlag.publishing.approval_page import build_page
from evenlag.publishing.sealing.verified_plans import VerifiedPlan
from evenlag.quality.data_docs import PlanResults, Run, render_pages
from evenlag.queries.lag import group_row
from evenlag.report.model import (
    DecisionSummary,
    GateSummary,
    Interval,
    LagChange,
    Mark,
    MemberLag,
    Report,
    Series,
    Timeline,
    Verdict,
    VerdictKind,
)
from evenlag.report.page import report_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_AT: Final = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_LATER: Final = _AT + timedelta(minutes=5)


_OF_PARTITION = (
    "committed_offset", "end_offset", "lag_records", "lag_bound", "first_lag_records",
    "arrival_rate_records_per_s", "consume_rate_records_per_s", "time_lag_ms", "time_lag_at_least_ms",
)  # fmt: skip


def report_html(names: Sequence[str]) -> str:
    """Return the page of a report, as Airflow shows it: with links to other groups and clusters."""
    turn = _turn(names)
    members = tuple(MemberLag(name, 900, 500, 400) for name in names)
    partitions = tuple(dict.fromkeys(f"{name}-{number}" for number, name in enumerate(names[:12])))
    owners = tuple(dict.fromkeys(names[:12]))
    intervals = tuple(
        Interval(name, next(turn) if number % 4 else None, "" if number % 4 else next(turn), _AT, _LATER)
        for number, name in enumerate(partitions)
    )
    owners = tuple(dict.fromkeys([*owners, *(each.owner for each in intervals if each.owner is not None)]))
    marks = (Mark(_AT, "rebalance", next(turn)), Mark(_LATER, "hint", next(turn), "published"))
    lag = (_AT, _LATER), (9, 5), (4, 3)
    group = next(turn)
    made = Report(
        cluster=next(turn),
        group_id=group,
        since=_AT,
        until=_LATER,
        finished_at=_LATER,
        num_snapshots=2,
        now=_group(group) | {"num_unknown_partitions": 2, "unknown": {next(turn): 2}},
        groups=[_group(name) for name in names],
        verdict=Verdict(VerdictKind.WARN, next(turn), next(turn), next(turn)),
        change=LagChange(members, _AT, "a" * 64, next(turn), 3, _LATER),
        partitions=[
            dict.fromkeys(_OF_PARTITION)
            | {"topic": name, "partition": 3, "owner": next(turn), "host": next(turn), "status": next(turn)}
            for name in names
        ],
        timeline=Timeline(partitions, owners, intervals, marks),
        observed=Series(next(turn), *lag, (0, 1), ((next(turn), 1, 1),)),
        replayed=tuple(Series(next(turn), *lag) for _ in range(3)),
        policies=tuple(
            {
                "policy": next(turn),
                "is_best": number == 0,
                "group_days": 1,
                "mean_lag_records": 1.0,
                "max_lag_records": 2,
                "peak_member_lag_records": 2,
                "least_peak_member_lag_records": 1,
                "most_peak_member_lag_records": 3,
                "waiting_p95_ms": 2.0,
                "waiting_p99_ms": 3.0,
                "above_30s": 0.5,
                "max_time_lag_ms": 4,
                "drain_time_ms": None,
                "not_drained": 0,
                "moves": 1,
                "rebalances": 1,
                "optimality_gap": None,
                "unknown_ages": 0,
                "unknown_partitions": 0,
            }
            for number in range(3)
        ),
        reasons=tuple(next(turn) for _ in range(3)),
        plans=[_plan_row(turn) for _ in names[:20]],
        gates=tuple(GateSummary(next(turn), 3, 1, next(turn)) for _ in range(5)),
        decisions=tuple(DecisionSummary(next(turn), 3, _AT, next(turn)) for _ in range(5)),
    )
    clusters = dict.fromkeys(names[:5], "?cluster=a")
    return report_page(made, link_of=lambda group_id: f"?group={group_id}", clusters=clusters)


def _plan_row(turn: Iterator[str]) -> dict[str, Any]:
    return {
        "plan_id": "b" * 64,
        "slot": _AT,
        "assignor": next(turn),
        "mode": next(turn),
        "status": next(turn),
        "moves": 3,
        "num_partitions": 8,
        "num_partitions_actual": 8,
        "num_unknown_lags": 0,
        "num_unknown_partitions_actual": 0,
        "max_member_lag_before_records": 900,
        "max_member_lag_predicted_records": 500,
        "max_member_lag_actual_records": 400,
        "across_racks_before": 0.25,
        "across_racks_after": 0.5,
        "adherence": 1.0,
        "reason": next(turn),
        "decided_by": next(turn),
        "paid_off": True,
        "score_reason": next(turn),
    }


def docs_html(names: Sequence[str]) -> dict[str, str]:
    """Return the Data Docs of one run, by path; each name is a group, and another the message of its plan."""
    turn = _turn(names)
    gate = Entry(next(turn), fails_when=next(turn), observed=next(turn), message="")
    check = Entry(next(turn), next(turn), fails_when=next(turn), observed=next(turn), message="")
    plans = [
        PlanResults(next(turn), name, {gate.name: _result(turn, passed=number % 2 == 0)})
        for number, name in enumerate(names)
    ]
    judged = {check.name: _result(turn, passed=False)}
    run = Run(next(turn), _AT, plans, len(plans), judged)
    return render_pages(next(turn), [run], {"gates": [gate], next(turn): [check]}, _LATER)


def _result(turn: Iterator[str], *, passed: bool) -> dict[str, Any]:
    values = {name: next(turn) for name in ("observed", "allowed", "message")}
    return {"passed": passed, **values}


def approval_markdown(names: Sequence[str]) -> tuple[str, str]:
    """Return subject and body of an approval; topics, members and static members have the names."""
    import pyarrow as pa

    turn = _turn(names)
    rows = [
        {
            "topic": next(turn),
            "partition": number,
            "owner_before": next(turn),
            "owner_after": name,
            "owner_after_key": f"i:{next(turn)}" if number % 2 else f"m:{name}",
            "moved": True,
            "lag_records": number,
        }
        for number, name in enumerate(names)
    ]
    metrics = {
        "min_member_partitions": 1,
        "max_member_partitions": 2,
        "max_member_lag_records": 9,
        "lag_skew": 1.5,
    }
    head = {
        "plan_id": "ab" * 32,
        "group_id": next(turn),
        "cluster": next(turn),
        "slot": _AT,
        "assignor": next(turn),
        "moves": len(rows),
        "num_members": 3,
        "num_partitions": len(rows),
        "num_stalled_partitions": 0,
        "metrics_before": metrics,
        "metrics_after": metrics,
    }
    plan = VerifiedPlan(head, pa.Table.from_pylist(rows), {}, (), (), None, ())
    built = build_page(plan, answer_by=_LATER)
    return built.subject, built.body


def _group(name: str) -> dict[str, Any]:
    lag = GroupLag(num_partitions=8, total_lag_records=1_000, max_member_lag_records=900)
    return group_row(name, 3, lag, {}) | {"unknown": {}}


def _turn(names: Sequence[str]) -> Iterator[str]:
    """Return the names again and again, from the last one on."""
    while True:
        yield from reversed(names)
