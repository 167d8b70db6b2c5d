"""Planning: deterministic bytes, one failing group failing alone, unknown lag not moved."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.hint import HintPayload, plan_id
from evenlag.lake.tables import DECISIONS, FORECASTS, LAG, MEMBERS, PLAN_ASSIGNMENTS, PLANS, SPEEDS
from evenlag.planning.measured_rows import with_measures
from evenlag.planning.plan_batch import PLANNED, table_rows
from spark_jobs.runtime.session import sized_session
from spark_jobs.runtime.session_conf import LARGE_LOCAL_CONF
from spark_jobs.steps.snapshot_rows import to_contract
from spark_jobs.transforms.batch_packing import count_group_rows, pack_groups
from spark_jobs.transforms.plan_frames import build_plans, plan_in_driver, select_assignments, shared_values
from tests.support.lakes.snapshots import NOW, SNAPSHOT, TOPIC_IDS, arrow, frame, member, plan_context

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from evenlag.lake.tables import Table
    from evenlag.planning.plan_batch import PlanContext

pytestmark = pytest.mark.jvm

POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups:
  - {match: watched, mode: observe}
  - {match: tried, mode: shadow}
  - {match: timed*, mode: auto, load: time, horizon_s: 600}
  - {match: "*", mode: auto, assignor: %s}
"""
EVEN = {"m-1": {"t": [0, 1]}, "m-2": {"t": [2, 3]}}


def context(assignor: str = "lag-aware") -> PlanContext:
    return plan_context(POLICY % assignor, run_id="run-1")


def lag_rows(lags: Sequence[int | None], owners: dict[str, Any], *, group: str = "g") -> list[dict[str, Any]]:
    owner_of = {number: name for name, held in owners.items() for number in held.get("t", ())}
    return [
        {
            "slot": NOW,
            "group_id": group,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_member_id": owner_of.get(number),
            "status": "UNKNOWN" if lag is None else "OK",
            "lag_records": lag,
            "stalled": False,
        }
        for number, lag in enumerate(lags)
    ]


def plan(
    spark: SparkSession,
    lags: list[dict[str, Any]],
    members: list[dict[str, Any]],
    assignor: str = "lag-aware",
) -> DataFrame:
    return build_plans(frames(spark, lags, members), context(assignor)).cache()


def frames(
    spark: SparkSession,
    lags: list[dict[str, Any]],
    members: list[dict[str, Any]],
    speeds: Sequence[dict[str, Any]] = (),
    forecasts: Sequence[dict[str, Any]] = (),
) -> Callable[[Table], DataFrame]:
    """The rows of a snapshot, by table."""
    rows = {LAG: lags, MEMBERS: members, SPEEDS: speeds, FORECASTS: forecasts}
    return lambda table: frame(spark, table, rows[table])


def heads_of(planned: DataFrame) -> list[Any]:
    """Rows of ``plans``, as the step writes them."""
    return nested_rows(planned, "head", PLANS)


def decisions_of(planned: DataFrame) -> list[Any]:
    """Rows of ``decisions``."""
    return nested_rows(planned, "decided", DECISIONS)


def nested_rows(planned: DataFrame, column: str, table: Table) -> list[Any]:
    rows = table_rows(to_contract(planned.toArrow(), PLANNED), column, table, shared_values(context()))
    assert rows.column_names == list(table.column_names)
    return [SimpleNamespace(**row) for row in rows.to_pylist()]


def assignments_of(planned: DataFrame) -> list[Any]:
    """Rows of ``plan_assignments``."""
    table = to_contract(planned.toArrow(), PLANNED)
    ids = [plan_id for plan_id in table["plan_id"].to_pylist() if plan_id is not None]
    return [SimpleNamespace(**row) for row in selected(table, ids).to_pylist()]


def selected(planned: pa.Table, plan_ids: Collection[str]) -> pa.Table:
    """Rows of ``plan_assignments`` of some plans."""
    return select_assignments(planned, context(), plan_ids)


def members_of(owners: dict[str, Any], *, group: str = "g", **more: Any) -> list[dict[str, Any]]:
    return [member(name, group=group, held=held, **more) for name, held in owners.items()]


def test_a_plan_spreads_the_lag_and_says_so(spark: SparkSession) -> None:
    planned = plan(spark, lag_rows([900, 800, 10, 10], EVEN), members_of(EVEN))
    rows = assignments_of(planned)
    assert list(vars(rows[0])) == list(PLAN_ASSIGNMENTS.column_names)
    (head,) = heads_of(planned)
    assert head.metrics_before["max_member_lag_records"] == 1700
    assert head.metrics_after["max_member_lag_records"] == 910
    assert head.gain == pytest.approx(1 - 910 / 1700)
    assert (head.moves, head.num_members, head.num_partitions, head.violations) == (2, 2, 4, [])
    after = {row.partition: (row.owner_before, row.owner_after, row.moved) for row in rows}
    assert {number: held for number, (_, held, _) in after.items()} in (
        {0: "m-1", 1: "m-2", 2: "m-2", 3: "m-1"},
        {0: "m-1", 1: "m-2", 2: "m-1", 3: "m-2"},
    )
    assert sum(moved for _, _, moved in after.values()) == 2
    payload = HintPayload.decode(head.payload.encode())
    assert plan_id(head.payload.encode()) == head.plan_id
    assert payload.snapshot_id == SNAPSHOT
    assert {
        number: key for key, topics in payload.assignment.items() for number in topics[TOPIC_IDS["t"]]
    } == {number: f"m:{held}" for number, (_, held, _) in after.items()}


def test_moves_are_counted_against_the_coordinator_s_target(spark: SparkSession) -> None:
    """What is held is on its way already: a plan changes where it goes."""
    target = {0: "m-1", 1: "m-2", 2: "m-1", 3: "m-2"}
    rows = [row | {"target_member_id": target[row["partition"]]} for row in lag_rows([900, 800, 10, 9], EVEN)]
    planned = plan(spark, rows, members_of(EVEN, group_type="consumer"), "lag-aware-sticky")
    assert heads_of(planned) == []
    (decision,) = decisions_of(planned)
    assert decision.decision == "NO_CHANGE"
    (head,) = heads_of(plan(spark, lag_rows([900, 800, 10, 9], EVEN), members_of(EVEN), "lag-aware-sticky"))
    assert head.moves == 2


def test_what_is_before_a_plan_is_what_the_members_own_and_not_the_coordinator_s_target(
    spark: SparkSession,
) -> None:
    """In reconciliation: 1 is on its way from m-1 to m-2, and the plan gives 2 or 3 back to m-1."""
    held, target = {0: "m-1", 1: "m-1", 2: "m-2", 3: "m-2"}, {0: "m-1", 1: "m-2", 2: "m-2", 3: "m-2"}
    rows = [row | {"target_member_id": target[row["partition"]]} for row in lag_rows([900, 800, 10, 9], EVEN)]
    planned = plan(spark, rows, members_of(EVEN, group_type="consumer"))
    (head,) = heads_of(planned)
    assert head.metrics_before["max_member_lag_records"] == 900 + 800
    found = {row.partition: row for row in assignments_of(planned)}
    assert {number: row.owner_before for number, row in found.items()} == held
    moved = {number for number, row in found.items() if row.owner_after != target[number]}
    assert {number for number, row in found.items() if row.moved} == moved
    assert head.moves == len(moved) == 1


def test_the_same_snapshot_gives_the_same_plan_id(spark: SparkSession) -> None:
    lags, members = lag_rows([900, 800, 10, 10], EVEN), members_of(EVEN)
    ids = {
        heads_of(plan(spark, list(order), list(people)))[0].plan_id
        for order, people in ((lags, members), (reversed(lags), reversed(members)))
    }
    assert len(ids) == 1


def test_groups_are_planned_apart_and_only_where_there_is_something_to_change(spark: SparkSession) -> None:
    lags = [
        *lag_rows([900, 800, 10, 10], EVEN, group="a"),
        *lag_rows([5, 5, 5, 5], EVEN, group="even"),
        *lag_rows([900, 800, 10, 10], EVEN, group="watched"),
        *lag_rows([900, 800, 10, 10], EVEN, group="rebalancing"),
        *lag_rows([900, 800, 10, 10], {}, group="empty"),
    ]
    members = [
        *members_of(EVEN, group="a"),
        *members_of(EVEN, group="even"),
        *members_of(EVEN, group="watched"),
        *members_of(EVEN, group="rebalancing", topics=None, group_state="PreparingRebalance"),
        member(None, group="empty", topics=None, group_state="Empty"),
    ]
    planned = plan(spark, lags, members, "lag-aware-sticky")
    assert [row.group_id for row in heads_of(planned)] == ["a"]


def test_a_partition_whose_lag_is_not_known_stays(spark: SparkSession) -> None:
    planned = plan(spark, lag_rows([900, 800, None, 10], EVEN), members_of(EVEN))
    (head,) = heads_of(planned)
    assert (head.num_unknown_partitions, head.num_unknown_lags) == (1, 1)
    # m-1 has 900 + 800 now; what partition 2 adds to m-2 is not known, so neither is a mean or a skew.
    assert head.metrics_before["max_member_lag_records"] == 1700
    assert (head.metrics_before["mean_member_lag_records"], head.metrics_before["lag_skew"]) == (None, None)
    assert (head.metrics_after["mean_member_lag_records"], head.metrics_after["lag_skew"]) == (None, None)
    held = {row.partition: row for row in assignments_of(planned)}
    # By count and lag alone it would have gone to m-1, for partition 1 that comes to m-2.
    assert (held[1].owner_after, held[2].owner_after) == ("m-2", "m-2")
    assert held[2].lag_records is None
    assert held[2].lag_status == "UNKNOWN"


def test_a_group_that_cannot_be_planned_fails_alone(spark: SparkSession) -> None:
    twice = [*lag_rows([900, 800, 10, 10], EVEN, group="a"), *lag_rows([-5, 1, 1, 1], EVEN, group="bad")]
    planned = plan(spark, twice, [*members_of(EVEN, group="a"), *members_of(EVEN, group="bad")])
    assert [row.group_id for row in heads_of(planned)] == ["a"]
    failures = [row for row in decisions_of(planned) if row.decision == "FAILED"]
    assert [(row.group_id, "negative" in row.reason) for row in failures] == [("bad", True)]


def test_static_members_stand_in_the_hint_by_their_instance_ids(spark: SparkSession) -> None:
    members = [
        member(name, held=held, group_instance_id=f"pod-{number}")
        for number, (name, held) in enumerate(EVEN.items())
    ]
    planned = plan(spark, lag_rows([900, 800, 10, 10], EVEN), members)
    keys = {row.owner_after: row.owner_after_key for row in assignments_of(planned)}
    assert keys == {"m-1": "i:pod-0", "m-2": "i:pod-1"}


def test_plans_are_the_same_in_bundles_and_in_any_number_of_partitions(spark: SparkSession) -> None:
    names = [f"g-{number}" for number in range(6)]
    lags = [row for name in names for row in lag_rows([900, 800, 10, len(name)], EVEN, group=name)]
    members = [row for name in names for row in members_of(EVEN, group=name)]
    shown = frames(spark, lags, members)
    group_ids, sizes = count_group_rows(shown(LAG), shown(MEMBERS))
    # Partitions and members.
    assert (group_ids, sizes.tolist()) == (names, [6] * 6)
    few = build_plans(shown, context(), (group_ids, pack_groups(sizes, cores=2)))
    many = build_plans(shown, context(), (group_ids, np.arange(6, dtype=np.int32)))
    assert many.rdd.getNumPartitions() == 6
    spread = build_plans(lambda table: shown(table).repartition(5), context())
    expected = sorted(spread.collect(), key=repr)
    assert [len(row.rows) for row in expected] == [4] * 6
    assert sorted(few.collect(), key=repr) == expected
    assert sorted(many.collect(), key=repr) == expected


def test_plans_made_in_the_driver_are_those_of_spark(spark: SparkSession) -> None:
    target = {0: "m-1", 1: "m-2", 2: "m-1", 3: "m-2"}
    moving = lag_rows([900, 800, 10, 10], EVEN, group="moving")
    lags = [
        *lag_rows([900, 800, 10, 10], EVEN, group="a"),
        *lag_rows([900, None, 10, 10], EVEN, group="unknown"),
        *lag_rows([-5, 1, 1, 1], EVEN, group="bad"),
        *lag_rows([5, 5, 5, 5], EVEN, group="even"),
        *lag_rows([900, 800, 10, 10], EVEN, group="tried"),
        *lag_rows([900, 800, 10, 10], EVEN, group="watched"),
        *lag_rows([900, 800, 10, 10], {}, group="empty"),
        *lag_rows([900, 800, 10, 10], EVEN, group="idle"),
        *(row | {"target_member_id": target[row["partition"]]} for row in moving),
    ]
    members = [
        *(
            row
            for name in ("a", "unknown", "bad", "even", "tried", "watched")
            for row in members_of(EVEN, group=name)
        ),
        *members_of(EVEN, group="moving", group_type="consumer"),
        *members_of(EVEN, group="idle"),
        member("m-3", group="idle", topics=()),
        member(None, group="empty", topics=None, group_state="Empty"),
    ]
    speeds, forecasts = [], []
    # 10 records a second come to each partition: too much for a slow member, or for two heavy partitions.
    for group, speed, cost in (
        ("timed-slow", 5.0, 1.0),
        ("timed-heavy", 80.0, 16.0),
        ("timed-even", 80.0, 1.0),
    ):
        lags += lag_rows([0, 0, 0, 0], EVEN, group=group)
        members += members_of(EVEN, group=group)
        parts = [{"topic_id": TOPIC_IDS["t"], "topic": "t", "partition": number} for number in range(4)]
        known = [
            {"member_id": name, "speed_records_per_s": each, "is_bound": False, "confidence": 0.9}
            for name, each in (("m-1", speed), ("m-2", 80.0))
        ]
        costs = [part | {"cost": cost if number < 2 else 1.0} for number, part in enumerate(parts)]
        speeds.append({"group_id": group, "members": known, "partitions": costs})
        # Of a group that has left there is no other row.
        speeds.append({"group_id": f"former {group}", "members": known, "partitions": costs})
        rated = [part | {"forecast_records_per_s": [10.0] * 6} for part in parts]
        forecasts.append({"group_id": group, "partitions": rated})
    by_spark = build_plans(frames(spark, lags, members, speeds, forecasts), context())
    tables = ((LAG, lags), (MEMBERS, members), (SPEEDS, speeds), (FORECASTS, forecasts))
    here = plan_in_driver(*with_measures(*(arrow(*each) for each in tables)), context())
    expected = to_contract(by_spark.toArrow(), PLANNED).sort_by("group_id")
    assert here.schema == expected.schema
    assert [name for name in here["group_id"].to_pylist() if name != "watched"] == here[
        "group_id"
    ].to_pylist()
    assert here.to_pylist() == expected.to_pylist()
    assert sum(value is not None for value in here["head"].to_pylist()) >= 3
    proposed = {row["group_id"] for row in here.to_pylist() if row["head"] is not None}
    assert {name for name in proposed if "timed" in name} == {"timed-slow", "timed-heavy"}
    ids = [plan_id for plan_id in here["plan_id"].to_pylist() if plan_id is not None]
    for chosen in (ids, ids[:1], []):
        assert set(selected(here, chosen)["plan_id"].to_pylist()) == set(chosen)
    # Of a shadow plan only what it changes.
    kept = Counter(selected(here, ids)["group_id"].to_pylist())
    assert (kept["a"], kept["tried"]) == (4, 2)


def test_a_session_is_set_for_many_rows_and_set_back(spark: SparkSession) -> None:
    before = {key: spark.conf.get(key, None) for key in LARGE_LOCAL_CONF}
    with sized_session(spark, 1_000):
        assert {key: spark.conf.get(key, None) for key in LARGE_LOCAL_CONF} == before
    with sized_session(spark, 1_000_000):
        assert {key: spark.conf.get(key) for key in LARGE_LOCAL_CONF} == LARGE_LOCAL_CONF
    assert {key: spark.conf.get(key, None) for key in LARGE_LOCAL_CONF} == before
