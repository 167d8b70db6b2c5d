"""A session of one's own gets Delta's jars where they are missing, also without a checkout."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evenlag.bundle import bundle_root
from evenlag.errors import JobError
from evenlag.spark_installation import ensure_delta_jars
from sandbox.jars import cache_dir

ROOT = Path(__file__).resolve().parents[2]


def test_the_bundle_is_the_checkout_where_there_is_one() -> None:
    assert bundle_root() == ROOT
    assert (bundle_root() / "sandbox" / "jars.py").is_file()


def test_jars_that_are_there_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    ensure_delta_jars()


def test_missing_log_stores_are_built_beside_the_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for jar in cache_dir().glob("*/*.jar"):
        (tmp_path / jar.parent.name).mkdir(exist_ok=True)
        if not jar.name.startswith("evenlag-"):
            (tmp_path / jar.parent.name / jar.name).symlink_to(jar)
    monkeypatch.setenv("EVENLAG_JARS", str(tmp_path))
    ensure_delta_jars()
    assert [path.suffix for path in (tmp_path / "spark").glob("evenlag-log-store-*")] == [".jar"]


def test_jars_that_cannot_be_fetched_are_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EVENLAG_JARS", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    with pytest.raises(JobError, match=r"could not be fetched or built, for the reason above\. EVENLAG_JARS"):
        ensure_delta_jars()
    assert "no java found in JAVA_HOME" in capfd.readouterr().err
