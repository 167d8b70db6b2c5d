"""The jar of the log stores: built once from its sources, always with the same bytes."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from sandbox import jars
from sandbox.java_tools import JarsError

if TYPE_CHECKING:
    from pathlib import Path


def test_it_is_built_once_and_replaces_that_of_other_sources(tmp_path: Path) -> None:
    other = tmp_path / "evenlag-log-store-0.0.1-0123456789ab.jar"
    other.touch()
    delta = tmp_path / "io.delta_delta-storage-4.4.0.jar"
    delta.touch()
    jar = jars.ensure_log_store(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([jar, delta])
    with zipfile.ZipFile(jar) as archive:
        names = set(archive.namelist())
    expected = ("HardLinkLogStore", "S3ConditionalLogStore", "S3CheckpointFileManager")
    assert {f"evenlag/storage/{name}.class" for name in expected} <= names
    built = jar.stat().st_mtime_ns
    assert jars.ensure_log_store(tmp_path) == jar
    assert jar.stat().st_mtime_ns == built
    again = tmp_path / "again.jar"
    jars.build_log_store(again)
    assert again.read_bytes() == jar.read_bytes()


def test_without_a_compiler_the_message_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JarsError, match=r"no javac found.*install a JDK, version 17"):
        jars.ensure_log_store(tmp_path)
    assert not list(tmp_path.glob("*.jar"))
