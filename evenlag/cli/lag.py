"""`evenlag lag`: lag of the groups of a running cluster, or in the last snapshot of a lake."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from rich.console import Group, RenderableType

from evenlag.cli.cluster_target import BootstrapOption, find_target
from evenlag.cli.console import console, print_error, print_json, status_text
from evenlag.cli.export import ExportOption, export_and_report
from evenlag.cli.layout import (
    GROUP,
    NUM_MEMBERS,
    NUM_PARTITIONS,
    PARTITION,
    TOPIC,
    Column,
    Table,
    numbers,
)
from evenlag.cli.option_types import argument, flag, option, pattern, whole
from evenlag.cli.options import JsonOption, LakeScope, LimitOption, every_option, reset_policy_option
from evenlag.context import newest_snapshot
from evenlag.enums import LagBound, LagStatus
from evenlag.errors import JobError, NotFoundError, UsageError
from evenlag.formatting import (
    NOTHING,
    bounded,
    bounded_duration,
    count_of,
    did_you_mean,
    duration,
    moment,
    number,
    speed_text,
)
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import LAG, MEMBERS, SPEEDS
from evenlag.name_patterns import matches_pattern
from evenlag.queries.advice import needed_text, read_advice, target_text
from evenlag.queries.lag import (
    CLIENT_COLUMNS,
    MEMBER_COLUMNS,
    STATE_COLUMNS,
    client_names,
    group_rows,
    left_topics_text,
    member_rows,
    owner_text,
    partition_rows,
    unknown_facts_text,
    unmeasured,
)
from evenlag.safe_text import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.live_lag.answer import PlanPreview, RecentLags
    from evenlag.live_lag.snapshot import LiveReader, LiveSnapshot, ReadTarget


Rows = Sequence[Mapping[str, Any]]
# A snapshot as tables or for JSON, or why there is none.
Taken: TypeAlias = RenderableType | dict[str, Any] | JobError

_DEFAULT_INTERVAL_S = 2.0
_ABOUT_GROUPS = "≥ is a lower bound, no skew is given, and another member may be the most loaded"
_ABOUT_MEMBERS = "≥ is a lower bound, and another member may be the most loaded"
# Lines of a screen that are no rows of the table: title, headings, borders and caption.
_FRAME_LINES: Final = 9
_FEWEST_ROWS: Final = 3
_TREND_CELLS: Final = 12
_MAX_PROBLEMS: Final = 3
_PLAN: Final = "with a plan"
_LAG: Final = numbers("lag", lambda row: bounded(row["lag_records"], row["lag_bound"]))
_BEHIND_BY: Final = numbers(
    "behind by", lambda row: bounded_duration(row["time_lag_ms"], row["time_lag_at_least_ms"])
)
_SKEW: Final = numbers("skew", lambda row: number(row["lag_skew"], digits=2))
_RATES: Final = (
    numbers("in/s", lambda row: number(row["arrival_rate_records_per_s"], digits=1)),
    numbers("out/s", lambda row: number(row["consume_rate_records_per_s"], digits=1)),
)
_OFFSETS: Final = (
    numbers("committed", lambda row: number(row["committed_offset"])),
    numbers("end", lambda row: number(row["end_offset"])),
)
_DRAINED: Final = (
    numbers("drained in", lambda row: duration(row["drain_time_ms"])),
    Column("note", lambda row: "stalled" if row["stalled"] else ""),
)
_MOST_NAMED: Final = 5
_SPEED: Final = ("speed_records_per_s", "speed_is_bound", "speed_confidence")
_SPEED_COLUMNS: Final = (
    numbers("speed/s", lambda row: speed_text(row["speed_records_per_s"], row["speed_is_bound"])),
    numbers(
        "confidence",
        lambda row: NOTHING if row["speed_confidence"] is None else f"{row['speed_confidence']:.0%}",
    ),
)
_ADVISED: Final = (
    "members_needed",
    "is_at_most",
    "reason",
    "target_wait_s",
    "is_target_met",
    "missed_since",
    "met_share",
)


class SortKey(StrEnum):
    """What groups are sorted by: the largest value first, unknown values last; names in their order."""

    LAG = "lag"
    BEHIND = "behind"
    SKEW = "skew"
    MEMBERS = "members"
    GROUP = "group"


_SORT_COLUMNS: Final = {
    SortKey.BEHIND: "time_lag_ms",
    SortKey.SKEW: "lag_skew",
    SortKey.MEMBERS: "num_members",
}


@dataclass(frozen=True, kw_only=True)
class GroupChoice:
    """Which groups are listed, and in which order."""

    match: Annotated[
        str | None, option("--match", "PATTERN", "Groups of this name, glob or /regex/ only.", pattern)
    ] = None
    min_lag: Annotated[
        int | None,
        option(
            "--min-lag", "N", "Groups with at least so many records of lag, or unknown lag.", whole(0, 2**63)
        ),
    ] = None
    sort: Annotated[SortKey, typer.Option("--sort", help="Order of the groups.")] = SortKey.LAG

    def require_list(self, group: str | None) -> None:
        """Refuse these options for one group."""
        if group is not None and self != GroupChoice():
            raise UsageError("--match, --min-lag and --sort are for the list of groups, not for one GROUP")

    def of(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the chosen rows of groups, which are sorted by lag, in the order that is wanted."""
        chosen = [row for row in rows if self._is_chosen(row)]
        if self.sort is SortKey.GROUP:
            return sorted(chosen, key=lambda row: str(row["group_id"]))
        if (column := _SORT_COLUMNS.get(self.sort)) is None:
            return chosen
        return sorted(chosen, key=lambda row: -inf if row[column] is None else row[column], reverse=True)

    def _is_chosen(self, row: Mapping[str, Any]) -> bool:
        if self.match is not None and not matches_pattern(self.match, row["group_id"]):
            return False
        if self.min_lag is None or (row["lag_records"] or 0) >= self.min_lag:
            return True
        is_unknown = row["lag_records"] is None or row["lag_bound"] == LagBound.LOWER
        return is_unknown and unmeasured(row) is None


def lag(
    group: Annotated[str | None, argument("GROUP", "A group, to show its members and partitions.")] = None,
    *,
    bootstrap_servers: BootstrapOption = None,
    live: Annotated[
        bool, flag("--live", "Read the cluster of the policy file now, not the last snapshot.")
    ] = False,
    reset_policy: Annotated[str | None, reset_policy_option()] = None,
    watch: Annotated[bool, flag("--watch -w", "Refresh continuously until Ctrl-C, with rates.")] = False,
    every: Annotated[float | None, every_option("snapshots", _DEFAULT_INTERVAL_S)] = None,
    limit: LimitOption = 40,
    choice: GroupChoice,
    scope: LakeScope,
    export: ExportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the lag of the groups, largest first; or of one group by member and partition.

    With --bootstrap-servers or --live, evenlag reads the cluster itself and shows what a plan would bring.
    That needs neither a lake nor Java, writes nothing and publishes nothing. Without them, it shows the last
    snapshot of the lake.
    """
    choice.require_list(group)
    if bootstrap_servers is None and not live:
        for name, value in {"--reset-policy": reset_policy, "--watch": watch, "--every": every}.items():
            if value:
                raise UsageError(
                    f"{name} is for a running cluster: name it with --bootstrap-servers HOST:PORT, or give "
                    "--live for the cluster of the policy file"
                )
        _show_snapshot(group, limit, choice, scope, export, as_json=as_json)
        return
    if scope.lake is not None:
        raise UsageError("--lake is for the last snapshot: leave it out to read the cluster itself")
    if every is not None and not watch:
        raise UsageError("--every goes with --watch: one snapshot has no interval")
    if watch and export is not None:
        raise UsageError("--export writes one snapshot: leave --watch out")
    from evenlag.live_lag.snapshot import policy_target

    found = find_target(bootstrap_servers, scope.config, scope.cluster, reset_policy=reset_policy)
    target = policy_target(found.loaded.policy, found.name, is_named=bootstrap_servers is not None)
    request = LagRequest(target, group, limit, choice, as_json, export)
    if watch:
        _watch(request, every or _DEFAULT_INTERVAL_S)
    else:
        _show_once(request)


def _show_snapshot(
    group: str | None,
    limit: int,
    choice: GroupChoice,
    scope: LakeScope,
    export: Path | None,
    *,
    as_json: bool,
) -> None:
    from evenlag.lag.speed_rows import with_speeds

    reader, name = scope.open()
    snapshot = newest_snapshot(reader, name)
    of_snapshot = snapshot_filters(snapshot)
    rows = reader.read(LAG, filters=of_snapshot)
    columns = [*MEMBER_COLUMNS, *CLIENT_COLUMNS[1:], *STATE_COLUMNS]
    members = reader.read(MEMBERS, columns=columns, filters=of_snapshot)
    head = {key: snapshot[key] for key in ("cluster", "snapshot_id", "slot")}
    # The slot is the scheduled time; the end offsets were read some seconds later.
    head["read_at"] = snapshot["end_read_at"]
    if group is None:
        advice = read_advice(reader, name, snapshot["day"])
        listed = choice.of(group_rows(rows, members))
        found = [row | _advised(advice.get(row["group_id"])) for row in listed]
        _export(export, head, found)
        if as_json:
            print_json(head | {"groups": found})
        else:
            console().print(_group_table(head, found, limit))
        return
    groups = sorted({*rows["group_id"].to_pylist(), *members["group_id"].to_pylist()})
    if group not in groups:
        raise NotFoundError(
            f"the snapshot read at {moment(head['read_at'])} has no group {group!r}"
            f"{did_you_mean(group, groups)}"
        )
    speeds = reader.read(
        SPEEDS, columns=["group_id", "members"], filters=[*of_snapshot, ("group_id", "=", group)]
    )
    rows, members = _rows_of_group(rows, group), with_speeds(_rows_of_group(members, group), speeds)
    _export(export, head | {"group_id": group}, partition_rows(rows))
    _show_group(head, rows, members, limit=limit, as_json=as_json)


def _export(path: Path | None, head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if path is not None:
        export_and_report([head | row for row in rows], path)


def _rows_of_group(rows: pa.Table, group: str) -> pa.Table:
    import pyarrow.compute as pc

    return rows.filter(pc.equal(rows["group_id"], group))


def _advised(advice: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the advice adds to a row: numbers for scripts."""
    return {name: None if advice is None else advice[name] for name in _ADVISED}


def _group_table(head: dict[str, Any], groups: list[dict[str, Any]], limit: int) -> Table:
    shown = groups[:limit]
    columns = (
        GROUP,
        NUM_MEMBERS,
        *([numbers("needed", needed_text)] if any(needed_text(row) for row in groups) else ()),
        NUM_PARTITIONS,
        *_unknown_column(groups),
        numbers("lag", lambda row: unmeasured(row) or bounded(row["lag_records"], row["lag_bound"])),
        numbers("most loaded member", lambda row: bounded(row["max_member_lag_records"], row["lag_bound"])),
        _SKEW,
        _BEHIND_BY,
        *([Column("target", target_text)] if any(target_text(row) for row in groups) else ()),
        Column("statuses", lambda row: ", ".join(f"{n} {status}" for status, n in row["statuses"].items())),
    )
    return Table(
        f"Lag on {head['cluster']}, read at {moment(head['read_at'])}",
        columns,
        shown,
        optional=("statuses", "target", "members", "skew", "partitions", "behind by", "most loaded member"),
        caption=_caption(_lower_bound_text(shown, _ABOUT_GROUPS), shown, left_out_groups_text(groups, limit)),
    )


def _show_group(
    head: dict[str, Any], rows: pa.Table, members: pa.Table, *, limit: int, as_json: bool
) -> None:
    partitions = partition_rows(rows)
    by_member = member_rows(rows, members)
    known = {row["member_id"]: row for row in members.to_pylist()}
    (total,) = group_rows(rows, members)
    if as_json:
        owners = [
            row | {name: known.get(row["member_id"], {}).get(name) for name in (*CLIENT_COLUMNS[1:], *_SPEED)}
            for row in by_member
            if row["member_id"] is not None
        ]
        print_json(head | total | {"members": owners, "partitions": partitions})
        return
    out = console()
    clients = client_names(known.values())
    state: Mapping[str, Any] = next(iter(known.values()), {})
    out.print(_facts(total | {name: state.get(name) for name in STATE_COLUMNS}), soft_wrap=True)
    out.print(_member_table(head, total, by_member, known))
    owner = (
        Column("member", lambda row: row["owner_member_id"] or owner_text(row)),
        Column("client", lambda row: clients.get(row["owner_member_id"] or "", "")),
    )
    optional = ("end", "committed", "in/s", "out/s", "drained in", "note", "client", "behind by", "status")
    out.print(_partition_table(partitions, limit, owner, optional))


def _facts(group: Mapping[str, Any]) -> str:
    """Return what matters first about a group, on one line."""
    lag = unmeasured(group) or bounded(group["lag_records"], group["lag_bound"])
    behind = bounded_duration(group["time_lag_ms"], group["time_lag_at_least_ms"])
    coordinator = group.get("coordinator")
    facts = {
        "lag": lag + (f", behind by {behind}" if behind != NOTHING else ""),
        "state": group["group_state"],
        "type": group["group_type"],
        "assignor": group["assignor"],
        "coordinator": f"broker {coordinator}" if isinstance(coordinator, int) else coordinator,
        "members": number(group["num_members"]),
        "partitions": number(group["num_partitions"]),
    }
    return printable(", ".join(f"{name} {value}" for name, value in facts.items() if value))


def _member_table(
    head: dict[str, Any],
    total: dict[str, Any],
    by_member: list[dict[str, Any]],
    members: dict[str | None, dict[str, Any]],
) -> Table:
    clients = client_names(members.values())
    rows = [row | {name: members.get(row["member_id"], {}).get(name) for name in _SPEED} for row in by_member]
    columns = (
        Column("member", lambda row: row["member_id"] or _no_owner_text(total)),
        Column("client", lambda row: clients.get(row["member_id"] or "", "")),
        NUM_PARTITIONS,
        *_unknown_column(by_member),
        _LAG,
        *(_SPEED_COLUMNS if any(row["speed_records_per_s"] is not None for row in rows) else ()),
    )
    return Table(
        f"{total['group_id']} on {head['cluster']}, read at {moment(head['read_at'])}",
        columns,
        rows,
        optional=("partitions", "client", "confidence", "speed/s"),
        caption=_caption(_lower_bound_text([total], _ABOUT_MEMBERS), [total]),
    )


@dataclass(frozen=True, slots=True)
class LagRequest:
    """The arguments of the command for a running cluster."""

    target: ReadTarget
    group: str | None
    limit: int
    choice: GroupChoice
    as_json: bool
    export: Path | None


@contextmanager
def _open_reader(request: LagRequest, window_s: float) -> Iterator[LiveReader]:
    from evenlag.kafka.connection import admin_client
    from evenlag.live_lag.snapshot import LiveReader

    with admin_client(request.target.settings, request.target.client) as client:
        yield LiveReader(client, request.target, window_s)


def _show_once(request: LagRequest) -> None:
    with _open_reader(request, window_s=0.0) as reader:
        snapshot = reader.read(request.group)
    if request.export is not None:
        export_and_report(_exported(request, snapshot), request.export)
    if request.as_json:
        print_json(_answer(request, snapshot))
    else:
        console().print(_rendered(request, View(_source(request), request.limit), snapshot))


def _watch(request: LagRequest, every_s: float) -> None:
    """Show snapshots until Ctrl-C. A snapshot that fails is reported, and the next one is taken."""
    has_screen = sys.stdout.isatty() and not request.as_json
    snapshots = _Snapshots(request, every_s)
    try:
        with snapshots.connection, _screen() if has_screen else nullcontext(_print_below) as show:
            while True:
                begun = time.monotonic()
                show(snapshots.take())
                time.sleep(max(0.0, begun + every_s - time.monotonic()))
    except KeyboardInterrupt:
        console(stderr=True).print(f"stopped after {number(snapshots.count)} snapshots")
        raise typer.Exit(130) from None


def _print_below(taken: Taken) -> None:
    """Print a snapshot below the one before: JSON on one line, or a table."""
    if isinstance(taken, JobError):
        print_error(f"{taken}; trying again")
    elif isinstance(taken, dict):
        print_json(taken, is_line=True)
    else:
        console().print(taken)
        sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Callable[[Any], None]]:
    """Refresh a full screen in place; the last snapshot stays visible below the command."""
    from rich.live import Live

    out = console()
    tables: list[RenderableType] = []

    def show(taken: RenderableType | JobError) -> None:
        if isinstance(taken, JobError):
            live.update(Group(*tables, f"{taken}; trying again"), refresh=True)
        else:
            tables[:] = [taken]
            live.update(taken, refresh=True)

    try:
        with Live("connecting…", console=out, screen=True, auto_refresh=False) as live:
            yield show
    finally:
        if tables:
            out.print(*tables)


class _Snapshots:
    """Takes snapshots one after the other over one connection, with the rates between them."""

    def __init__(self, request: LagRequest, every_s: float) -> None:
        from evenlag.live_lag.answer import RecentLags, rate_window_s

        self.connection = ExitStack()
        self._request = request
        self._window_s = rate_window_s(every_s)
        self._reader: LiveReader | None = None
        self._recent = RecentLags()
        self.count = 0

    def take(self) -> Taken:
        """Read the cluster, and return what to show; an error that does not pass ends the command."""
        from evenlag.kafka.connection import kafka_errors

        request = self._request
        try:
            with kafka_errors(request.target.settings):
                snapshot = self._connected().read(request.group)
        except JobError as error:
            if not self.count and not error.retriable:
                raise
            return error
        self.count += 1
        self._recent.add(snapshot)
        if request.as_json:
            return _answer(request, snapshot)
        out, limit = console(), request.limit
        if out.is_terminal:
            limit = min(limit, max(out.height - _FRAME_LINES, _FEWEST_ROWS))
        return _rendered(request, View(_source(request), limit, self._recent), snapshot)

    def _connected(self) -> LiveReader:
        if self._reader is None:
            self._reader = self.connection.enter_context(_open_reader(self._request, self._window_s))
        return self._reader


def _rendered(request: LagRequest, view: View, snapshot: LiveSnapshot) -> RenderableType:
    from evenlag.live_lag.answer import describe_group, list_groups, preview_plans

    settings_of = request.target.settings_of
    if request.group is not None:
        preview = preview_plans(snapshot, [request.group], settings_of)[request.group]
        return group_view(view, snapshot, describe_group(snapshot, request.group, preview), preview)
    groups = request.choice.of(list_groups(snapshot))
    previews = preview_plans(snapshot, [row["group_id"] for row in groups[: view.limit]], settings_of)
    return groups_view(view, snapshot, groups, previews)


def _answer(request: LagRequest, snapshot: LiveSnapshot) -> dict[str, Any]:
    """Return the snapshot for JSON: all groups with their plans, or one group with all its rows."""
    from evenlag.live_lag.answer import describe_group, list_groups, preview_plans

    head = {
        "cluster": request.target.name,
        "source": "cluster",
        "kafka_cluster_id": snapshot.kafka_cluster_id,
        "read_at": snapshot.ends_read_at,
        "problems": [asdict(each) for each in snapshot.problems],
    }
    if request.group is not None:
        preview = preview_plans(snapshot, [request.group], request.target.settings_of)[request.group]
        return head | describe_group(snapshot, request.group, preview)
    groups = request.choice.of(list_groups(snapshot))
    previews = preview_plans(snapshot, [row["group_id"] for row in groups], request.target.settings_of)
    return head | {"groups": [row | {"plan": previews[row["group_id"]].as_dict()} for row in groups]}


def _exported(request: LagRequest, snapshot: LiveSnapshot) -> list[dict[str, Any]]:
    """Return the rows for a file: the groups, or the partitions of one group."""
    answer = _answer(request, snapshot)
    head = {key: answer[key] for key in ("cluster", "read_at")}
    if request.group is not None:
        return [head | {"group_id": request.group} | row for row in answer["partitions"]]
    rows = []
    for row in answer["groups"]:
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
    shown = groups[: view.limit]
    columns = (
        GROUP,
        numbers("lag", _lag_or_note),
        *_rate_columns(view),
        numbers("most loaded", lambda row: bounded(row["max_member_lag_records"], row["lag_bound"])),
        numbers(_PLAN, lambda row: _preview_text(previews.get(row["group_id"]))),
        _SKEW,
        _BEHIND_BY,
        NUM_MEMBERS,
        NUM_PARTITIONS,
        Column("type", lambda row: row["group_type"] or NOTHING),
        Column("state", lambda row: row["group_state"] or NOTHING),
    )
    more = _meaning(previews), left_out_groups_text(groups, view.limit), _problems(snapshot)
    return Table(
        f"Lag on {view.source}, read at {moment(snapshot.ends_read_at)}",
        columns,
        shown,
        optional=("type", "state", "members", "partitions", "out/s", "in/s", "skew", "trend"),
        caption=_caption(_lower_bounds(groups), shown, *more),
    )


def group_view(
    view: View, snapshot: LiveSnapshot, group: Mapping[str, Any], preview: PlanPreview
) -> RenderableType:
    """Return the tables of members and partitions of a group, as `describe_group` returns it."""
    members = [row["member_id"] for row in group["members"] if row["member_id"] is not None]
    places = {member: f"#{place}" for place, member in enumerate(members, start=1)}
    owner = [Column("member", lambda row: _owner(row, places))]
    if preview.is_change:
        owner.append(Column(_PLAN, lambda row: places.get(row["planned_owner_member_id"] or "", "")))
    optional = ("end", "committed", "status", "drained in", "in/s", "out/s", "behind by")
    has_rates = view.recent is not None
    return Group(
        _facts(group),
        _live_member_table(view, snapshot, group, places),
        _verdict(group, preview),
        _partition_table(group["partitions"], view.limit, owner, optional, has_rates=has_rates),
    )


def _live_member_table(
    view: View, snapshot: LiveSnapshot, group: Mapping[str, Any], places: Mapping[str, str]
) -> Table:
    columns = (
        numbers("#", lambda row: places.get(row["member_id"], "")),
        Column("member", lambda row: row["member_id"] or _no_owner_text(group)),
        Column("client", lambda row: row["group_instance_id"] or row["client_id"] or NOTHING),
        Column("host", lambda row: (row["client_host"] or NOTHING).removeprefix("/")),
        NUM_PARTITIONS,
        *_unknown_column([group]),
        _LAG,
        numbers(f"lag {_PLAN}", lambda row: number(row["planned_lag_records"])),
        numbers(f"partitions {_PLAN}", lambda row: number(row["planned_partitions"])),
    )
    title = f"{group['group_id']} on {view.source}, read at {moment(snapshot.ends_read_at)}"
    if view.recent is not None:
        from evenlag.live_lag.answer import sparkline

        title += f", lag {sparkline(view.recent.lags(group['group_id']), 2 * _TREND_CELLS)}"
    return Table(
        title,
        columns,
        group["members"],
        optional=("host", "partitions with a plan", "client", "partitions"),
        caption=_caption(_lower_bounds([group]), [group], _problems(snapshot)),
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
    from evenlag.live_lag.answer import sparkline

    return (*_RATES, Column("trend", lambda row: sparkline(recent.lags(row["group_id"]), _TREND_CELLS)))


def _preview_text(preview: PlanPreview | None) -> str:
    if preview is None or preview.blocker is not None:
        return NOTHING
    if not preview.is_change:
        return "as it is"
    return f"{number(preview.max_member_lag_after_records)} · {count_of(preview.moves, 'move')}"


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
        f"from {bound}{number(before)} to {bound}{number(after)} with {count_of(preview.moves, 'move')}."
    )


def _meaning(previews: Mapping[str, PlanPreview]) -> str:
    names = sorted({preview.assignor for preview in previews.values() if preview.is_change})
    if not names:
        return ""
    return f"{_PLAN}: lag of the most loaded member if the group followed a plan by {', '.join(names)}"


def _lower_bounds(rows: Sequence[Mapping[str, Any]]) -> str:
    is_uncommitted = any(row["statuses"].get(LagStatus.NO_COMMIT) for row in rows)
    advice = "; --reset-policy counts partitions without a commit" if is_uncommitted else ""
    return _lower_bound_text(rows, f"≥ is a lower bound{advice}")


def _problems(snapshot: LiveSnapshot) -> str:
    problems = snapshot.problems
    if not problems:
        return ""
    shown = [f"{each.kind} {each.name}: {each.error}" for each in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(shown)
    return f"Not read: {'; '.join(shown)}" + (f"; and {more} more" if more else "")


def _unknown_column(rows: Rows) -> tuple[Column, ...]:
    """Return the column of partitions with unknown lag; none if there are none."""
    if not any(row["num_unknown_partitions"] for row in rows):
        return ()
    return (numbers("unknown", lambda row: number(row["num_unknown_partitions"])),)


def _no_owner_text(group: Mapping[str, Any]) -> str:
    """Return the text in place of a member, for partitions without a known owner."""
    return "nobody" if group["owner_problem"] is None else "nobody, or not known"


def _lower_bound_text(rows: Rows, meaning: str) -> str:
    """Return how many partitions' lag is unknown and what that means; empty if all is known."""
    num_unknown = sum(row["num_unknown_partitions"] for row in rows)
    if not num_unknown:
        return ""
    num_partitions = sum(row["num_partitions"] for row in rows)
    return f"The lag of {num_unknown:,} of {num_partitions:,} partitions is not known: {meaning}"


def _left_out_text(count: int, limit: int, what: str) -> str:
    """Return how many rows a limit leaves out; empty if it leaves out none."""
    return f"{count - limit:,} more {what}: --limit {count}" if count > limit else ""


def left_out_groups_text(groups: Rows, limit: int) -> str:
    """Return how many groups a limit leaves out, and the names of those whose lag is unknown.

    Groups are sorted by their known lag: those of unknown lag, which may be the largest, are left out first.
    """
    unknown = [
        row["group_id"]
        for row in groups[limit:]
        if row["lag_records"] is None or row["num_unknown_partitions"]
    ]
    names = ", ".join(unknown[:_MOST_NAMED])
    more = f" and {len(unknown) - _MOST_NAMED:,} more" if len(unknown) > _MOST_NAMED else ""
    named = f"; of unknown lag: {names}{more}" if unknown else ""
    return _left_out_text(len(groups), limit, "groups") + named


def _caption(unknown_lag: str, rows: Rows, *more: str) -> str:
    """Return what is not known or not counted of some groups, and more, as sentences."""
    return ". ".join(filter(None, (unknown_lag, unknown_facts_text(rows), left_topics_text(rows), *more)))


def _partition_table(
    partitions: Rows, limit: int, owner: Sequence[Column], optional: Sequence[str], *, has_rates: bool = True
) -> Table:
    """Return the table of a group's partitions; `owner` are the columns that describe it."""
    status = Column("status", lambda row: status_text(row["status"]))
    rates, drained = (_RATES, _DRAINED) if has_rates else ((), ())
    columns = (TOPIC, PARTITION, *owner, status, *_OFFSETS, _LAG, *rates, _BEHIND_BY, *drained)
    left_out = _left_out_text(len(partitions), limit, "partitions")
    return Table("", columns, partitions[:limit], optional=optional, caption=left_out)
