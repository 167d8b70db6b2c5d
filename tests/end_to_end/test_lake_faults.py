"""A lake that cannot be written for a while, on a small file system of its own: read-only, and full.

The cycle fails with the table and the cause, nothing is half-visible, and its repeat puts it right.
"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, OFFSETS, RUNS, SNAPSHOTS
from evenlag.policy.loader import LoadedPolicy
from evenlag.policy.settings import Policy
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.soak.probes import kept_plans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = [pytest.mark.extended, pytest.mark.broker, pytest.mark.jvm]

CLUSTER = "sandbox"


class Disk:
    """A small file system in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filling = folder / "filling"

    def remount(self, how: str) -> None:
        """Make it read-only (``ro``) or not (``rw``)."""
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True, timeout=600)

    def fill(self, spare_bytes: int) -> None:
        """Leave so much room and no more."""
        room = os.statvfs(self.folder)
        with self._filling.open("wb") as file:
            file.write(b"\0" * max(0, room.f_bavail * room.f_frsize - spare_bytes))

    def empty(self) -> None:
        """Take away what fills it."""
        self._filling.unlink(missing_ok=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "evenlag-test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        pytest.skip(f"a file system of the test's own cannot be mounted here: {done.stderr.strip()}")
    yield Disk(folder)
    # Lazily: a thread of the JVM may still have a file open.
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=600)


@pytest.fixture
def loaded(broker: Broker, disk: Disk) -> LoadedPolicy:
    clusters = {CLUSTER: {"bootstrap_servers": broker.bootstrap_servers, "schedule": None}}
    return LoadedPolicy(
        Policy.model_validate({"lake": str(disk.folder / "lake"), "clusters": clusters}), "of a test"
    )


def check_nothing_is_half_visible(reader: LakeReader, slots: set[datetime]) -> None:
    """A marker is there for each of these slots and no other; what it shows is whole."""
    rows = reader.read(SNAPSHOTS).to_pylist()
    assert {row["slot"] for row in rows} == slots
    for row in rows:
        of_snapshot = [("snapshot_id", "=", row["snapshot_id"])]
        assert reader.read(OFFSETS, filters=of_snapshot).num_rows == row["num_partitions"]
        groups = reader.read(MEMBERS, columns=["group_id"], filters=of_snapshot)["group_id"].to_pylist()
        assert len(set(groups)) == row["num_groups"]


def test_a_lake_that_is_read_only_or_full_fails_the_cycle_and_the_repeat_puts_it_right(
    loaded: LoadedPolicy, disk: Disk, spark: SparkSession
) -> None:
    reader, kept = LakeReader(loaded.policy.lake), kept_plans(spark)
    first, second = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 12, 5, tzinfo=UTC)
    disk.remount("ro")
    with pytest.raises(
        LakeError, match=r"table \w+ of .* cannot be written: Read-only file system"
    ) as failed:
        run_observe(spark, loaded, CLUSTER, first, "r1")
    assert (failed.value.exit_code, failed.value.retriable) == (3, True)
    disk.remount("rw")
    run_observe(spark, loaded, CLUSTER, first, "r1")
    run_decide(spark, loaded, CLUSTER, first, "r1")
    check_nothing_is_half_visible(reader, {first})
    # Room for nothing, for the first tables, for all but the last: wherever it ends.
    for spare_kb in (0, 24, 80):
        disk.fill(spare_kb * 1024)
        try:
            run_observe(spark, loaded, CLUSTER, second, "r2")
        except LakeError as error:
            assert "cannot be written: No space left on device" in str(error)  # noqa: PT017 - it may succeed
        else:
            assert spare_kb > 0
        slots = {row["slot"] for row in reader.read(SNAPSHOTS).to_pylist()}
        check_nothing_is_half_visible(reader, slots)
        disk.empty()
    run_observe(spark, loaded, CLUSTER, second, "r2")
    run_decide(spark, loaded, CLUSTER, second, "r2")
    check_nothing_is_half_visible(reader, {first, second})
    keys = [tuple(row[name] for name in LAG.key) for row in reader.read(LAG).to_pylist()]
    assert len(keys) == len(set(keys))
    steps = [(row["step"], row["slot"]) for row in reader.read(RUNS).to_pylist()]
    assert sorted(steps) == [("decide", first), ("decide", second), ("observe", first), ("observe", second)]
    # Nor does a step that failed leave a frame in the session.
    assert kept_plans(spark) == kept
