"""Three hundred cycles in one session, and twenty through Airflow: nothing grows, and none fails.

``make soak``. A group of hinted consumers works through a load that changes sides all the time, plans are
made and published without anybody's yes, and the consumers follow. ``EVENLAG_SOAK_CYCLES`` and
``EVENLAG_SOAK_RUNS`` set how many; in full the results are written to ``docs/bench/soak.json`` and drawn.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.table_metadata import read_table_files
from evenlag.lake.tables import TABLES
from evenlag.policy.loader import LoadedPolicy, load_policy
from evenlag.publishing.publish import publish_hints
from sandbox.airflow.instance import Airflow
from spark_jobs.maintain import maintain_lake
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.cycle_steps import run_decide, run_observe
from tests.soak.probes import broker_measures, driver_measures, taken_by
from tests.soak.results import AIRFLOW_ALLOWED, ALLOWED, Series, keep, tell
from tests.support.airflow_faults import pids
from tests.support.faulty_workload import FaultyWorkload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

pytestmark = [
    pytest.mark.soak,
    pytest.mark.broker,
    pytest.mark.jvm,
    # Hours on a machine with other work.
    pytest.mark.timeout(6 * 3600),
]

CYCLES, RUNS = 300, 20
# After so many cycles the lake is maintained; the warm-up is one such period, and each third of the rest has
# as many of them as the others, so that what a period does to itself is in no trend.
PERIOD: Final = 30
WARM_UP_RUNS: Final = 5
RECORDS_PER_S: Final = 50
CLUSTER: Final = "soak"
POLICY: Final = """\
lake: {lake}
audit_schedule: null
clusters:
  soak:
    bootstrap_servers: "{servers}"
    hint_topic: {hint_topic}
    schedule: null
    temporary_member_after_s: null
groups:
  - {{match: {group}, mode: auto, reset_policy: earliest, min_gain: 0.05, gates: {{cooldown_s: 0}}}}
"""


class Group:
    """Two hinted consumers in processes of their own, and the policy that lets hints move them."""

    def __init__(self, workload: FaultyWorkload, config: Path) -> None:
        self.workload, self.config = workload, config

    @property
    def loaded(self) -> LoadedPolicy:
        return load_policy(self.config)

    @property
    def lake(self) -> LakeReader:
        return LakeReader(self.loaded.policy.lake)

    def load_one_side(self, for_s: int) -> None:
        """Let one member fall behind on two of its partitions: what both together work off in so long."""
        heavy = max(sorted(held) for held in self.workload.owners().values() if len(held) > 1)
        self.workload.fill(dict.fromkeys(heavy[:2], for_s * RECORDS_PER_S))

    def events(self) -> Counter[str]:
        return Counter(row["event"] for row in self.lake.read_events().to_pylist())

    def client_pid(self) -> int:
        return self.workload.pid(self.workload.consumers[0])


@pytest.fixture
def group(broker: Broker, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Group]:
    name, hints, config = unique("billing"), unique("hints"), tmp_path / "evenlag.yaml"
    config.write_text(
        POLICY.format(lake=tmp_path / "lake", servers=broker.bootstrap_servers, hint_topic=hints, group=name),
        encoding="utf-8",
    )
    with FaultyWorkload(
        {"bootstrap_servers": broker.bootstrap_servers},
        tmp_path / "workload",
        topic=unique("orders"),
        num_partitions=6,
        group_id=name,
        hint_topic=hints,
        consumer={"records_per_s": RECORDS_PER_S},
    ) as workload:
        workload.start_consumers(2)
        workload.wait_until_owned()
        yield Group(workload, config)


def run_cycle(spark: SparkSession, group: Group, number: int) -> float:
    """Run one cycle as Airflow's tasks do, without their JVM starts; returns its seconds."""
    started, slot, run_id = time.monotonic(), datetime.now(UTC), f"soak-{number}"
    observed = run_observe(spark, group.loaded, CLUSTER, slot, run_id)
    assert observed["is_new"], observed
    decided = run_decide(spark, group.loaded, CLUSTER, slot, run_id)
    assert not decided["failures"], decided
    publish_hints(group.loaded, CLUSTER, slot, run_id)
    return time.monotonic() - started


def maintain(spark: SparkSession, group: Group, *, days_ahead: int = 1) -> dict[str, float]:
    """Maintain the lake as if so many days had gone by; returns each table's files of days that are over."""
    policy, now = group.loaded.policy, datetime.now(UTC) + timedelta(days=days_ahead)
    done = maintain_lake(Lake(spark, policy.lake), policy, now)
    assert not done.failures, done.failures
    found = {table.name: read_table_files(group.lake, table) for table in TABLES.values()}
    return {
        name: sum(file.last_day < now.date() for part in files.by_part.values() for file in part)
        for name, files in found.items()
        if files is not None
    }


def test_cycles_in_one_session_grow_nothing(
    spark: SparkSession, broker: Broker, group: Group, capfd: pytest.CaptureFixture[str]
) -> None:
    num = int(os.environ.get("EVENLAG_SOAK_CYCLES", CYCLES))
    series, files = Series(), Series()
    for number in range(num):
        if number % 10 == 0:
            group.load_one_side(for_s=60)
        seconds = run_cycle(spark, group, number)
        assert broker.pid is not None
        series.add(
            {
                "cycle_s": round(seconds, 2),
                **driver_measures(spark),
                **taken_by(os.getpid()).measures("python"),
                **broker_measures(broker.pid),
                **taken_by(group.client_pid()).measures("client"),
            }
        )
        tell(capfd, f"cycle {number + 1} of {num}: {series.last()}")
        if (number + 1) % PERIOD == 0:
            files.add(maintain(spark, group))
            tell(capfd, f"maintained: {files.last()}")
    # What each maintenance writes belongs to the day that it takes for today: a day later, that is over too.
    day_after = maintain(spark, group, days_ahead=2)
    events = group.events()
    judged = series.judge(ALLOWED, warm_up=min(PERIOD, num // 4))
    found = {"cycles": num, "period": PERIOD, "events": dict(events), "measures": judged}
    found |= {"files_after_upkeep": files.values, "files_a_day_later": day_after}
    keep("session", found, is_full=num >= CYCLES)
    assert events["APPLIED"] >= max(1, num // 50), events
    assert [name for name, row in judged.items() if row["is_growing"]] == [], judged
    # A file a table, cluster and day, however many cycles went by: midnight may have been among them.
    for name, counts in files.values.items():
        assert max(*counts, day_after[name]) <= counts[0] + 2, (name, counts, day_after[name])


def test_runs_through_airflow_grow_nothing(
    group: Group, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    num = int(os.environ.get("EVENLAG_SOAK_RUNS", RUNS))
    series = Series()
    with Airflow.start(tmp_path / "airflow", policy=group.config) as airflow:
        airflow.rest.wait_for_dag(f"lag_rebalance__{CLUSTER}")
        for number in range(num):
            # A run takes a minute or two: what is worked off by then has no hint published for it.
            if number % 3 == 0:
                group.load_one_side(for_s=240)
            run = airflow.rest.trigger(f"lag_rebalance__{CLUSTER}")
            airflow.rest.wait(run, timeout_s=1800)
            taken: dict[str, Any] = {"run_s": round(run.duration_s, 1)}
            for part, pid in pids(airflow).items():
                at_rest = taken_by(pid, with_children=True)
                taken |= at_rest.measures(part) | {f"{part}_processes": at_rest.processes}
            series.add(taken | taken_by(group.client_pid()).measures("client"))
            tell(capfd, f"run {number + 1} of {num}: {series.last()}")
    events = group.events()
    judged = series.judge(AIRFLOW_ALLOWED, warm_up=min(WARM_UP_RUNS, num // 4))
    keep("airflow", {"runs": num, "events": dict(events), "measures": judged}, is_full=num >= RUNS)
    assert events["PUBLISHED"] >= 1, events
    assert [name for name, row in judged.items() if row["is_growing"]] == [], judged
