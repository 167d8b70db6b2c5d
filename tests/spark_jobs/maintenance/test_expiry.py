"""Every table, log and transaction id ends: what is older than its retention goes, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.audit.differences import diff
from evenlag.audit.owners import owners_at
from evenlag.audit.period import read_period
from evenlag.audit.rebalances import find_rebalances
from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMPARISONS,
    DOWNSAMPLED_DAYS,
    LAG,
    MEMBERS,
    MEMBERSHIPS,
    OFFSETS,
    OWNERSHIP,
    RUNS,
    SNAPSHOTS,
    Table,
)
from evenlag.lake.upkeep.direct_tables import write_checkpoint
from evenlag.lake.upkeep.erasure import ERASED, Erasure
from spark_jobs.erase import erase
from spark_jobs.maintain import maintain_lake
from spark_jobs.maintenance.maintenance_run import MaintenanceRun
from spark_jobs.maintenance.retention import remove_clients
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.spark_jobs.test_maintain import (
    DAY,
    NOON,
    aged,
    files_of,
    ids_of,
    maintain,
    marker_at,
    named,
    num_files,
    policy,
    rows_of,
    write,
)
from tests.support.lakes.audit_lake import STEP, Seen, at, write_audit
from tests.support.lakes.snapshots import commit, frame, member, offset
from tests.support.spark_tables import append_with_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

DAYS = (date(2025, 1, 10), date(2025, 2, 9), date(2025, 2, 10), date(2025, 3, 1))
NOW = datetime(2025, 3, 12, 3, 30, tzinfo=UTC)


def days_of(lake: Lake, table: Table, cluster: str = "c") -> list[date]:
    return sorted({row["day"] for row in rows_of(lake, table) if row["cluster"] == cluster})


def test_each_table_loses_the_days_that_are_older_than_its_retention(lake: Lake) -> None:
    for table in (RUNS, COMPARISONS):
        rows = [
            {"cluster": cluster, "day": day, "run_id": str(day), "group_id": "g", "policy": "range"}
            for day in DAYS
            for cluster in ("c", "o'ther")
        ]
        write(lake, table, [{name: row[name] for name in row if name in table.column_names} for row in rows])
    kept: dict[str, Any] = {"retention_days": {"runs": 30, "comparisons": 30}}
    planned = maintain_lake(lake, policy(**kept), NOW, steps=("expire",), is_dry_run=True)
    assert (planned.done, days_of(lake, RUNS)) == ({"expired": 8}, list(DAYS))
    only_c = maintain_lake(lake, policy(**kept), NOW, clusters=["c"], steps=("expire",))
    # January as a whole, and the first days of February, of two tables.
    assert (only_c.done, only_c.failures) == ({"expired": 4}, [])
    for table in (RUNS, COMPARISONS):
        assert days_of(lake, table) == list(DAYS[2:])
        assert days_of(lake, table, "o'ther") == list(DAYS)
    assert maintain(lake, "expire", now=NOW, **kept).done == {"expired": 4}
    assert days_of(lake, COMPARISONS, "o'ther") == list(DAYS[2:])
    assert maintain(lake, "expire", now=NOW, **kept).done == {}


RETURNING = [
    *([Seen({"a1": (0, 1), "b1": (2, 3)})] * 2),
    *([Seen({"a2": (0, 1), "b1": (2, 3)})] * 4),  # the same client as a1
    Seen({"a3": (0, 1), "b1": (2, 3)}),  # once more, over midnight
    Seen({"a3": (0, 1), "b2": (2, 3)}),
    *([Seen({"z1": (0, 1), "b2": (2, 3)})] * 2),  # another client
]


def answers(root: str) -> dict[str, Any]:
    """What the audit says of the whole history, but for the clients' names."""
    period = read_period(LakeReader(root), "c", at(0), at(len(RETURNING) - 1), group_id="g")
    rebalances, moves = find_rebalances(period)
    names = {"client_id", "client_host"}
    owners = [
        {name: value for name, value in row.items() if name not in names}
        for number in range(len(RETURNING) - 1)
        for row in owners_at(period, at(number) + STEP / 2)
    ]
    changes = [diff(period, at(0), at(number)) for number in range(1, len(RETURNING))]
    found = {"rebalances": rebalances, "moves": moves, "owners": owners, "changes": changes}
    return found | {"rests_on": period.rests_on()}


@pytest.mark.extended
def test_the_audit_says_the_same_after_the_clients_names_are_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Day by day, oldest first: a client that returned over midnight is known while one day has its names."""
    root = str(tmp_path)
    write_audit(tmp_path, RETURNING)
    before = answers(root)
    counts = [(row["num_moved"], row["num_returned"]) for row in before["rebalances"]]
    assert counts == [(0, 2), (0, 2), (0, 2), (2, 0)]
    of_first = ["SAME", *["RETURNED"] * 6, *["MOVED"] * 2]
    assert [rows[0]["change"] for rows in before["changes"]] == of_first
    lake = Lake(spark, root)
    work = MaintenanceRun(lake, policy().maintenance, datetime.now(UTC), frozenset({"c"}))
    for day in sorted({at(number).date() for number in range(len(RETURNING))}):
        for _ in range(2):  # a killed run is repeated
            remove_clients(work, "c", [day])
        assert answers(root) == before, day
    for row in rows_of(lake, MEMBERSHIPS):
        assert {(each["client_id"], each["client_host"]) for each in row["members"]} == {(None, None)}
    pairs = {
        (each["member_id"], each["next_member_id"])
        for row in rows_of(lake, MEMBERSHIPS)
        for each in row["returned"]
    }
    assert pairs == {("a1", "a2"), ("a2", "a3"), ("b1", "b2")}
    # They are members' names, and are erased like others.
    erase(lake, Erasure("a2", is_group=False))
    left = {each[name] for row in rows_of(lake, MEMBERSHIPS) for each in row["returned"] for name in each}
    assert left == {"a1", "a3", "b1", "b2", ERASED}


def write_members(lake: Lake, minutes: tuple[int, ...]) -> None:
    """Snapshots of a group with one member that has a client id and a host."""
    for table, row in ((MEMBERS, member(held={"t": [0]}, client_id="alice", client_host="/10.0.0.1")),):
        rows = [row | {"snapshot_id": named(minute), "read_at": NOON} for minute in minutes]
        write(lake, table, rows)
    write(lake, OFFSETS, [offset(0, 10, snapshot_id=named(minute)) for minute in minutes])
    write(lake, LAG, [commit(0, 1, snapshot_id=named(minute), status="OK", slot=NOON) for minute in minutes])
    write(lake, SNAPSHOTS, [marker_at(minute) for minute in minutes])


def nameless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without clients' ids and hosts."""
    gone = {"client_id": None, "client_host": None}
    return [
        row
        | ({"members": [one | gone for one in row["members"]], "returned": []} if "members" in row else gone)
        for row in rows
    ]


@pytest.mark.extended
def test_after_raw_days_no_client_is_named_and_after_hourly_days_no_snapshot_is_left(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_members(lake, (0, 5, 65))
    audit_assignments(lake, "c")
    before = {table.name: rows_of(lake, table) for table in (MEMBERSHIPS, OWNERSHIP)}
    assert "alice" in str(before["ownership"])
    assert "alice" in str(before["memberships"])
    old = aged(lake, tmp_path / "old", 4)
    limits: dict[str, Any] = {"raw_days": 30, "hourly_days": 92}
    # What is not downsampled waits, however old it is.
    assert maintain(old, "expire", **limits).done == {}
    assert maintain(old, "downsample", **limits).done == {"begun": 1, "nameless": 1, "downsampled": 1}
    for table in (MEMBERSHIPS, OWNERSHIP):
        assert rows_of(old, table) == sorted(nameless(before[table.name]), key=str)
    versions = {table.name: files_of(old, table).version for table in (MEMBERSHIPS, OWNERSHIP)}
    assert maintain(old, "downsample", **limits).done == {}
    assert ids_of(old, SNAPSHOTS) == ids_of(old, LAG) == [named(0), named(65)]
    # The markers go first. A run that dies after them is continued.
    write_once = Lake.write

    def fail_on_lag(self: Lake, table: Table, work: Callable[[], object]) -> None:
        if table is LAG:
            raise LakeError("no")
        write_once(self, table, work)

    monkeypatch.setattr(Lake, "write", fail_on_lag)
    died = maintain_lake(old, policy(**limits), datetime.now(UTC), steps=("expire",))
    assert (died.done, len(died.failures)) == ({"expired": 1}, 1)
    assert (ids_of(old, SNAPSHOTS), len(ids_of(old, LAG))) == ([], 2)
    monkeypatch.setattr(Lake, "write", write_once)
    assert maintain(old, "expire", **limits).done == {"expired": 1}
    assert ids_of(old, LAG) == []
    assert maintain(old, "downsample", "expire", **limits).done == {}
    # The audit keeps the day, and its intervals.
    assert audit_assignments(old, "c", rebuild=True).days == ()
    assert [row["day"] for row in rows_of(old, DOWNSAMPLED_DAYS)] == [DAY]
    for table in (MEMBERSHIPS, OWNERSHIP):
        assert files_of(old, table).version == versions[table.name]


@pytest.mark.extended
def test_days_that_are_not_old_keep_their_clients(lake: Lake) -> None:
    write_members(lake, (0,))
    audit_assignments(lake, "c")
    in_time = NOON + timedelta(days=29)
    assert maintain(lake, "downsample", now=in_time, raw_days=30).done == {}
    assert "alice" in str(rows_of(lake, OWNERSHIP))


def audited(number: int) -> dict[str, Any]:
    times = dict.fromkeys(("slot", "started_at", "finished_at"), NOON)
    return {"snapshot_id": f"s-{number}", "input_hash": "h", "day": DAY + timedelta(days=number), **times}


@pytest.mark.extended
def test_the_open_month_becomes_few_files_and_one_day_of_it_can_be_replaced(lake: Lake) -> None:
    for number in range(6):
        rows = frame(lake.spark, AUDITED_SNAPSHOTS, [audited(number)])
        lake.replace_days(AUDITED_SNAPSHOTS, rows, "c", [DAY + timedelta(days=number)])
    before = rows_of(lake, AUDITED_SNAPSHOTS)
    assert num_files(lake, AUDITED_SNAPSHOTS) == 6
    sixth = NOON + timedelta(days=5)
    assert maintain(lake, "compact", now=sixth, target_file_mb=64).done == {"compacted": 1}
    assert num_files(lake, AUDITED_SNAPSHOTS) == 1
    assert rows_of(lake, AUDITED_SNAPSHOTS) == before
    assert maintain(lake, "compact", now=sixth, target_file_mb=64).done == {}
    third = DAY + timedelta(days=2)
    others = {f"s-{number}" for number in (0, 1, 3, 4, 5)}
    for ids in ({"new"}, set[str]()):
        found = frame(lake.spark, AUDITED_SNAPSHOTS, [audited(2) | {"snapshot_id": name} for name in ids])
        lake.replace_days(AUDITED_SNAPSHOTS, found, "c", [third])
        assert set(ids_of(lake, AUDITED_SNAPSHOTS)) == others | ids


@pytest.mark.extended
def test_a_table_of_spark_loses_the_ids_of_earlier_versions_with_its_next_checkpoint(
    lake: Lake, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    def append(where: Lake, number: int) -> None:
        rows = frame(where.spark, LAG, [commit(0, number, status="OK")])
        append_with_id(where.paths.root, LAG, rows, f"lag/c/{number}")

    lake.append(LAG, frame(lake.spark, LAG, []))
    for number in range(3):
        append(lake, number)
    old = aged(lake, tmp_path / "old", 5)
    for number in range(3, 10):
        append(old, number)
    write_checkpoint(old.paths, LAG)
    log = old.paths.local_root / LAG.name / "_delta_log"
    pointer = json.loads((log / "_last_checkpoint").read_text(encoding="utf-8"))
    assert pointer["version"] == 10
    (checkpoint,) = log.glob(f"{10:020d}.checkpoint*.parquet")
    ids = {row["appId"] for row in pq.read_table(checkpoint)["txn"].to_pylist() if row is not None}
    assert ids == {f"lag/c/{number}" for number in range(3, 10)}
    assert len(rows_of(old, LAG)) == 10
