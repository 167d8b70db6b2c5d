"""A lake of two snapshots that steps of a cycle work on: what was read is written here, lag by the step."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.policy.loader import parse_policy
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.snapshots import HEAD, NOW, SNAPSHOT, arrow, commit, marker, member, offset
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

Owners = dict[str, dict[str, list[int]]]
POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups:
  - {match: "shadow-*", mode: shadow, assignor: lag-aware-sticky, back_off: {horizon_s: 60}}
  - {match: "watched", mode: observe}
  - {match: "*", mode: auto, assignor: lag-aware-sticky, min_gain: 0.1, reset_policy: earliest,
     back_off: {horizon_s: 60}, gates: {cooldown_s: 0}}
"""
# Names that a filter or a file name might take apart.
GROUPS = ("billing", 'o\'brien \\ "x", ü', "shadow-1", "watched", "even", "unread")
BEHIND = {"even": (5, 5, 5, 5)}
FIRST, SECOND = SNAPSHOT, "20260301T120500000Z-00000002"
LATER = NOW + timedelta(minutes=5)
HELD = {"m-1": [0, 1], "m-2": [2, 3]}


def write_snapshot(
    lake: Lake, snapshot_id: str, owners: Owners, *, is_kept: bool, factor: int = 1
) -> SnapshotRows:
    """Write what was read for a snapshot, and its lag and marker as the step does.

    lake, snapshot_id: Where to, and the id: that of :data:`SECOND` is five minutes later than all others.
    owners: Partitions by member and group; a group that is missing has :data:`HELD`.
    factor: Lag is so many times as large.
    """
    at = LATER if snapshot_id == SECOND else NOW
    end = 11_400 if snapshot_id == SECOND else 11_000
    of_snapshot: dict[str, Any] = {"snapshot_id": snapshot_id}
    offsets = [offset(number, end, end_read_at=at, **of_snapshot) for number in range(4)]
    offsets.append(offset(0, end, topic="u", error="LeaderNotAvailableError", end_read_at=at, **of_snapshot))
    commits, members = [], []
    for group in GROUPS:
        behind = BEHIND.get(group, (900, 800, 10, 10))
        commits += [
            commit(number, end - factor * behind[number], group=group, read_at=at, **of_snapshot)
            for number in range(4)
        ]
        topics = ("t", "u") if group == "unread" else ("t",)
        members += [
            member(name, group=group, topics=topics, held={"t": numbers}, read_at=at, **of_snapshot)
            for name, numbers in owners.get(group, HELD).items()
        ]
    times = dict.fromkeys(("commits_read_at", "end_read_at", "finished_at"), at)
    ended = HEAD | marker(
        slot=at,
        started_at=at - timedelta(seconds=1),
        num_groups=len(GROUPS),
        num_partitions=5,
        hint_topic_max_bytes=100_000,
        **times,
        **of_snapshot,
    )
    rows = SnapshotRows(lake, LakeReader(lake.paths.root), ended)
    for table, values in ((OFFSETS, offsets), (COMMITS, commits), (MEMBERS, members)):
        write_rows(lake.paths.root, table, arrow(table, values))
        if is_kept:
            rows.keep(table, arrow(table, values))
    compute_lag(rows, parse_policy(POLICY, environ={}).policy)
    of_slot = [(name, "=", ended[name]) for name in ("cluster", "day", "slot")]
    append_once(lake.paths.root, SNAPSHOTS, [ended], of_slot)
    return rows
