"""`evenlag lag -b` and `evenlag lag --live`: the lag of a running cluster, once or until Ctrl-C."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from evenlag.cli.cluster_target import find_target
from evenlag.cli.console import console, print_error, print_json, print_line
from evenlag.cli.export import export_rows
from evenlag.enums import LagStatus
from evenlag.errors import JobError
from evenlag.formatting import number

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType

    from evenlag.cli.live_lag.tables import View
    from evenlag.instant_lag.snapshot import InstantReader, InstantSnapshot
    from evenlag.instant_lag.targets import ReadTarget

DEFAULT_INTERVAL_S: Final = 2.0
# Lines of a screen that are no rows of the table: title, headings, borders and caption.
_FRAME_LINES: Final = 9
_FEWEST_ROWS: Final = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command is asked for.

    group: The only group; None: all of them.
    limit: Rows to show at most; on a screen that is refreshed, also at most what fits.
    every_s: Interval of the snapshots; None: one snapshot.
    as_json: Whether to print JSON.
    export: The file to write, too.
    """

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
    from evenlag.instant_lag.targets import policy_target

    target = find_target(bootstrap_servers, config, cluster, reset_policy=reset_policy)
    return policy_target(target.loaded.policy, target.name, is_named=bootstrap_servers is not None)


def show_live_lag(asked: Asked) -> None:
    """Read the cluster and show its lag."""
    from evenlag.instant_lag.rates import rate_window_s
    from evenlag.instant_lag.snapshot import InstantReader
    from evenlag.instant_lag.targets import open_cluster

    window_s = 0.0 if asked.every_s is None else rate_window_s(asked.every_s)
    with open_cluster(asked.target) as client:
        reader = InstantReader(client, asked.target, window_s)
        if asked.every_s is None:
            _show_once(asked, reader)
        else:
            _watch(asked, reader, asked.every_s)


def _show_once(asked: Asked, reader: InstantReader) -> None:
    from evenlag.cli.live_lag.tables import View

    snapshot = reader.read(asked.group)
    if asked.export is not None:
        count = export_rows(_exported(asked, reader, snapshot), asked.export)
        print_line(sys.stderr, f"{number(count)} rows written to {asked.export}")
    if asked.as_json:
        print_json(_answer(asked, reader, snapshot))
        return
    out = console()
    out.print(_rendered(out, asked, View(_source(asked), asked.limit), reader, snapshot))


def _watch(asked: Asked, reader: InstantReader, every_s: float) -> None:
    """Show snapshots until Ctrl-C. A snapshot that fails is reported, and the next one is taken."""
    shown = _Snapshots(asked, reader, every_s)
    try:
        if asked.as_json or not sys.stdout.isatty():
            shown.run_as_lines()
        else:
            shown.run_on_screen()
    except KeyboardInterrupt:
        console(stderr=True).print(f"stopped after {number(shown.num_snapshots)} snapshots")
        raise typer.Exit(130) from None


class _Snapshots:
    """Takes snapshots in the interval of the command, and shows them."""

    def __init__(self, asked: Asked, reader: InstantReader, every_s: float) -> None:
        from evenlag.instant_lag.rates import RecentLags

        self._asked = asked
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
            elif self._asked.as_json:
                print_json(_answer(self._asked, self._reader, snapshot), is_line=True)
            else:
                out.print(self._rendered(out, snapshot))
                sys.stdout.flush()
            self._wait(begun)

    def run_on_screen(self) -> None:
        """Refresh a full screen in place; the last snapshot stays visible below the command."""
        from rich.console import Group
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

    def _read(self) -> InstantSnapshot | JobError:
        from evenlag.kafka.connection import kafka_errors

        try:
            with kafka_errors(self._asked.target.settings):
                snapshot = self._reader.read(self._asked.group)
        except JobError as error:
            # The first snapshot finds mistakes in the call; later on the cluster may be back soon.
            if not self.num_snapshots:
                raise
            return error
        self.num_snapshots += 1
        self._recent.add(snapshot)
        return snapshot

    def _rendered(self, out: Console, snapshot: InstantSnapshot) -> RenderableType:
        from evenlag.cli.live_lag.tables import View

        limit = self._asked.limit
        if out.is_terminal:
            limit = min(limit, max(out.height - _FRAME_LINES, _FEWEST_ROWS))
        view = View(_source(self._asked), limit, self._recent)
        return _rendered(out, self._asked, view, self._reader, snapshot)

    def _wait(self, begun: float) -> None:
        time.sleep(max(0.0, begun + self._every_s - time.monotonic()))


def _rendered(
    out: Console, asked: Asked, view: View, reader: InstantReader, snapshot: InstantSnapshot
) -> RenderableType:
    from evenlag.cli.live_lag.tables import group_view, groups_view
    from evenlag.instant_lag.answer import describe_group, list_groups
    from evenlag.instant_lag.preview import preview_plans

    if asked.group is not None:
        preview = preview_plans(snapshot, [asked.group], reader.settings_of)[asked.group]
        return group_view(out, view, snapshot, describe_group(snapshot, asked.group, preview), preview)
    groups = list_groups(snapshot)
    previews = preview_plans(snapshot, [row["group_id"] for row in groups[: view.limit]], reader.settings_of)
    return groups_view(out, view, snapshot, groups, previews)


def _answer(asked: Asked, reader: InstantReader, snapshot: InstantSnapshot) -> dict[str, Any]:
    """Return the snapshot for JSON: all groups with their plans, or one group with all its rows."""
    from evenlag.instant_lag.answer import describe_group
    from evenlag.instant_lag.preview import preview_plans

    head = {
        "cluster": asked.target.name,
        "source": "cluster",
        "kafka_cluster_id": snapshot.kafka_cluster_id,
        "read_at": snapshot.ends_read_at,
        "problems": [
            {"kind": each.kind, "name": each.name, "error": each.error, "count": each.count}
            for each in snapshot.problems
        ],
    }
    if asked.group is None:
        return head | {"groups": _groups(reader, snapshot)}
    preview = preview_plans(snapshot, [asked.group], reader.settings_of)[asked.group]
    return head | describe_group(snapshot, asked.group, preview)


def _groups(reader: InstantReader, snapshot: InstantSnapshot) -> list[dict[str, Any]]:
    from evenlag.instant_lag.answer import list_groups
    from evenlag.instant_lag.preview import preview_plans

    groups = list_groups(snapshot)
    previews = preview_plans(snapshot, [row["group_id"] for row in groups], reader.settings_of)
    return [row | {"plan": previews[row["group_id"]].as_dict()} for row in groups]


def _exported(asked: Asked, reader: InstantReader, snapshot: InstantSnapshot) -> list[dict[str, Any]]:
    """Return the rows for a file: the groups, or the partitions of one group."""
    head = {"cluster": asked.target.name, "read_at": snapshot.ends_read_at}
    if asked.group is not None:
        group = _answer(asked, reader, snapshot)
        return [head | {"group_id": asked.group} | row for row in group["partitions"]]
    rows = []
    for row in _groups(reader, snapshot):
        plan = {f"plan_{name}": value for name, value in row.pop("plan").items()}
        counts = row.pop("statuses")
        statuses = {f"num_{name.lower()}_partitions": counts.get(name, 0) for name in LagStatus}
        rows.append(head | row | statuses | plan)
    return rows


def _source(asked: Asked) -> str:
    return f"{asked.target.name} ({', '.join(asked.target.settings.bootstrap_servers)})"
