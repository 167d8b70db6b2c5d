"""Write one snapshot of a cluster, with its lag; it is visible only when it is complete.

The rows of ``offsets``, ``commits``, ``members`` and ``lag`` are written under a new snapshot id, then the
marker in ``snapshots``, unless the slot has one: of two attempts at one slot the first marker wins, and the
other attempt's rows are never read. A repeat of a slot that has a marker reads nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from evenlag.enums import GroupType
from evenlag.errors import ClusterMismatchError, LakeConflictError
from evenlag.kafka.arrow_rows import problem_rows
from evenlag.kafka.cluster_reader import ClusterReader, ClusterSnapshot
from evenlag.kafka.connection import admin_client, request_limits
from evenlag.lake.arrow_schema import with_head
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_ids import floor_to_ms, new_snapshot_id
from evenlag.lake.snapshot_reader import MAX_DRIVER_ROWS, find_marker
from evenlag.lake.table_properties import LONGEST_COMMIT_S
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger
from evenlag.planning.forecast_snapshot import read_expected
from evenlag.policy.settings import Policy
from evenlag.publishing.writing.topic_settings import read_max_bytes
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.frames import run_in_parallel
from spark_jobs.runtime.progress import ReportProgress, no_progress
from spark_jobs.runtime.turns import CYCLE_TURNS
from spark_jobs.steps.compute_lag import compute_lag
from spark_jobs.steps.snapshot_rows import SnapshotRows

_LOG = named_logger(__name__)
_OF_GROUPS: Final = frozenset({"group", "commits"})


@dataclass(frozen=True, slots=True)
class Collected:
    """The slot's finished snapshot, whichever run wrote it."""

    rows: SnapshotRows
    is_new: bool

    def summary(self) -> dict[str, Any]:
        """Return what the snapshot has, whoever took it, for the table ``runs``."""
        marker = self.rows.marker
        num_problems, problems = marker["num_problems"], marker["problems"] or ()
        return {
            "snapshot_id": self.rows.snapshot_id,
            "is_new": self.is_new,
            "num_groups": marker["num_groups"],
            "num_partitions": marker["num_partitions"],
            # Older markers have a list of at most 1,000, and no number.
            "num_problems": len(problems) if num_problems is None else num_problems,
            "num_unread_groups": marker["num_unread_groups"],
            "unread_group": next(
                (f"{each['name']}: {each['error']}" for each in problems if each["kind"] in _OF_GROUPS), None
            ),
        }


def collect_snapshot(
    lake: Lake,
    policy: Policy,
    name: str,
    slot: datetime,
    *,
    run_id: str,
    progress: ReportProgress = no_progress,
) -> Collected:
    """Write a snapshot of a cluster for a slot; do nothing when the slot already has one."""
    slot, cluster = floor_to_ms(slot), policy.clusters[name]
    reader = LakeReader(lake.paths.root)
    if found := find_marker(reader, name, slot):
        _LOG.info("slot %s of %s already has the snapshot %s", slot.isoformat(), name, found["snapshot_id"])
        return Collected(SnapshotRows(lake, reader, found), is_new=False)
    # Before any request: without the pseudonymization key nothing may be written.
    pseudonymizer = cluster.privacy.pseudonymizer()
    snapshot_id = new_snapshot_id(slot)
    head = {"cluster": name, "day": slot.date(), "snapshot_id": snapshot_id}
    with admin_client(cluster) as client:
        cluster_reader = ClusterReader(
            client,
            ignored_topics=frozenset({cluster.hint_topic}),
            limits=request_limits(cluster),
            known_groups=partial(_known_groups, lake, reader, name),
            pseudonymizer=pseudonymizer,
            reset_policy_of=lambda group_id: policy.group_settings(name, group_id).reset_policy,
            from_followers=cluster.fetch_from_followers,
            expected=partial(read_expected, reader, name),
        )
        reading = cluster_reader.read(progress=progress)
        max_bytes = read_max_bytes(client, cluster.hint_topic)
    _check_cluster_id(reader, name, reading.inventory.kafka_cluster_id)
    attempt = SnapshotRows(lake, reader, _marker(head, slot, run_id, reading, max_bytes))
    progress("observe: computing lag", 0, 1)
    with CYCLE_TURNS.turn():
        _write_rows(attempt, reading, policy)
    progress("observe: computing lag", 1, 1)
    if (datetime.now(UTC) - attempt.marker["started_at"]).total_seconds() > LONGEST_COMMIT_S:
        raise LakeConflictError(f"the snapshot of {name} took so long that its rows may be lost")
    of_slot = [(column, "=", attempt.marker[column]) for column in ("cluster", "day", "slot")]
    append_once(lake.paths.root, SNAPSHOTS, [attempt.marker], of_slot)
    # The marker of the first attempt, whichever that was.
    marker = find_marker(reader, name, slot) or attempt.marker
    is_new = marker["snapshot_id"] == snapshot_id
    return Collected(attempt if is_new else SnapshotRows(lake, reader, marker), is_new=is_new)


def _check_cluster_id(reader: LakeReader, name: str, kafka_cluster_id: str) -> None:
    """Refuse to mix the histories of two clusters under one name; the newest snapshot stands for all."""
    newest = reader.latest_snapshot(name)
    if newest is not None and newest["kafka_cluster_id"] != kafka_cluster_id:
        raise ClusterMismatchError(
            f"the brokers of {name!r} report the cluster id {kafka_cluster_id}, but the lake has "
            f"{newest['kafka_cluster_id']} under this name: correct bootstrap_servers, or use a new name"
        )


def _known_groups(lake: Lake, reader: LakeReader, name: str) -> dict[str, str]:
    """The types of the newest snapshot's groups by id."""
    newest = reader.latest_snapshot(name)
    if newest is None:
        return {}
    of_newest = SnapshotRows(lake, reader, newest).filters
    rows = reader.read(MEMBERS, columns=["group_id", "group_type"], filters=of_newest)
    pairs = zip(rows["group_id"].to_pylist(), rows["group_type"].to_pylist(), strict=True)
    return {group_id: group_type or GroupType.CLASSIC.value for group_id, group_type in pairs}


def _write_rows(attempt: SnapshotRows, reading: ClusterSnapshot, policy: Policy) -> None:
    """Write the rows of an attempt that the driver has read, and its lag."""
    appends = []
    parts = ((OFFSETS, reading.offsets), (COMMITS, reading.commits), (MEMBERS, reading.members))
    for table, found in parts:
        rows = with_head(found, table, attempt.marker)
        if rows.num_rows <= MAX_DRIVER_ROWS:
            attempt.keep(table, rows)
        appends.append(partial(append_once, attempt.lake.paths.root, table, rows, None))
    run_in_parallel(*appends)
    compute_lag(attempt, policy)


def _marker(
    head: Mapping[str, Any],
    slot: datetime,
    run_id: str,
    reading: ClusterSnapshot,
    hint_topic_max_bytes: int | None,
) -> dict[str, Any]:
    """Return the attempt's row of ``snapshots``."""
    inventory = reading.inventory
    num_partitions = len(inventory.partitions)
    return {
        **head,
        "slot": slot,
        "kafka_cluster_id": inventory.kafka_cluster_id,
        "run_id": run_id,
        **reading.read_times,
        "num_groups": len(inventory.listed),
        "num_topics": len(inventory.partitions.names),
        "num_partitions": num_partitions,
        "num_unread_partitions": reading.num_unread_partitions,
        "completeness": 1.0 - reading.num_unread_partitions / num_partitions if num_partitions else 1.0,
        "problems": problem_rows(reading.problems),
        "hint_topic_max_bytes": hint_topic_max_bytes,
        "num_problems": sum(problem.count for problem in reading.problems),
        "num_unread_groups": reading.num_unread_groups,
    }
