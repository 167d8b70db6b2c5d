"""Two attempts at a slot: the first marker counts, and whatever follows is of its snapshot."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from evenlag.cli.app import app
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.tables import (
    AUDITED_SNAPSHOTS,
    COMPARISONS,
    LAG,
    OWNERSHIP,
    SNAPSHOTS,
)
from evenlag.overview.metrics import read_metrics
from evenlag.policy.loader import parse_policy
from evenlag.report.read_report import read_report
from spark_jobs.compare import Request, run_compare
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.support.lakes.cycle_lake import GROUPS, POLICY, SECOND, write_snapshot
from tests.support.lakes.snapshots import DAY, NOW, SNAPSHOT

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

LOSER = "20260301T120000000Z-00000009"


@pytest.mark.extended
def test_of_two_attempts_at_a_slot_the_first_marker_counts_and_the_other_s_lag_is_not_read(
    lake: Lake,
) -> None:
    reader = LakeReader(lake.paths.root)
    winner = write_snapshot(lake, SNAPSHOT, {}, is_kept=True)
    # The same slot, with ten times the lag, and other owners.
    swapped = {group: {"m-1": [2, 3], "m-2": [0, 1]} for group in GROUPS}
    write_snapshot(lake, LOSER, swapped, is_kept=True, factor=10)
    assert reader.read(SNAPSHOTS)["snapshot_id"].to_pylist() == [SNAPSHOT]
    assert find_marker(reader, "c", NOW) == reader.latest_snapshot("c")
    assert Counter(reader.read(LAG)["snapshot_id"].to_pylist()) == {SNAPSHOT: 25, LOSER: 25}

    # 900 + 800 + 10 + 10, and 20 in the even group; m-1 has the first two partitions.
    total, largest = 1_720, 1_700
    done = CliRunner().invoke(app, ["lag", "--lake", lake.paths.root, "--json"])
    assert done.exit_code == 0, done.output
    content = {group["group_id"]: group for group in json.loads(done.stdout)["groups"]}
    assert (content["billing"]["lag_records"], content["billing"]["max_member_lag_records"]) == (
        total,
        largest,
    )
    report = read_report(reader, "c", "billing")
    assert (report.num_snapshots, report.now["lag_records"], report.now["max_member_lag_records"]) == (
        1,
        total,
        largest,
    )
    metrics = read_metrics(lake.paths.root, "c", NOW)
    assert metrics["lag.records"] == 5 * total + 20
    assert winner.rows(LAG).num_rows == 25

    assert audit_assignments(lake, "c").days == (DAY,)
    assert reader.read(AUDITED_SNAPSHOTS)["snapshot_id"].to_pylist() == [SNAPSHOT]
    owners = {
        (row["group_id"], row["partition"]): row["member_id"] for row in reader.read(OWNERSHIP).to_pylist()
    }
    assert owners["billing", 0] == "m-1"
    # History of the next snapshot: 400 records in 300 s, since the first marker's commits.
    write_snapshot(lake, SECOND, {}, is_kept=True)
    rates = {
        (row["group_id"], row["partition"]): row["consume_rate_records_per_s"]
        for row in reader.read(LAG, filters=[("snapshot_id", "=", SECOND), ("topic", "=", "t")]).to_pylist()
    }
    assert rates["billing", 0] == pytest.approx(400 / 300)
    loaded = parse_policy(POLICY.replace("/nowhere", lake.paths.root), environ={})
    run_compare(lake, loaded, Request("c", DAY, DAY, names=("range",)))
    compared = reader.read(COMPARISONS).to_pylist()
    assert {row["snapshot_id"] for row in compared} == {SNAPSHOT, SECOND}
