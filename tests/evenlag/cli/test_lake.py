"""`evenlag lake status` and `evenlag lake maintain`: sizes, verdicts, and mistakes in the call."""

from __future__ import annotations

import json
import shutil
from datetime import date
from typing import TYPE_CHECKING

from evenlag.lake.location import LakePaths
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, OUTCOMES, PLANS, RUNS, TABLES
from evenlag.lake.upkeep.direct_tables import set_properties
from evenlag.lake.writer import append_once
from tests.support.lakes.run_rows import run
from tests.support.spark_tables import unset_properties

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag


def test_status_shows_sizes_and_failed_checks(evenlag: Evenlag, lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    unset_properties(copy, LAG)
    short = {"delta.setTransactionRetentionDuration": "interval 1 hours"}
    set_properties(LakePaths(str(copy)), OUTCOMES, short)
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
        allowed = checks[name, "PROPERTIES"]["allowed"]
        assert "setTransactionRetentionDuration: interval 6 hours" in allowed
        assert "logRetentionDuration: interval 3 hours" in allowed
    shown = evenlag("lake", "status", "--lake", copy)
    assert shown.exit_code == 0
    assert "lag: PROPERTIES" in shown.stdout
    assert "outcomes: PROPERTIES" in shown.stdout


def test_status_shows_the_days_of_a_file_with_several(evenlag: Evenlag, lake: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(lake, copy)
    (cluster,) = set(LakeReader(str(copy)).read(PLANS)["cluster"].to_pylist())
    rows = [run(str(day), date(2199, 3, day), cluster=cluster) for day in (4, 9)]
    append_once(str(copy), RUNS, rows, None)
    answer = evenlag("lake", "status", "--lake", copy, "--json")
    (last_day,) = [row["last_day"] for row in json.loads(answer.stdout)["tables"] if row["table"] == "runs"]
    assert last_day == "2199-03-09"


def test_maintain_needs_a_policy_and_knows_its_steps(evenlag: Evenlag) -> None:
    answer = evenlag("lake", "maintain", "--only", "compct")
    assert answer.exit_code == 2
    assert "did you mean 'compact'?" in answer.stderr
    answer = evenlag("lake", "maintain")
    assert answer.exit_code == 2
    assert "there is no policy file" in answer.stderr


def test_erase_needs_one_name_a_policy_and_a_yes(evenlag: Evenlag, tmp_path: Path) -> None:
    for names in ((), ("--group", "g", "--member", "m")):
        answer = evenlag("lake", "erase", *names, "--yes")
        assert answer.exit_code == 2
        assert "name one of --group and --member" in answer.stderr
    answer = evenlag("lake", "erase", "--group", "", "--yes")
    assert (answer.exit_code, "must not be empty" in answer.stderr) == (2, True)
    answer = evenlag("lake", "erase", "--group", "g", "--yes")
    assert "there is no policy file" in answer.stderr
    policy = tmp_path / "policy.yaml"
    clusters = "clusters: {c: {bootstrap_servers: 'nowhere:9092'}}"
    policy.write_text(f"lake: {tmp_path / 'lake'}\n{clusters}\n", encoding="utf-8")
    # Nobody answers the question: nothing is started.
    answer = evenlag("lake", "erase", "--member", "m", "--config", policy)
    assert answer.exit_code == 1
    assert "Erase the member 'm' from all tables?" in answer.stderr
