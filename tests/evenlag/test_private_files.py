"""Files of a local lake are for their owner, or for a group where the folder says so; never for others."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from evenlag.doctor.lake_checks import check_private
from evenlag.doctor.model import Verdict
from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.spark_storage import lake_storage_conf
from evenlag.lake.tables import RUNS, SNAPSHOTS
from evenlag.lake.upkeep.direct_tables import trim_log
from evenlag.lake.writer import append_once
from evenlag.private_files import applied_umask, lake_umask
from tests.support.lakes.run_rows import TODAY, run
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    assert os.umask(before) == 0o022, "a block did not restore the umask of the process"


def modes(root: Path) -> tuple[set[int], set[int]]:
    """The modes of the folders and of the files of a tree."""
    paths = [root, *root.rglob("*")]
    folders = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()}
    return folders, {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()}


def write(root: Path) -> None:
    assert append_once(str(root), RUNS, [run("r")], None)
    # It writes a checkpoint.
    trim_log(LakePaths(str(root)), RUNS)
    assert list(root.rglob("*.checkpoint.parquet"))


def verdict(root: Path) -> tuple[Verdict, str]:
    [found] = check_private(LakeReader(str(root)))
    return found.verdict, found.remedy


def test_a_new_lake_is_its_owner_s_alone(tmp_path: Path) -> None:
    write(tmp_path / "lake")
    assert modes(tmp_path / "lake") == ({0o700}, {0o600})
    assert verdict(tmp_path / "lake") == (Verdict.OK, "")


def test_a_folder_that_existed_and_is_not_shared_gets_private_files(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir(mode=0o755)
    write(lake)
    assert modes(lake) == ({0o755, 0o700}, {0o600})
    assert verdict(lake) == (Verdict.WARNING, f"chmod -R go= {lake}")
    lake.chmod(0o700)
    assert verdict(lake)[0] is Verdict.OK


@pytest.mark.parametrize(("mode", "folder", "file"), [(0o2770, 0o2770, 0o660), (0o2750, 0o2750, 0o640)])
def test_a_shared_folder_shares_its_files_with_its_group(
    tmp_path: Path, mode: int, folder: int, file: int
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(mode)
    write(lake)
    assert modes(lake) == ({folder}, {file})
    assert {path.stat().st_gid for path in lake.rglob("*")} == {lake.stat().st_gid}
    assert verdict(lake) == (Verdict.OK, "")


def test_files_that_a_group_lacks_are_reported(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    lake.chmod(0o2770)
    write(lake)
    commit = max(lake.rglob("*.json"))
    commit.chmod(0o600)
    state, todo = verdict(lake)
    assert state is Verdict.WARNING
    assert todo == f"chmod -R g=rwX,o= {lake}, and start that process with umask 007"
    commit.chmod(0o664)
    assert verdict(lake) == (Verdict.WARNING, f"chmod -R g=rwX,o= {lake}")


@pytest.mark.usefixtures("spark")
def test_what_spark_writes_is_private_too(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    LakePaths(str(lake)).make_log_folder(SNAPSHOTS)
    write_rows(lake, SNAPSHOTS, [{"snapshot_id": "20261122T000000000Z-aaaaaaaa", "day": TODAY}])
    assert list(lake.rglob("*.parquet"))
    assert modes(lake) == ({0o700}, {0o600})


def test_spark_gets_the_umask_of_the_lake_unless_its_own_file_sets_one(tmp_path: Path) -> None:
    key = "spark.hadoop.fs.permissions.umask-mode"
    assert lake_storage_conf({})[key] == "077"
    assert lake_storage_conf({}, umask=0o007)[key] == "007"
    (tmp_path / "spark-defaults.conf").write_text(f"{key} 027\n", encoding="utf-8")
    assert key not in lake_storage_conf({"SPARK_CONF_DIR": str(tmp_path)})


def test_overlapping_blocks_are_strict_and_end_with_the_umask_of_the_process(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def share() -> None:
        with applied_umask(0o007):
            entered.set()
            assert go_on.wait(60)

    other = threading.Thread(target=share)
    with applied_umask(0o077):
        other.start()
        assert entered.wait(60)
        (tmp_path / "both").touch()
    (tmp_path / "shared").touch()
    go_on.set()
    other.join(60)
    (tmp_path / "usual").touch()
    found = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("both", "shared", "usual")]
    assert found == [0o600, 0o660, 0o644]


def test_a_lake_that_does_not_exist_is_private(tmp_path: Path) -> None:
    assert lake_umask(tmp_path / "none") == 0o077
    assert LakePaths("s3://bucket/lake").umask == 0o077
    with LakePaths("s3://bucket/lake").private_files():
        (tmp_path / "file").touch()
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
