"""Packages with names that others use as well: their modules import, too, wherever their folder is."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("has_init", [False, True])
def test_a_team_s_own_folder_of_the_same_name_imports_beside_ours(tmp_path: Path, *, has_init: bool) -> None:
    for package in ("spark_jobs", "assignor_core"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "of_a_team.py").write_text("ANSWER = 42\n", encoding="utf-8")
        if has_init:
            (tmp_path / package / "__init__.py").write_text("", encoding="utf-8")
    # Airflow appends its DAG folder to the path.
    code = f"""
import sys
sys.path.append({str(tmp_path)!r})
import assignor_core.hint, spark_jobs.cycle
from assignor_core.of_a_team import ANSWER as first
from spark_jobs.of_a_team import ANSWER as second
print(first + second)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert made.stdout == "84\n", made.stderr
