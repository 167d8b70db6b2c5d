"""A schedule of one minute: timeouts that fit, and runs that never queue up when one takes longer."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from evenlag.airflow.dags import RUN_TIMEOUT_FACTOR
from evenlag.airflow.spark_task import cycle_timeout
from tests.support.processes import wait_until_gone

if TYPE_CHECKING:
    from pathlib import Path

DAG_ID = "lag_rebalance__fast"
POLICY = """
lake: {lake}
clusters:
  fast: {{bootstrap_servers: "127.0.0.1:1", schedule: "* * * * *"}}
"""
# A job's Python whose `observe` takes longer than a minute, and says which slot it had and when.
SLOW = """#!/bin/sh
echo "$4 ${{10}} $(date +%s)" >> {record}
[ "$4" = observe ] && sleep {seconds}
exit 0
"""
_OBSERVE_S = 75
_WATCHED_S = 330


@pytest.mark.parametrize(
    ("schedule", "minutes"),
    [
        (None, 20),
        ("*/5 * * * *", 20),
        ("*/2 * * * *", 10),
        ("* * * * *", 5),
        ("0 0 L * *", 20),
        ("@daily", 20),
    ],
)
def test_a_task_s_timeout_fits_its_schedule(schedule: str | None, minutes: int) -> None:
    assert cycle_timeout(schedule) == timedelta(minutes=minutes)


def test_the_dag_of_a_fast_cluster_has_these_timeouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    from tests.dags.conftest import DAGS_FOLDER

    policy = tmp_path / "evenlag.yaml"
    policy.write_text(POLICY.format(lake=tmp_path / "lake"), encoding="utf-8")
    monkeypatch.setenv("EVENLAG_CONFIG", str(policy))
    dag = DagBag(dag_folder=str(DAGS_FOLDER / "lag_rebalance.py")).dags[DAG_ID]
    limit = timedelta(minutes=5)
    assert [dag.get_task(step).execution_timeout for step in ("observe", "decide")] == [limit, limit]
    assert dag.dagrun_timeout == RUN_TIMEOUT_FACTOR * limit
    assert (dag.max_active_runs, dag.catchup) == (1, False)


def test_after_a_long_run_airflow_s_timetable_goes_on_with_the_newest_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.timetables import interval
    from airflow.timetables.base import DataInterval, TimeRestriction
    from pendulum import datetime as moment

    start = moment(2026, 11, 21, 12, 0, tz="UTC")
    timetable = interval.CronDataIntervalTimetable("* * * * *", timezone="UTC")
    ended = start.add(minutes=4, seconds=30)
    monkeypatch.setattr(interval, "utcnow", lambda: ended)

    found = timetable.next_dagrun_info(
        last_automated_data_interval=DataInterval(start, start.add(minutes=1)),
        restriction=TimeRestriction(earliest=start.subtract(days=1), latest=None, catchup=False),
    )

    assert found is not None
    # The slots of 12:02 and 12:03 are skipped; the one of 12:04 is due.
    assert found.data_interval == DataInterval(start.add(minutes=3), start.add(minutes=4))
    assert found.run_after <= ended


# Five minutes: Airflow's scheduler has no other clock than the machine's.
@pytest.mark.soak
@pytest.mark.airflow
def test_runs_that_take_longer_than_a_minute_follow_each_other_and_skip_slots(tmp_path: Path) -> None:
    from sandbox.airflow.instance import Airflow

    record, python, policy = tmp_path / "record", tmp_path / "python", tmp_path / "evenlag.yaml"
    python.write_text(SLOW.format(record=record, seconds=_OBSERVE_S), encoding="utf-8")
    python.chmod(0o755)
    policy.write_text(POLICY.format(lake=tmp_path / "lake"), encoding="utf-8")
    environment = {
        "EVENLAG_SPARK_PYTHON": str(python),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark_connect", "host": "localhost"}),
    }
    with Airflow.start(tmp_path / "airflow", policy=policy, environment=environment) as airflow:
        airflow.rest.wait_for_dag(DAG_ID)
        deadline = time.monotonic() + _WATCHED_S
        unfinished = 0
        while time.monotonic() < deadline:
            runs = airflow.rest.get(f"dags/{DAG_ID}/dagRuns", limit=100)["dag_runs"]
            unfinished = max(unfinished, sum(run["state"] in {"queued", "running"} for run in runs))
            time.sleep(2)
    wait_until_gone(str(tmp_path))

    assert unfinished == 1
    started = [line.split() for line in record.read_text(encoding="utf-8").splitlines()]
    observed = [
        (datetime.fromisoformat(slot), datetime.fromtimestamp(int(moment), UTC))
        for step, slot, moment in started
        if step == "observe"
    ]
    slots, moments = zip(*observed, strict=True)
    assert len(slots) >= 3
    assert list(slots) == sorted(set(slots))
    # Longer than a minute each, without a growing delay: slots are skipped.
    assert all(later - earlier >= timedelta(seconds=_OBSERVE_S) for earlier, later in pairwise(moments))
    assert (slots[-1] - slots[0]) / timedelta(minutes=1) > len(slots) - 1
    late = [moment - slot for slot, moment in observed]
    assert max(late) < timedelta(seconds=_OBSERVE_S + 60), late
