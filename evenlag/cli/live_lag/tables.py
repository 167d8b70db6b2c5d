"""Lag of a running cluster as tables for a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group

from evenlag.cli.console import fit, status_text, table
from evenlag.enums import LagStatus
from evenlag.formatting import NOTHING, bounded, bounded_duration, duration, moment, number
from evenlag.instant_lag.rates import sparkline
from evenlag.queries.lag import left_topics_text, owner_text, unknown_facts_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console, RenderableType

    from evenlag.cli.tables.layout import Table
    from evenlag.instant_lag.preview import PlanPreview
    from evenlag.instant_lag.rates import RecentLags
    from evenlag.instant_lag.snapshot import InstantSnapshot

_TREND_CELLS: Final = 12
_MAX_PROBLEMS: Final = 3
_PLAN: Final = "with a plan"
_MEMBER_OPTIONAL: Final = ("host", "partitions with a plan", "client id", "partitions")
_PARTITION_OPTIONAL: Final = ("status", "drained in", "in/s", "out/s", "behind by")


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of each snapshot.

    source: Name of the cluster, and its brokers.
    limit: Rows of a table at most.
    recent: The earlier snapshots, with ``--watch``; None without.
    """

    source: str
    limit: int
    recent: RecentLags | None = None


def groups_view(
    out: Console,
    view: View,
    snapshot: InstantSnapshot,
    groups: Sequence[Mapping[str, Any]],
    previews: Mapping[str, PlanPreview],
) -> RenderableType:
    """Return the table of groups.

    previews: What plans would bring, by group id; a group may be missing.
    """
    is_watch = view.recent is not None
    rates = ("in/s", "out/s", "trend") if is_watch else ()
    columns = (
        "group",
        "lag",
        *rates,
        "most loaded",
        _PLAN,
        "skew",
        "behind by",
        "members",
        "partitions",
        "type",
        "state",
    )
    shown_rows = groups[: view.limit]
    shown = table(
        f"Lag on {view.source}, read at {moment(snapshot.ends_read_at)}",
        columns,
        right=set(columns) - {"group", "trend", "type", "state"},
        caption=_sentences(
            _bounds(groups),
            unknown_facts_text(shown_rows),
            left_topics_text(shown_rows),
            _meaning(previews),
            _left_out(len(groups), view.limit, "groups"),
            _problems(snapshot),
        ),
    )
    for row in shown_rows:
        shown.add_row(
            row["group_id"],
            row["note"]
            if row["note"] and row["lag_records"] is None
            else bounded(row["lag_records"], row["lag_bound"]),
            *_rate_cells(view, row),
            bounded(row["max_member_lag_records"], row["lag_bound"]),
            _preview_text(previews.get(row["group_id"])),
            number(row["lag_skew"], digits=2),
            bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"]),
            number(row["num_members"]),
            number(row["num_partitions"]),
            row["group_type"] or NOTHING,
            row["group_state"] or NOTHING,
        )
    return fit(out, shown, ("type", "state", "members", "partitions", "out/s", "in/s", "skew", "trend"))


def group_view(
    out: Console, view: View, snapshot: InstantSnapshot, group: Mapping[str, Any], preview: PlanPreview
) -> RenderableType:
    """Return the tables of a group's members and partitions.

    group: The group, as :func:`~evenlag.instant_lag.answer.describe_group` returns it.
    """
    numbers = {row["member_id"]: f"#{place}" for place, row in enumerate(_members(group["members"]), start=1)}
    return Group(
        _member_table(out, view, snapshot, group, numbers),
        _verdict(group, preview),
        _partition_table(out, view, group, preview, numbers),
    )


def _member_table(
    out: Console, view: View, snapshot: InstantSnapshot, group: Mapping[str, Any], numbers: Mapping[str, str]
) -> Table:
    rows = group["members"]
    unknown = ["unknown"] if group["num_unknown_partitions"] else []
    right = ("#", "partitions", *unknown, "lag", f"lag {_PLAN}", f"partitions {_PLAN}")
    columns = ("#", "member", "client id", "host", *right[1:])
    title = f"{group['group_id']} on {view.source}, read at {moment(snapshot.ends_read_at)}"
    if view.recent is not None:
        title += f", lag {sparkline(view.recent.lags(group['group_id']), 2 * _TREND_CELLS)}"
    shown = table(
        title,
        columns,
        right=right,
        caption=_sentences(
            _bounds([group]), unknown_facts_text([group]), left_topics_text([group]), _problems(snapshot)
        ),
    )
    for row in rows:
        num_unknown = row["num_unknown_partitions"]
        shown.add_row(
            numbers.get(row["member_id"], ""),
            row["member_id"] or ("nobody" if group["owner_problem"] is None else "nobody, or not known"),
            row["client_id"] or NOTHING,
            (row["client_host"] or NOTHING).removeprefix("/"),
            number(row["num_partitions"]),
            *(number(num_unknown) for _ in unknown),
            bounded(row["lag_records"], row["lag_bound"]),
            number(row["planned_lag_records"]),
            number(row["planned_partitions"]),
        )
    return fit(out, shown, _MEMBER_OPTIONAL)


def _partition_table(
    out: Console, view: View, group: Mapping[str, Any], preview: PlanPreview, numbers: Mapping[str, str]
) -> Table:
    rates = ("in/s", "out/s") if view.recent is not None else ()
    drained = ("drained in", "note") if view.recent is not None else ()
    planned = (_PLAN,) if preview.is_change else ()
    columns = ("topic", "partition", "member", *planned, "status", "lag", *rates, "behind by", *drained)
    partitions = group["partitions"]
    shown = table(
        "",
        columns,
        right=("partition", "lag", *rates, "behind by", "drained in"),
        caption=_left_out(len(partitions), view.limit, "partitions"),
    )
    for row in partitions[: view.limit]:
        target = row["planned_owner_member_id"]
        shown.add_row(
            row["topic"],
            number(row["partition"]),
            _owner(row, numbers),
            *(numbers.get(target, "") if target else "" for _ in planned),
            status_text(row["status"]),
            bounded(row["lag_records"], row["lag_bound"]),
            *(
                number(row[f"{name}_rate_records_per_s"], digits=1)
                for name in ("arrival", "consume")
                if rates
            ),
            bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"]),
            *((duration(row["drain_time_ms"]), "stalled" if row["stalled"] else "") if drained else ()),
        )
    return fit(out, shown, _PARTITION_OPTIONAL)


def _owner(row: Mapping[str, Any], numbers: Mapping[str, str]) -> str:
    owner = row["owner_member_id"]
    if owner is None:
        return owner_text(row)
    return numbers.get(owner, owner)


def _members(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["member_id"] is not None]


def _rate_cells(view: View, row: Mapping[str, Any]) -> tuple[str, ...]:
    if view.recent is None:
        return ()
    rates = (number(row[f"{name}_rate_records_per_s"], digits=1) for name in ("arrival", "consume"))
    return (*rates, sparkline(view.recent.lags(row["group_id"]), _TREND_CELLS))


def _preview_text(preview: PlanPreview | None) -> str:
    if preview is None or preview.blocker is not None:
        return NOTHING
    if not preview.is_change:
        return "as it is"
    return f"{number(preview.max_member_lag_after_records)} · {_moves(preview)}"


def _moves(preview: PlanPreview) -> str:
    return "1 move" if preview.num_moves == 1 else f"{number(preview.num_moves)} moves"


def _verdict(group: Mapping[str, Any], preview: PlanPreview) -> str:
    if preview.blocker is not None:
        return f"No plan: {preview.blocker}."
    before, after = preview.max_member_lag_before_records, preview.max_member_lag_after_records
    if not preview.is_change:
        return (
            f"A plan by {preview.assignor} would change nothing: the most loaded member has {number(before)}."
        )
    bound = "at least " if group["num_unknown_partitions"] else ""
    return (
        f"A plan by {preview.assignor} would bring the lag of the most loaded member "
        f"from {bound}{number(before)} to {bound}{number(after)} with {_moves(preview)}."
    )


def _meaning(previews: Mapping[str, PlanPreview]) -> str:
    names = sorted({preview.assignor for preview in previews.values() if preview.is_change})
    if not names:
        return ""
    return f"{_PLAN}: lag of the most loaded member if the group followed a plan by {', '.join(names)}"


def _bounds(rows: Sequence[Mapping[str, Any]]) -> str:
    num_unknown = sum(row["num_unknown_partitions"] for row in rows)
    if not num_unknown:
        return ""
    num_partitions = sum(row["num_partitions"] for row in rows)
    caption = f"The lag of {num_unknown:,} of {num_partitions:,} partitions is not known: ≥ is a lower bound"
    is_uncommitted = any(row["statuses"].get(LagStatus.NO_COMMIT) for row in rows)
    return f"{caption}; --reset-policy counts partitions without a commit" if is_uncommitted else caption


def _problems(snapshot: InstantSnapshot) -> str:
    problems = snapshot.problems
    if not problems:
        return ""
    shown = [f"{each.kind} {each.name}: {each.error}" for each in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(shown)
    return f"Not read: {'; '.join(shown)}" + (f"; and {more} more" if more else "")


def _left_out(count: int, limit: int, what: str) -> str:
    return f"{count - limit:,} more {what}: --limit {count}" if count > limit else ""


def _sentences(*parts: str) -> str:
    return ". ".join(filter(None, parts))
