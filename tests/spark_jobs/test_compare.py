"""The job that compares: a day of the bench's cluster, killed between its tables, repeated, left alone."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import LakeError, PolicyError, SnapshotNotFoundError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import COMPARISONS, CONTINUOUS_REPLAYS, LAG, PLAN_EVENTS, PLANS, REPLAYS, SNAPSHOTS
from evenlag.policy.loader import parse_policy
from spark_jobs import compare
from spark_jobs.compare import Request, run_compare
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.entry_point import run_job
from tests.bench.backfill import content_hash
from tests.bench.support.backfill_data import CLUSTER, FIRST_DAY, SLOTS, Workload, write_days

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table
    from evenlag.policy.loader import LoadedPolicy

pytestmark = pytest.mark.jvm

GROUPS = 2
REQUEST = Request(CLUSTER, FIRST_DAY, FIRST_DAY)
POLICY = """
lake: {lake}
clusters: {{bench: {{bootstrap_servers: "nowhere:9092"}}}}
comparison: {{policies: [range, cooperative-sticky, lag-aware, "lag-aware-sticky:count_slack=1"]}}
"""


@pytest.fixture(scope="module")
def day(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, LoadedPolicy]:
    """One day x 288 snapshots x 2 groups x 40 partitions."""
    root = tmp_path_factory.mktemp("compared")
    assert write_days(str(root), Workload(GROUPS), 1) == SLOTS * GROUPS * 40
    return Lake(spark, str(root)), parse_policy(POLICY.format(lake=root), environ={})


def test_a_day_is_compared_once(day: tuple[Lake, LoadedPolicy]) -> None:
    lake, loaded = day
    root = lake.paths.local_root
    assert run_compare(lake, loaded, REQUEST)["compared"] == [FIRST_DAY.isoformat()]
    first = content_hash(root, [FIRST_DAY])
    assert run_compare(lake, loaded, REQUEST)["skipped"] == [FIRST_DAY.isoformat()]
    assert content_hash(root, [FIRST_DAY]) == first
    _look_at(LakeReader(str(root)))


@pytest.mark.extended
def test_a_day_that_is_killed_between_its_tables_is_repeated_to_the_same_rows(
    day: tuple[Lake, LoadedPolicy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, loaded = day
    root = tmp_path / "lake"
    written = (COMPARISONS.name, REPLAYS.name, CONTINUOUS_REPLAYS.name)
    shutil.copytree(source.paths.local_root, root, ignore=shutil.ignore_patterns(*written))
    lake = Lake(source.spark, str(root))

    def die_at(table: Table, *arguments: object, **options: object) -> None:
        if table is REPLAYS:
            raise LakeError("killed")
        replace(table, *arguments, **options)  # type: ignore[arg-type]  # handed on as they came

    replace = lake.replace_days
    monkeypatch.setattr(lake, "replace_days", die_at)
    with pytest.raises(LakeError, match="killed"):
        run_compare(lake, loaded, REQUEST)
    monkeypatch.undo()
    before = content_hash(root, [FIRST_DAY])[COMPARISONS.name]
    assert LakeReader(str(root)).read(REPLAYS).num_rows == 0

    assert run_compare(lake, loaded, REQUEST)["compared"] == [FIRST_DAY.isoformat()]
    assert content_hash(root, [FIRST_DAY])[COMPARISONS.name] == before
    _look_at(LakeReader(str(root)))


def _look_at(reader: LakeReader) -> None:
    """What a day's rows have to say."""
    moments = reader.read(COMPARISONS).to_pandas()
    assert len(moments) == SLOTS * GROUPS * 5
    assert moments.reason.isna().all()
    assert (moments.max_member_lag_records >= moments.lower_bound_records - 1).all()
    by_policy = moments.groupby("policy")
    assert (by_policy.moves.sum()[["observed", "cooperative-sticky"]] == 0).all()
    assert by_policy.optimality_gap.mean().idxmin() == "lag-aware-sticky:count_slack=1"
    replays = reader.read(REPLAYS).to_pandas()
    assert len(replays) == GROUPS * 5
    assert replays.reason.isna().all()
    assert (replays.lag_records.map(len) == SLOTS).all()
    read_at = sorted(reader.read(SNAPSHOTS)["end_read_at"].to_pylist())
    assert all(list(row["at"]) == read_at for row in reader.read(REPLAYS).to_pylist())
    # The day's own assignor, replayed, is what really ran; and that is near to what was seen.
    lag = replays.pivot_table(index="group_id", columns="policy", values="mean_lag_records")
    assert (lag["observed"] - lag["cooperative-sticky"]).abs().max() < 0.02 * lag["observed"].max()
    observed = replays[replays.policy == "observed"]
    assert observed.median_error.median() < 0.1
    assert replays[replays.policy != "observed"].median_error.isna().all()
    assert (replays.unknown_share == 0).all()
    _look_at_measured(reader, observed.set_index("group_id"))
    # Nothing of it could ever be published.
    for table in (PLANS, PLAN_EVENTS):
        assert not reader.exists(table)


def _look_at_measured(reader: LakeReader, observed: pd.DataFrame) -> None:
    """What was measured is what the rows of `lag` come to, on straight lines between the ends' read times."""
    snapshots = reader.read(SNAPSHOTS).to_pandas().sort_values("end_read_at")
    lag = reader.read(LAG).to_pandas()
    totals = lag.pivot_table(index="snapshot_id", columns="group_id", values="lag_records", aggfunc="sum")
    totals = totals.loc[snapshots.snapshot_id]
    seconds = snapshots.end_read_at.diff().dt.total_seconds().to_numpy()[1:, None]
    means = ((totals.to_numpy()[1:] + totals.to_numpy()[:-1]) / 2 * seconds).sum(axis=0) / seconds.sum()
    found = observed.loc[totals.columns]
    assert found.measured_mean_lag_records.to_numpy() == pytest.approx(means)
    assert (found.measured_max_lag_records == totals.max()).all()
    assert (found.num_unknown_lags == lag.lag_records.isna().groupby(lag.group_id).sum()).all()


def test_a_period_in_one_go_goes_to_its_own_table_and_mistakes_are_told(
    day: tuple[Lake, LoadedPolicy],
) -> None:
    lake, loaded = day
    last = FIRST_DAY + timedelta(days=3)
    request = Request(CLUSTER, FIRST_DAY, last, names=("range",), is_continuous=True)
    assert run_compare(lake, loaded, request)["compared"] == [FIRST_DAY.isoformat()]
    rows = LakeReader(lake.paths.root).read(CONTINUOUS_REPLAYS)
    assert sorted(set(rows["policy"].to_pylist())) == ["observed", "range"]
    with pytest.raises(SnapshotNotFoundError, match="no snapshot from 2026-03-04"):
        run_compare(lake, loaded, Request(CLUSTER, last, last))
    with pytest.raises(PolicyError, match="no cluster 'other'; it has: bench"):
        run_compare(lake, loaded, Request("other", FIRST_DAY, FIRST_DAY))


def test_the_job_ends_with_what_its_caller_can_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "evenlag.yaml"
    config.write_text(POLICY.format(lake=tmp_path), encoding="utf-8")
    call = ["--config", str(config), "--cluster", "bench", "--day", "2026-03-02"]
    assert run_job(compare.JOB, [*call, "--assignor", "rang"]) == 2
    assert "did you mean 'range'" in caplog.text
    assert run_job(compare.JOB, [*call, "--to", "2026-03-01"]) == 2
    assert "lies before --day" in caplog.text
