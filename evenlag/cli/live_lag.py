"""`evenlag lag -b` and `evenlag lag --live`: the lag of a running cluster, once or until Ctrl-C."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer
from rich.console import Group

from evenlag.cli.cluster_target import find_target
from evenlag.cli.console import console, print_error, print_json, status_text
from evenlag.cli.export import export_and_report
from evenlag.cli.tables.lag import (
    BEHIND_BY,
    DRAINED,
    LAG,
    RATES,
    left_out_groups_text,
    left_out_text,
    lower_bound_text,
    no_owner_text,
    sentences,
    unknown_column,
)
from evenlag.cli.tables.layout import Column, filled_table, numbers
from evenlag.enums import LagStatus
from evenlag.errors import JobError
from evenlag.formatting import NOTHING, bounded, moment, number
from evenlag.kafka.connection import admin_client, kafka_errors
from evenlag.live_lag.answer import (
    RecentLags,
    describe_group,
    list_groups,
    preview_plans,
    rate_window_s,
    sparkline,
)
from evenlag.live_lag.snapshot import LiveReader, policy_target
from evenlag.queries.lag import left_topics_text, owner_text, unknown_facts_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.console import Console, RenderableType

    from evenlag.cli.tables.layout import Table
    from evenlag.live_lag.answer import PlanPreview
    from evenlag.live_lag.snapshot import LiveSnapshot, ReadTarget

DEFAULT_INTERVAL_S: Final = 2.0
# Lines of a screen that are no rows of the table: title, headings, borders and caption.
_FRAME_LINES: Final = 9
_FEWEST_ROWS: Final = 3
_TREND_CELLS: Final = 12
_MAX_PROBLEMS: Final = 3
_PLAN: Final = "with a plan"


@dataclass(frozen=True, slots=True)
class LagRequest:
    """The arguments of the command; without `every_s` it takes one snapshot."""

    target: ReadTarget
    group: str | None
    limit: int
    every_s: float | None
    as_json: bool
    export: Path | None


def find_cluster_to_read(
    bootstrap_servers: str | None, config: Path | None, cluster: str | None, reset_policy: str | None
) -> ReadTarget:
    """Return the cluster that the options name."""
    target = find_target(bootstrap_servers, config, cluster, reset_policy=reset_policy)
    return policy_target(target.loaded.policy, target.name, is_named=bootstrap_servers is not None)


def show_live_lag(request: LagRequest) -> None:
    """Read the cluster and show its lag."""
    window_s = 0.0 if request.every_s is None else rate_window_s(request.every_s)
    with admin_client(request.target.settings, request.target.client) as client:
        reader = LiveReader(client, request.target, window_s)
        if request.every_s is None:
            _show_once(request, reader)
        else:
            _watch(request, reader, request.every_s)


def _show_once(request: LagRequest, reader: LiveReader) -> None:
    snapshot = reader.read(request.group)
    if request.export is not None:
        export_and_report(_exported(request, reader, snapshot), request.export)
    if request.as_json:
        print_json(_answer(request, reader, snapshot))
        return
    out = console()
    out.print(_rendered(request, View(_source(request), request.limit), reader, snapshot))


def _watch(request: LagRequest, reader: LiveReader, every_s: float) -> None:
    """Show snapshots until Ctrl-C. A snapshot that fails is reported, and the next one is taken."""
    shown = _Snapshots(request, reader, every_s)
    try:
        if request.as_json or not sys.stdout.isatty():
            shown.run_as_lines()
        else:
            shown.run_on_screen()
    except KeyboardInterrupt:
        console(stderr=True).print(f"stopped after {number(shown.num_snapshots)} snapshots")
        raise typer.Exit(130) from None


class _Snapshots:
    """Takes snapshots in the interval of the command, and shows them."""

    def __init__(self, request: LagRequest, reader: LiveReader, every_s: float) -> None:
        self._request = request
        self._reader = reader
        self._every_s = every_s
        self._recent = RecentLags()
        self.num_snapshots = 0

    def run_as_lines(self) -> None:
        """Print each snapshot below the one before: JSON on one line, or a table."""
        out = console()
        while True:
            begun = time.monotonic()
            snapshot = self._read()
            if isinstance(snapshot, JobError):
                print_error(f"{snapshot}; trying again")
            elif self._request.as_json:
                print_json(_answer(self._request, self._reader, snapshot), is_line=True)
            else:
                out.print(self._rendered(out, snapshot))
                sys.stdout.flush()
            self._wait(begun)

    def run_on_screen(self) -> None:
        """Refresh a full screen in place; the last snapshot stays visible below the command."""
        from rich.live import Live

        out = console()
        last: RenderableType = "connecting…"
        try:
            with Live(last, console=out, screen=True, auto_refresh=False) as live:
                while True:
                    begun = time.monotonic()
                    snapshot = self._read()
                    if isinstance(snapshot, JobError):
                        live.update(Group(last, f"{snapshot}; trying again"), refresh=True)
                    else:
                        last = self._rendered(out, snapshot)
                        live.update(last, refresh=True)
                    self._wait(begun)
        finally:
            if self.num_snapshots:
                out.print(last)

    def _read(self) -> LiveSnapshot | JobError:
        try:
            with kafka_errors(self._request.target.settings):
                snapshot = self._reader.read(self._request.group)
        except JobError as error:
            # The first snapshot finds mistakes in the call; later on the cluster may be back soon.
            if not self.num_snapshots:
                raise
            return error
        self.num_snapshots += 1
        self._recent.add(snapshot)
        return snapshot

    def _rendered(self, out: Console, snapshot: LiveSnapshot) -> RenderableType:
        limit = self._request.limit
        if out.is_terminal:
            limit = min(limit, max(out.height - _FRAME_LINES, _FEWEST_ROWS))
        view = View(_source(self._request), limit, self._recent)
        return _rendered(self._request, view, self._reader, snapshot)

    def _wait(self, begun: float) -> None:
        time.sleep(max(0.0, begun + self._every_s - time.monotonic()))


def _rendered(request: LagRequest, view: View, reader: LiveReader, snapshot: LiveSnapshot) -> RenderableType:
    if request.group is not None:
        preview = preview_plans(snapshot, [request.group], reader.settings_of)[request.group]
        return group_view(view, snapshot, describe_group(snapshot, request.group, preview), preview)
    groups = list_groups(snapshot)
    previews = preview_plans(snapshot, [row["group_id"] for row in groups[: view.limit]], reader.settings_of)
    return groups_view(view, snapshot, groups, previews)


def _answer(request: LagRequest, reader: LiveReader, snapshot: LiveSnapshot) -> dict[str, Any]:
    """Return the snapshot for JSON: all groups with their plans, or one group with all its rows."""
    head = {
        "cluster": request.target.name,
        "source": "cluster",
        "kafka_cluster_id": snapshot.kafka_cluster_id,
        "read_at": snapshot.ends_read_at,
        "problems": [
            {"kind": each.kind, "name": each.name, "error": each.error, "count": each.count}
            for each in snapshot.problems
        ],
    }
    if request.group is None:
        return head | {"groups": _groups(reader, snapshot)}
    preview = preview_plans(snapshot, [request.group], reader.settings_of)[request.group]
    return head | describe_group(snapshot, request.group, preview)


def _groups(reader: LiveReader, snapshot: LiveSnapshot) -> list[dict[str, Any]]:
    groups = list_groups(snapshot)
    previews = preview_plans(snapshot, [row["group_id"] for row in groups], reader.settings_of)
    return [row | {"plan": previews[row["group_id"]].as_dict()} for row in groups]


def _exported(request: LagRequest, reader: LiveReader, snapshot: LiveSnapshot) -> list[dict[str, Any]]:
    """Return the rows for a file: the groups, or the partitions of one group."""
    head = {"cluster": request.target.name, "read_at": snapshot.ends_read_at}
    if request.group is not None:
        group = _answer(request, reader, snapshot)
        return [head | {"group_id": request.group} | row for row in group["partitions"]]
    rows = []
    for row in _groups(reader, snapshot):
        plan = {f"plan_{name}": value for name, value in row.pop("plan").items()}
        counts = row.pop("statuses")
        statuses = {f"num_{name.lower()}_partitions": counts.get(name, 0) for name in LagStatus}
        rows.append(head | row | statuses | plan)
    return rows


def _source(request: LagRequest) -> str:
    return f"{request.target.name} ({', '.join(request.target.settings.bootstrap_servers)})"


@dataclass(frozen=True, slots=True)
class View:
    """What is shown of each snapshot: the cluster's name with its brokers, rows at most, and lags before."""

    source: str
    limit: int
    recent: RecentLags | None = None


def groups_view(
    view: View,
    snapshot: LiveSnapshot,
    groups: Sequence[Mapping[str, Any]],
    previews: Mapping[str, PlanPreview],
) -> Table:
    """Return the table of groups; `previews` are what plans would bring, by group id."""
    shown_rows = groups[: view.limit]
    columns = (
        Column("group", lambda row: row["group_id"]),
        numbers("lag", _lag_or_note),
        *_rate_columns(view),
        numbers("most loaded", lambda row: bounded(row["max_member_lag_records"], row["lag_bound"])),
        numbers(_PLAN, lambda row: _preview_text(previews.get(row["group_id"]))),
        numbers("skew", lambda row: number(row["lag_skew"], digits=2)),
        BEHIND_BY,
        numbers("members", lambda row: number(row["num_members"])),
        numbers("partitions", lambda row: number(row["num_partitions"])),
        Column("type", lambda row: row["group_type"] or NOTHING),
        Column("state", lambda row: row["group_state"] or NOTHING),
    )
    return filled_table(
        f"Lag on {view.source}, read at {moment(snapshot.ends_read_at)}",
        columns,
        shown_rows,
        optional=("type", "state", "members", "partitions", "out/s", "in/s", "skew", "trend"),
        caption=sentences(
            _lower_bounds(groups),
            unknown_facts_text(shown_rows),
            left_topics_text(shown_rows),
            _meaning(previews),
            left_out_groups_text(groups, view.limit),
            _problems(snapshot),
        ),
    )


def group_view(
    view: View, snapshot: LiveSnapshot, group: Mapping[str, Any], preview: PlanPreview
) -> RenderableType:
    """Return the tables of members and partitions of a group, as `describe_group` returns it."""
    members = [row["member_id"] for row in group["members"] if row["member_id"] is not None]
    places = {member: f"#{place}" for place, member in enumerate(members, start=1)}
    return Group(
        _member_table(view, snapshot, group, places),
        _verdict(group, preview),
        _partition_table(view, group, preview, places),
    )


def _member_table(
    view: View, snapshot: LiveSnapshot, group: Mapping[str, Any], places: Mapping[str, str]
) -> Table:
    columns = (
        numbers("#", lambda row: places.get(row["member_id"], "")),
        Column("member", lambda row: row["member_id"] or no_owner_text(group)),
        Column("client id", lambda row: row["client_id"] or NOTHING),
        Column("host", lambda row: (row["client_host"] or NOTHING).removeprefix("/")),
        numbers("partitions", lambda row: number(row["num_partitions"])),
        *unknown_column([group]),
        LAG,
        numbers(f"lag {_PLAN}", lambda row: number(row["planned_lag_records"])),
        numbers(f"partitions {_PLAN}", lambda row: number(row["planned_partitions"])),
    )
    title = f"{group['group_id']} on {view.source}, read at {moment(snapshot.ends_read_at)}"
    if view.recent is not None:
        title += f", lag {sparkline(view.recent.lags(group['group_id']), 2 * _TREND_CELLS)}"
    return filled_table(
        title,
        columns,
        group["members"],
        optional=("host", "partitions with a plan", "client id", "partitions"),
        caption=sentences(
            _lower_bounds([group]),
            unknown_facts_text([group]),
            left_topics_text([group]),
            _problems(snapshot),
        ),
    )


def _partition_table(
    view: View, group: Mapping[str, Any], preview: PlanPreview, places: Mapping[str, str]
) -> Table:
    partitions = group["partitions"]
    planned = Column(_PLAN, lambda row: places.get(row["planned_owner_member_id"] or "", ""))
    columns = (
        Column("topic", lambda row: row["topic"]),
        numbers("partition", lambda row: number(row["partition"])),
        Column("member", lambda row: _owner(row, places)),
        *((planned,) if preview.is_change else ()),
        Column("status", lambda row: status_text(row["status"])),
        LAG,
        *(RATES if view.recent is not None else ()),
        BEHIND_BY,
        *(DRAINED if view.recent is not None else ()),
    )
    return filled_table(
        "",
        columns,
        partitions[: view.limit],
        optional=("status", "drained in", "in/s", "out/s", "behind by"),
        caption=left_out_text(len(partitions), view.limit, "partitions"),
    )


def _owner(row: Mapping[str, Any], places: Mapping[str, str]) -> str:
    owner = row["owner_member_id"]
    return owner_text(row) if owner is None else places.get(owner, owner)


def _lag_or_note(row: Mapping[str, Any]) -> str:
    if row["note"] and row["lag_records"] is None:
        return str(row["note"])
    return bounded(row["lag_records"], row["lag_bound"])


def _rate_columns(view: View) -> tuple[Column, ...]:
    recent = view.recent
    if recent is None:
        return ()
    return (*RATES, Column("trend", lambda row: sparkline(recent.lags(row["group_id"]), _TREND_CELLS)))


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


def _lower_bounds(rows: Sequence[Mapping[str, Any]]) -> str:
    is_uncommitted = any(row["statuses"].get(LagStatus.NO_COMMIT) for row in rows)
    advice = "; --reset-policy counts partitions without a commit" if is_uncommitted else ""
    return lower_bound_text(rows, f"≥ is a lower bound{advice}")


def _problems(snapshot: LiveSnapshot) -> str:
    problems = snapshot.problems
    if not problems:
        return ""
    shown = [f"{each.kind} {each.name}: {each.error}" for each in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(shown)
    return f"Not read: {'; '.join(shown)}" + (f"; and {more} more" if more else "")
