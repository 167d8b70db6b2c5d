"""The page that a user reads before approving a plan: its metrics, a chart of lag by member, and the moves.

The page is Markdown, as Airflow renders it. The chart is text: Airflow shows only images that it can fetch
from a URL, and a plan's numbers must not leave Airflow's page.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow.compute as pc

from evenlag.enums import GroupType
from evenlag.formatting import at_least, middle_cut, moment, number, percent
from evenlag.safe_text import markdown_text, printable

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.publishing.sealing.verified_plans import VerifiedPlan

_MAX_MEMBERS: Final = 20
_MAX_MOVES: Final = 30
_BAR_CELLS: Final = 24
_MAX_NAME: Final = 40
_MAX_LAG: Final = "max_member_lag_records"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


class ApprovalPage(NamedTuple):
    """An approval request, as a user reads it; the subject is one line of plain text."""

    subject: str
    body: str


def build_page(plan: VerifiedPlan, *, answer_by: datetime) -> ApprovalPage:
    """Build the page of a plan, which is rejected without an answer by the deadline."""
    head, rows = plan.head, plan.assignments
    subject = (
        f"{printable(head['group_id'])} on {printable(head['cluster'])}: move {head['moves']:,} of "
        f"{head['num_partitions']:,} partitions, most loaded member {_change(head)}"
    )
    names = _member_names(rows)
    parts = [
        "Approve to publish this plan to the group's consumers at once, if the group is still as planned.",
        f"**No answer until {moment(answer_by)} means no.**",
        _numbers(head),
        f"### Lag by member{_left_out(len(names), _MAX_MEMBERS, 'members, the most loaded')}",
        _picture(rows, names),
        f"### Moves{_left_out(head['moves'], _MAX_MOVES, 'moves, the largest lag')}",
        _moves(rows, names),
        f"All of it: `evenlag plans {markdown_text(head['plan_id'][:12])}`",
    ]
    return ApprovalPage(subject, "\n\n".join(parts))


def _numbers(head: Mapping[str, Any]) -> str:
    both = [head["metrics_before"] or {}, head["metrics_after"] or {}]
    num_unknown, num_stalled = _num_unknown(head), head.get("num_stalled_partitions")
    rows = [
        ("lag of the most loaded member", *(at_least(m.get(_MAX_LAG), num_unknown) for m in both)),
        # An unknown lag may increase or decrease the skew.
        (
            "skew (most loaded / mean)",
            *(number(None if num_unknown else m.get("lag_skew"), digits=2) for m in both),
        ),
        ("partitions per member", *(_range(m) for m in both)),
    ]
    across = head.get("across_racks_before"), head.get("across_racks_after")
    if None not in across:
        rows.append(("load across racks", *(percent(share) for share in across)))
    facts = [
        f"plan `{markdown_text(head['plan_id'][:12])}`, slot {moment(head['slot'])}",
        f"{head['num_members']:,} members, assignor {markdown_text(head['assignor'])}",
    ]
    if head.get("group_type") == GroupType.CONSUMER:
        facts.append(
            "consumer protocol (KIP-848): the brokers assign this group, and begin to as soon as it is "
            "published"
        )
    if head.get("capacities"):
        facts.append("planned by measured speeds: faster members get more lag, so the largest may rise")
    if num_stalled:
        facts.append(f"{num_stalled:,} partitions stand still: moving them may not help")
    if num_unknown:
        facts.append(
            f"the lag of {num_unknown:,} of {head['num_partitions']:,} partitions is not known: at least (≥) "
            "so much is what the others come to"
        )
    lines = ["|  | now | planned |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {now} | {planned} |" for name, now, planned in rows]
    return "\n".join(lines) + "\n\n" + "\n".join(f"- {fact}" for fact in facts)


def _picture(rows: pa.Table, names: Mapping[str, str]) -> str:
    """One row per member, the most loaded first: bars of its current and its planned lag, on one scale."""
    now, planned = _lag_by(rows, "owner_before"), _lag_by(rows, "owner_after")
    both = {name: (now.get(name, _NOTHING), planned.get(name, _NOTHING)) for name in names}
    members = sorted(names, key=lambda name: (-max(lag.records or 0 for lag in both[name]), name))
    largest = max((lag.records or 0 for lags in both.values() for lag in lags), default=0)
    lines = ["| member |  | now |  | planned |", "| --- | --- | ---: | --- | ---: |"]
    for member in members[:_MAX_MEMBERS]:
        before, after = both[member]
        lines.append(
            f"| {_name(names[member])} | {_bar(before.records or 0, largest)} | {at_least(*before)} "
            f"| {_bar(after.records or 0, largest)} | {at_least(*after)} |"
        )
    return "\n".join(lines)


def _moves(rows: pa.Table, names: Mapping[str, str]) -> str:
    order = [("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    moved = rows.filter(pc.equal(rows["moved"], True)).sort_by(order).slice(0, _MAX_MOVES).to_pylist()
    lines = ["| partition | lag | from | to |", "| --- | ---: | --- | --- |"]
    for move in moved:
        owners = [_name(names.get(move[side], move[side] or "nobody")) for side in _SIDES]
        lag = number(move["lag_records"])
        lines.append(
            f"| {_name(move['topic'])} {int(move['partition'])} | {lag} | {owners[0]} | {owners[1]} |"
        )
    return "\n".join(lines)


_SIDES: Final = ("owner_before", "owner_after")


def _member_names(rows: pa.Table) -> dict[str, str]:
    """Names of members: the instance id where they have one, else the member id."""
    names = {member: member for member in pc.unique(rows["owner_before"]).to_pylist() if member}
    pairs = rows.group_by(["owner_after", "owner_after_key"]).aggregate([]).to_pylist()
    for pair in pairs:
        if pair["owner_after"]:
            key = pair["owner_after_key"] or ""
            names[pair["owner_after"]] = key.removeprefix("i:") if key[:2] == "i:" else pair["owner_after"]
    return names


class _Lag(NamedTuple):
    """Sum of the known lags, None without any, and the number of partitions whose lag is unknown."""

    records: int | None
    num_unknown: int


# Lag of a member without partitions.
_NOTHING: Final = _Lag(0, 0)


def _lag_by(rows: pa.Table, column: str) -> dict[str, _Lag]:
    totals = rows.group_by(column).aggregate(
        [("lag_records", "sum"), ("lag_records", "count"), ([], "count_all")]
    )
    return {
        row[column]: _Lag(row["lag_records_sum"], row["count_all"] - row["lag_records_count"])
        for row in totals.to_pylist()
        if row[column]
    }


def _num_unknown(head: Mapping[str, Any]) -> int:
    """Number of partitions whose lag the planner did not know."""
    return int(head.get("num_unknown_lags") or 0)


def _bar(value: int, largest: int) -> str:
    """A bar in eighths of a cell: empty for 0, and at least one eighth for any other value."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(8 * _BAR_CELLS * value / largest))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _change(head: Mapping[str, Any]) -> str:
    both = (head["metrics_before"] or {}, head["metrics_after"] or {})
    before, after = (at_least(metrics.get(_MAX_LAG), _num_unknown(head)) for metrics in both)
    return f"from {before} to {after} records"


def _left_out(count: int, limit: int, what: str) -> str:
    return f" ({limit} of {count:,} {what} first)" if count > limit else ""


def _range(metrics: Mapping[str, Any]) -> str:
    low, high = metrics.get("min_member_partitions"), metrics.get("max_member_partitions")
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _name(name: str) -> str:
    return markdown_text(middle_cut(name, _MAX_NAME))
