"""Each number of the overview is what the recorded lakes hold, by a reader of its own."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG
from evenlag.overview.read_cluster import NUM_POINTS, LagHistory, read_cluster
from tests.truth.oracle.expected.figures import hot_partitions, open_requests
from tests.truth.oracle.expected.lag import group_rows
from tests.truth.oracle.lake_rows import LakeRows, counted
from tests.truth.recorded_lakes import RecordedLake, each_lake, extract

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from evenlag.overview.model import ClusterState, GroupRow


@pytest.fixture(scope="module", params=each_lake())
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RecordedLake:
    return extract(request.param, tmp_path_factory.mktemp(request.param))


def overviews(lake: RecordedLake) -> list[tuple[LakeRows, ClusterState, dict[str, GroupRow]]]:
    found = []
    for cluster in lake.clusters:
        rows = LakeRows(lake.root, cluster)
        now = rows.newest["finished_at"] + timedelta(seconds=1)
        state, groups = read_cluster(LakeReader(str(lake.root)), cluster, now)
        found.append((rows, state, {row.group_id: row for row in groups}))
    return found


def test_lag_skew_and_time_behind_are_those_of_the_newest_snapshot(lake: RecordedLake) -> None:
    for rows, state, groups in overviews(lake):
        assert state.read_at == rows.newest["end_read_at"]
        expected = group_rows(rows, rows.newest["snapshot_id"])
        assert {row["group_id"] for row in expected} <= set(groups)
        for row in expected:
            shown = groups[row["group_id"]]
            assert shown.lag_records == row["lag_records"]
            assert shown.max_member_lag_records == row["max_member_lag_records"]
            assert shown.lag_skew == pytest.approx(row["lag_skew"])
            assert (shown.num_members, shown.num_partitions) == (row["num_members"], row["num_partitions"])
            assert shown.num_unknown_partitions == row["num_unknown_partitions"]
            assert (shown.time_lag_ms, shown.num_unknown_time_lags) == (
                row["time_lag_ms"],
                row["num_unknown_time_lags"],
            )


def test_every_group_of_the_snapshot_has_a_row_with_its_state(lake: RecordedLake) -> None:
    for rows, _, groups in overviews(lake):
        members = rows.where("members", snapshot_id=rows.newest["snapshot_id"])
        assert {name: row.state for name, row in groups.items()} == {
            row["group_id"]: row["group_state"] for row in members
        }


def lag_of(rows: LakeRows, snapshot_id: str, group_id: str) -> int | None:
    """A group's lag in a snapshot; None where some of it is not known."""
    lag = counted(rows.lag_of(snapshot_id))
    values = [row["lag_records"] for row in lag if row["group_id"] == group_id]
    return sum(values) if values and None not in values else None


def test_the_trend_is_the_lag_of_the_last_snapshots(lake: RecordedLake) -> None:
    for rows, _, groups in overviews(lake):
        last = [row["snapshot_id"] for row in rows.snapshots[-NUM_POINTS:]]
        for group_id, row in groups.items():
            assert list(row.trend) == [lag_of(rows, name, group_id) for name in last]


def test_a_group_drains_as_slowly_as_its_slowest_partition(lake: RecordedLake) -> None:
    for rows, _, groups in overviews(lake):
        for group_id, row in groups.items():
            newest = counted(rows.lag_of(rows.newest["snapshot_id"]))
            lag = [each for each in newest if each["group_id"] == group_id]
            assert row.num_stalled == sum(bool(each["stalled"]) for each in lag)
            behind = [each for each in lag if each["lag_records"] != 0]
            if any(
                each["lag_records"] and each["drain_time_ms"] is None
                and each["consume_rate_records_per_s"] is not None
                for each in behind
            ):  # fmt: skip
                expected: float | None = inf
            elif not lag or any(each["drain_time_ms"] is None for each in behind):
                expected = None
            else:
                expected = max((each["drain_time_ms"] for each in behind), default=0)
            assert row.drain_time_ms == expected


def last_by_slot(rows: Sequence[dict[str, Any]], group_id: str) -> dict[str, Any] | None:
    own = sorted((row for row in rows if row["group_id"] == group_id), key=lambda row: row["slot"])
    return own[-1] if own else None


def test_the_last_plan_has_its_last_event_and_its_failed_gates(lake: RecordedLake) -> None:
    rank = ["PROPOSED", "REJECTED", "APPROVED", "PUBLISHED", "APPLIED", "IGNORED", "EXPIRED", "WITHDRAWN"]
    for rows, _, groups in overviews(lake):
        for group_id, row in groups.items():
            plan = last_by_slot(rows.rows("plans"), group_id)
            assert (row.plan is None) == (plan is None)
            if plan is None or row.plan is None:
                continue
            events = rows.where("plan_events", plan_id=plan["plan_id"])
            verdicts = rows.where("gate_results", plan_id=plan["plan_id"], passed=False)
            assert row.plan["plan_id"] == plan["plan_id"]
            assert row.plan["moves"] == plan["moves"]
            assert row.plan["status"] == max((each["event"] for each in events), key=rank.index)
            assert row.plan["failed_gates"] == sorted({each["gate"] for each in verdicts})
            before, after = (
                plan[name]["max_member_lag_records"] for name in ("metrics_before", "metrics_after")
            )
            assert row.plan["max_member_lag_before_records"] == before
            assert row.plan["max_member_lag_predicted_records"] == after


def test_the_last_hint_is_the_newest_outcome_that_no_newer_hint_replaced(lake: RecordedLake) -> None:
    for rows, _, groups in overviews(lake):
        for group_id, row in groups.items():
            settled = [
                each
                for each in rows.rows("outcomes")
                if not (each["reason"] or "").startswith("a newer plan took its place")
            ]
            outcome = last_by_slot(settled, group_id)
            assert (row.hint and row.hint["plan_id"]) == (outcome and outcome["plan_id"])
            assert (row.hint and row.hint["outcome"]) == (outcome and outcome["outcome"])


def test_open_approvals_and_hot_partitions_are_marked(lake: RecordedLake) -> None:
    for rows, _, groups in overviews(lake):
        now = rows.newest["finished_at"] + timedelta(seconds=1)
        waiting = [row for row in groups.values() if row.approval_until is not None]
        assert len(waiting) == open_requests(rows, now)
        assert {name: row.hot for name, row in groups.items() if row.hot} == {
            hot["group_id"]: f"{hot['topic']}-{hot['partition']}" for hot in hot_partitions(rows)
        }


def test_rows_hold_until_time_alone_changes_them(lake: RecordedLake) -> None:
    reader = LakeReader(str(lake.root))
    for cluster in lake.clusters:
        now = LakeRows(lake.root, cluster).newest["finished_at"] + timedelta(seconds=1)
        read = read_cluster(reader, cluster, now)
        until = read[0].valid_until
        # A snapshot will be overdue at some time.
        assert until is not None
        assert read_cluster(reader, cluster, until) == read
        state, groups = read_cluster(reader, cluster, until + timedelta(milliseconds=1))
        assert (state.is_stale, state.open_approvals, groups) != (
            read[0].is_stale,
            read[0].open_approvals,
            read[1],
        )


def test_modes_are_those_that_planning_recorded(lake: RecordedLake) -> None:
    for rows, _, groups in overviews(lake):
        decided = {row["slot"] for row in rows.rows("decisions")}
        decisions = {
            row["group_id"]: row
            for row in rows.rows("decisions")
            if row["slot"] == max(decided, default=None)
        }
        for group_id, row in groups.items():
            decision = decisions.get(group_id)
            if decision is not None:
                assert (row.mode, row.decision) == (decision["mode"], decision["decision"])
            elif any(each["snapshot_id"] == rows.newest["snapshot_id"] for each in decisions.values()):
                assert row.mode == "observe"
            else:
                assert row.mode is None


def test_a_snapshot_of_the_past_is_read_once(lake: RecordedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, history, cluster = LakeReader(str(lake.root)), LagHistory(), lake.clusters[0]
    newest = LakeRows(lake.root, cluster).newest
    now = newest["finished_at"]
    read: list[int] = []
    really = LakeReader.read

    def counted(self: LakeReader, table: Any, **more: Any) -> Any:
        rows = really(self, table, **more)
        read.append(rows.num_rows if table is LAG else 0)
        return rows

    monkeypatch.setattr(LakeReader, "read", counted)
    first = read_cluster(reader, cluster, now, history=history)
    of_first, read[:] = sum(read), []
    assert read_cluster(reader, cluster, now, history=history) == first
    of_newest = reader.count(LAG, filters=[("snapshot_id", "=", newest["snapshot_id"])])
    assert sum(read) == of_newest < of_first


def test_the_past_of_many_clusters_is_read_once(
    lake: RecordedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, cluster = LagHistory(), lake.clusters[0]
    snapshots = LakeRows(lake.root, cluster).snapshots[: -NUM_POINTS - 1 : -1]
    # Each address of the lake is a cluster of its own, and all are shown by one page.
    for number in range(30):
        (tmp_path / str(number)).symlink_to(lake.root)
    readers = [LakeReader(str(tmp_path / str(number))) for number in range(30)]
    first = [history.sums(reader, cluster, snapshots, 1_000_000) for reader in readers]
    assert None not in first[0]

    def fail(*_: Any, **__: Any) -> Any:
        pytest.fail("a snapshot was read again")

    monkeypatch.setattr(LakeReader, "read", fail)
    assert [history.sums(reader, cluster, snapshots, 1_000_000) for reader in readers] == first


def test_a_trend_gives_up_its_oldest_snapshots_before_it_reads_too_much(lake: RecordedLake) -> None:
    reader, cluster = LakeReader(str(lake.root)), lake.clusters[0]
    rows = LakeRows(lake.root, cluster)
    newest = rows.snapshots[:-3:-1]
    of_first = len(rows.lag_of(newest[0]["snapshot_id"]))
    assert of_first > 0
    sums = LagHistory().sums(reader, cluster, newest, of_first)
    assert sums[0] is not None
    assert sums[1] is None
