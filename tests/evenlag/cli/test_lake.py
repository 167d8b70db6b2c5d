"""`evenlag lake status` and `evenlag lake maintain`: sizes, verdicts, and mistakes in the call."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, OUTCOMES, PLANS, TABLES
from evenlag.lake.writer import delta_rs_writer
from tests.support.spark_tables import unset_properties

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag


def test_status_shows_sizes_and_failed_checks(evenlag: Evenlag, lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    unset_properties(copy, LAG)
    with delta_rs_writer(str(copy), OUTCOMES) as writer:
        writer.set_properties({"delta.setTransactionRetentionDuration": "interval 1 hours"})
    answer = evenlag("lake", "status", "--lake", copy, "--json")
    assert answer.exit_code == 0
    content = json.loads(answer.stdout)
    by_name = {row["table"]: row for row in content["tables"]}
    assert set(by_name) <= set(TABLES)
    assert by_name["plans"]["num_rows"] == LakeReader(str(copy)).read(PLANS).num_rows
    assert by_name["plans"]["num_files"] >= 1
    assert by_name["plans"]["size_bytes"] > 0
    checks = {(check["table_name"], check["check_name"]): check for check in content["checks"]}
    assert checks["plans", "SCHEMA"]["is_ok"]
    assert checks["plans", "PROTOCOL"]["is_ok"]
    assert checks["plans", "PROPERTIES"]["is_ok"]
    assert by_name["plans"]["is_healthy"]
    for name in ("lag", "outcomes"):
        assert not checks[name, "PROPERTIES"]["is_ok"]
        assert not by_name[name]["is_healthy"]
    assert "setTransactionRetentionDuration" not in checks["lag", "PROPERTIES"]["allowed"]
    assert "setTransactionRetentionDuration: interval 7 days" in checks["outcomes", "PROPERTIES"]["allowed"]
    shown = evenlag("lake", "status", "--lake", copy)
    assert shown.exit_code == 0
    assert "lag: PROPERTIES" in shown.stdout
    assert "outcomes: PROPERTIES" in shown.stdout


def test_maintain_needs_a_policy_and_knows_its_steps(evenlag: Evenlag) -> None:
    answer = evenlag("lake", "maintain", "--only", "compct")
    assert answer.exit_code == 2
    assert "did you mean 'compact'?" in answer.stderr
    answer = evenlag("lake", "maintain")
    assert answer.exit_code == 2
    assert "name the file with --config" in answer.stderr
