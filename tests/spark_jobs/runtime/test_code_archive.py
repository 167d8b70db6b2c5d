"""Our code goes to executors as a zip of what the driver runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.runtime.code_archive import build_archive
from spark_jobs.runtime.session_conf import is_local


def imported_from(archive: Path) -> str:
    """Import what plans groups with nothing on the path but the archive and this Python's packages."""
    code = "import spark_jobs.transforms.plan_frames as m, assignor_core as c; print(m.__file__, c.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {code}"],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        cwd="/",
    )
    return done.stdout


def test_the_archive_holds_what_executors_import_and_is_the_same_every_time(tmp_path: Path) -> None:
    archive = build_archive(tmp_path)
    first = archive.read_bytes()
    assert build_archive(tmp_path) == archive
    assert archive.read_bytes() == first
    assert imported_from(archive).count(str(archive)) == 2
    assert [file.name for file in tmp_path.iterdir()] == [archive.name]


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,512]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
        ("k8s://https://localhost:6443", False),
    ],
)
def test_what_is_local(master: str, expected: bool) -> None:
    assert is_local(master) is expected
