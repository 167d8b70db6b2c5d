"""The class archive of embedded JVMs: which file it is, what it is made from, and what its program says.

tests/end_to_end/test_watch.py has a JVM that uses it.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, LAG
from evenlag.spark_installation import class_archive, delta_jars
from spark_jobs import class_archive as program
from spark_jobs.runtime.classic_session import archive_options
from tests.support.connect_jobs import run_module

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jars of the test's own."""
    folder = tmp_path / "jars"
    (folder / "spark").mkdir(parents=True)
    for jar in delta_jars():
        shutil.copy2(jar, folder / "spark")
    monkeypatch.setenv("EVENLAG_JARS", str(folder))
    monkeypatch.delenv("EVENLAG_SPARK_ARCHIVE", raising=False)
    return folder


def test_the_file_is_another_one_for_other_jars(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = class_archive()
    assert before is not None
    assert before.parent == jars
    assert class_archive() == before
    jar = next((jars / "spark").iterdir())
    os.utime(jar, (1, 1))
    after = class_archive()
    assert after is not None
    assert after != before
    # What an archive of the same PySpark is removed by.
    assert after.name.rpartition("-")[0] == before.name.rpartition("-")[0]
    monkeypatch.setenv("EVENLAG_SPARK_ARCHIVE", "off")
    assert class_archive() is None


def test_there_is_none_without_java_or_delta(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jars))
    assert class_archive() is None
    monkeypatch.delenv("JAVA_HOME")
    shutil.rmtree(jars / "spark")
    assert class_archive() is None


def test_an_archive_that_exists_is_not_made_again(jars: Path) -> None:
    archive = class_archive()
    assert archive is not None
    archive.write_bytes(b"of an earlier run")
    done = run_module(None, "spark_jobs.class_archive", EVENLAG_JARS=str(jars))
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{archive} exists" in done.stderr
    assert archive.read_bytes() == b"of an earlier run"


def test_an_archive_that_others_may_write_is_not_used(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    archive = class_archive()
    assert archive is not None
    archive.write_bytes(b"code")
    archive.chmod(0o644)
    jars.chmod(0o755)
    assert archive_options()[0] == f'"-XX:SharedArchiveFile={archive}"'
    jars.chmod(0o775)
    assert archive_options() == []
    jars.chmod(0o755)
    archive.chmod(0o646)
    assert archive_options() == []


def test_what_is_missing_is_told_in_one_line(jars: Path) -> None:
    done = run_module(None, "spark_jobs.class_archive", EVENLAG_JARS=str(jars), JAVA_HOME="/nowhere")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "an archive needs Java 17 or newer" in done.stderr


def test_a_rehearsal_runs_what_a_cycle_with_plans_runs(spark: SparkSession, tmp_path: Path) -> None:
    program.rehearse(spark, tmp_path)
    reader = LakeReader(str(tmp_path))
    assert reader.read(LAG, columns=["lag_records"])["lag_records"].to_pylist().count(900) == 8
    decisions = reader.read(DECISIONS, columns=["decision", "plan_id"]).to_pylist()
    assert [row["decision"] for row in decisions] == ["PROPOSED"] * 2
    assert all(row["plan_id"] for row in decisions)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_an_archive_is_made_and_replaces_that_of_other_jars(jars: Path) -> None:
    archive = class_archive()
    assert archive is not None
    old = archive.with_name(f"{archive.name.rpartition('-')[0]}-0000000000000000.jsa")
    old.touch()
    done = run_module(None, "spark_jobs.class_archive", EVENLAG_JARS=str(jars), timeout_s=600)
    assert done.returncode == 0, done.stderr
    assert archive.stat().st_size > 50_000_000
    assert {path.name for path in jars.iterdir()} == {"spark", archive.name}
