"""`evenlag doctor --freshness-only` as a probe calls it: what it says and what it ends with."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from evenlag.lake.tables import SNAPSHOTS
from tests.support.lakes.command_lake import write_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.command import Evenlag

pytestmark = pytest.mark.usefixtures("spark")

POLICY = """\
lake: {lake}
clusters:
  orders: {{bootstrap_servers: "a:1", schedule: "{schedule}"}}
"""


def policy(folder: Path, schedule: str = "*/5 * * * *") -> Path:
    path = folder / "policy.yaml"
    path.write_text(POLICY.format(lake=folder / "lake", schedule=schedule), encoding="utf-8")
    return path


def snapshot(folder: Path, *, ago_s: float) -> None:
    slot = datetime.now(UTC) - timedelta(seconds=ago_s)
    row = {"snapshot_id": f"{slot:%Y%m%dT%H%M%S}000Z-aaaaaaaa", "slot": slot, "finished_at": slot}
    write_rows(folder / "lake", SNAPSHOTS, [row])


@pytest.mark.parametrize(("ago_s", "exit_code"), [(1, 0), (290, 0), (620, 1), (86_400, 1)])
def test_by_the_schedule_one_run_may_be_going_on_and_two_may_not_be_missing(
    evenlag: Evenlag, tmp_path: Path, ago_s: int, exit_code: int
) -> None:
    snapshot(tmp_path, ago_s=ago_s)
    answer = evenlag("doctor", "--freshness-only", "--config", policy(tmp_path), "--json")
    assert answer.exit_code == exit_code, answer.output
    content = json.loads(answer.stdout)
    assert content["well"] is (exit_code == 0)
    [found] = content["freshness"]
    assert found["age_s"] == pytest.approx(ago_s, abs=120)
    assert 300 <= found["limit_s"] <= 600


def test_a_limit_of_one_s_own_overrules_the_schedule(evenlag: Evenlag, tmp_path: Path) -> None:
    snapshot(tmp_path, ago_s=700)
    config = policy(tmp_path)
    assert evenlag("doctor", "--freshness-only", "--max-age", "3600", "--config", config).exit_code == 0
    late = evenlag("doctor", "--freshness-only", "--max-age", "60", "--config", config)
    assert late.exit_code == 1
    assert "NO" in late.stdout
    assert "at most 60 s are allowed" in late.stdout


def test_no_snapshot_at_all_is_not_well(evenlag: Evenlag, tmp_path: Path) -> None:
    answer = evenlag("doctor", "--freshness-only", "--config", policy(tmp_path))
    assert answer.exit_code == 1
    assert "there is no finished snapshot yet" in answer.stdout


def test_without_a_policy_file_a_limit_is_asked_for(evenlag: Evenlag, tmp_path: Path) -> None:
    snapshot(tmp_path, ago_s=30)
    asked = evenlag("doctor", "--freshness-only", "--lake", tmp_path / "lake")
    assert asked.exit_code == 2
    assert "--max-age" in asked.stderr
    assert (
        evenlag("doctor", "--freshness-only", "--lake", tmp_path / "lake", "--max-age", "60").exit_code == 0
    )


def test_a_schedule_of_the_last_day_of_a_month_is_judged(evenlag: Evenlag, tmp_path: Path) -> None:
    """The last run may still be active, so the one before it counts: a month ago, and two months ago."""
    config = policy(tmp_path, schedule="0 0 L * *")
    snapshot(tmp_path, ago_s=3 * 31 * 86_400)
    answer = evenlag("doctor", "--freshness-only", "--config", config)
    assert answer.exit_code == 1, answer.output
    snapshot(tmp_path, ago_s=30)
    answer = evenlag("doctor", "--freshness-only", "--config", config)
    assert answer.exit_code == 0, answer.output
