"""Lag: every status, and the numbers that come from history."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.enums import IsolationLevel, LagStatus
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.policy.group_settings import GroupSettings
from spark_jobs.steps.snapshot_rows import to_contract
from spark_jobs.transforms.group_partitions import (
    build_commit_history,
    build_offset_history,
)
from spark_jobs.transforms.lag import build_lag
from spark_jobs.transforms.lag_here import count_lag_here
from spark_jobs.transforms.partitions_here import join_here
from tests.support.lag_rules import LAG_RULES, GroupCase
from tests.support.lakes.lag_rule_rows import REBALANCING, rule_rows
from tests.support.lakes.snapshots import HEAD, NOW, arrow, commit, frame, marker, member, offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm


class Reading:
    """Rows of one snapshot and of those before it; `lag` computes what they mean, joined in both ways."""

    def __init__(self, spark: SparkSession, **rows: list[dict[str, Any]]) -> None:
        self.spark, self.rows = spark, rows

    def lag(
        self,
        *,
        reset: str | None = "earliest",
        isolation: str | None = None,
        settings: Sequence[tuple[str, str | None, str | None]] | None = None,
    ) -> dict[Any, Any]:
        get = self.rows.get
        groups = {row["group_id"] for row in get("members", [])} | {"g"}
        given = settings or [(group, reset, isolation) for group in sorted(groups)]
        group_settings = self.spark.createDataFrame(
            list(given), "group_id STRING, reset_policy STRING, isolation_level STRING"
        )
        built = build_lag(
            offsets=frame(self.spark, OFFSETS, get("offsets", [])),
            commits=frame(self.spark, COMMITS, get("commits", [])),
            members=frame(self.spark, MEMBERS, get("members", [])),
            marker=HEAD | marker(),
            group_settings=group_settings,
            offset_history=build_offset_history(frame(self.spark, OFFSETS, get("past_offsets", []))),
            commit_history=build_commit_history(frame(self.spark, COMMITS, get("past_commits", []))),
            rate_window_s=900,
        )
        here = join_here(
            offsets=arrow(OFFSETS, get("offsets", [])),
            commits=arrow(COMMITS, get("commits", [])),
            members=arrow(MEMBERS, get("members", [])),
            marker=HEAD | marker(),
            settings_of={
                group: GroupSettings(
                    reset_policy=reset_policy, isolation_level=IsolationLevel(level) if level else None
                )
                for group, reset_policy, level in given
            }.__getitem__,
            offset_history=arrow(OFFSETS, get("past_offsets", [])),
            commit_history=arrow(COMMITS, get("past_commits", [])),
        )
        counted = count_lag_here(here, 900)
        assert built.columns == counted.column_names == list(LAG.column_names)
        assert sorted(counted.to_pylist(), key=repr) == sorted(
            to_contract(built.toArrow(), LAG).to_pylist(), key=repr
        )
        return {(row.group_id, row.topic, row.partition): row for row in built.collect()}


def test_every_rule_of_the_table(spark: SparkSession) -> None:
    """All rules in one snapshot, each with a group and a topic of its own."""
    rows: dict[str, list[dict[str, Any]]] = {"offsets": [], "commits": [], "members": []}
    for rule in LAG_RULES:
        for name, some in rule_rows(rule).items():
            rows[name] += some
    settings = [(rule.name, rule.reset, rule.isolation) for rule in LAG_RULES]
    lag = Reading(spark, **rows).lag(settings=settings)
    found = {rule.name: lag[rule.name, rule.name, 0] for rule in LAG_RULES}
    assert len(found) == len(lag) == len(LAG_RULES)
    seen = {name: (row.status, row.lag_records) for name, row in found.items()}
    assert seen == {rule.name: (rule.status.value, rule.lag) for rule in LAG_RULES}


def test_the_table_has_every_status() -> None:
    assert {rule.status for rule in LAG_RULES} == set(LagStatus)
    assert {rule.group for rule in LAG_RULES} == set(GroupCase)
    assert len({rule.name for rule in LAG_RULES}) == len(LAG_RULES)


def test_every_status_in_one_snapshot(spark: SparkSession) -> None:
    reading = Reading(
        spark,
        offsets=[
            offset(0, 100),
            offset(1, 100),
            offset(2, 100, start=60),
            offset(3, 100),
            offset(4, 100, error="NotLeaderForPartitionError", high_watermark=None),
            offset(0, 50, topic="u"),
        ],
        commits=[
            commit(0, 70),
            commit(2, 40),
            commit(3, 120),
            commit(4, 10),
            commit(0, 20, topic="u"),
            commit(0, 90, group="empty"),
            commit(0, 95, group="rebalancing"),
            {"group_id": "broken", "read_at": NOW, "error": "CoordinatorNotAvailableError"},
        ],
        members=[
            member("m-1", held={"t": [0, 1, 2, 3, 4]}),
            member(None, group="empty", topics=None, group_state="Empty", assignor=None),
            member("m-2", group="rebalancing", topics=None, **REBALANCING),
            member("m-3", group="broken", held={"t": [0]}),
        ],
    )
    lag = reading.lag(reset="earliest")
    seen = {key: (row.status, row.lag_records, row.raw_lag_records) for key, row in lag.items()}
    assert seen["g", "t", 0] == ("OK", 30, 30)
    assert seen["g", "t", 1] == ("NO_COMMIT", 100, None)
    assert seen["g", "t", 2] == ("DATA_LOSS", 40, 60)
    assert seen["g", "t", 3] == ("NEGATIVE", 0, -20)
    assert seen["g", "t", 4] == ("UNKNOWN", None, None)
    assert seen["g", "u", 0] == ("NOT_SUBSCRIBED", 30, 30)
    assert seen["empty", "t", 0] == ("NO_MEMBERS", 10, 10)
    assert seen["rebalancing", "t", 0] == ("UNKNOWN", None, None)
    assert {seen["broken", "t", n] for n in range(5)} == {("UNKNOWN", None, None)}
    assert len(lag) == 13
    assert lag["g", "t", 0].owner_member_id == "m-1"
    assert lag["g", "u", 0].owner_member_id is None


@pytest.mark.parametrize(
    ("reset", "without_commit", "after_loss"),
    [("earliest", 40, 40), ("latest", 0, 0), (None, None, None)],
)
def test_reset_policy_decides_where_no_valid_commit_is(
    spark: SparkSession, reset: str | None, without_commit: int | None, after_loss: int | None
) -> None:
    reading = Reading(
        spark,
        offsets=[offset(0, 100, start=60), offset(1, 100, start=60)],
        commits=[commit(1, 10)],
        members=[member()],
    )
    lag = reading.lag(reset=reset)
    assert (lag["g", "t", 0].status, lag["g", "t", 0].lag_records) == ("NO_COMMIT", without_commit)
    assert (lag["g", "t", 1].status, lag["g", "t", 1].lag_records) == ("DATA_LOSS", after_loss)


def test_a_read_committed_group_is_counted_to_the_last_stable_offset(spark: SparkSession) -> None:
    reading = Reading(spark, offsets=[offset(0, 100, stable=80)], commits=[commit(0, 50)], members=[member()])
    assert reading.lag()["g", "t", 0].lag_records == 50
    assert reading.lag(isolation="read_committed")["g", "t", 0].lag_records == 30


def test_rates_time_lag_and_drain_time_from_history(spark: SparkSession) -> None:
    """The end grew by 1 a second, the group by 2: it is now where the end was 5 minutes ago."""
    minutes = {n: NOW - timedelta(minutes=n) for n in (5, 10)}
    reading = Reading(
        spark,
        offsets=[offset(0, 1000)],
        commits=[commit(0, 700)],
        members=[member(held={"t": [0]})],
        past_offsets=[
            offset(0, 700, end_read_at=minutes[5]),
            offset(0, 400, end_read_at=minutes[10]),
        ],
        past_commits=[commit(0, 100, read_at=minutes[5])],
    )
    row = reading.lag()["g", "t", 0]
    assert row.lag_records == 300
    assert row.arrival_rate_records_per_s == pytest.approx(1.0)
    assert row.consume_rate_records_per_s == pytest.approx(2.0)
    assert row.time_lag_ms == 300_000
    assert row.drain_time_ms == 300_000
    assert row.stalled is False


def test_a_commit_between_two_points_is_interpolated(spark: SparkSession) -> None:
    reading = Reading(
        spark,
        offsets=[offset(0, 200)],
        commits=[commit(0, 150)],
        members=[member(held={"t": [0]})],
        past_offsets=[offset(0, 100, end_read_at=NOW - timedelta(seconds=60))],
    )
    assert reading.lag()["g", "t", 0].time_lag_ms == 30_000


def test_what_history_does_not_reach_is_not_known(spark: SparkSession) -> None:
    reading = Reading(
        spark,
        offsets=[offset(0, 200), offset(1, 200)],
        commits=[commit(0, 50), commit(1, 200)],
        members=[member(held={"t": [0, 1]})],
        past_offsets=[offset(0, 100, end_read_at=NOW - timedelta(seconds=60))],
    )
    lag = reading.lag()
    assert lag["g", "t", 0].time_lag_ms is None
    assert lag["g", "t", 0].drain_time_ms is None
    assert (lag["g", "t", 1].time_lag_ms, lag["g", "t", 1].drain_time_ms) == (0, 0)


def test_a_partition_with_lag_and_no_progress_is_stalled(spark: SparkSession) -> None:
    reading = Reading(
        spark,
        offsets=[offset(0, 200)],
        commits=[commit(0, 50)],
        members=[member(held={"t": [0]})],
        past_commits=[commit(0, 50, read_at=NOW - timedelta(seconds=60))],
    )
    assert reading.lag()["g", "t", 0].stalled is True


def test_a_recreated_topic_has_no_part_in_the_old_ones_history(spark: SparkSession) -> None:
    old: dict[str, Any] = {"topic_id": "AAAAAAAAAAAAAAAAAAAAAw"}
    reading = Reading(
        spark,
        offsets=[offset(0, 10)],
        commits=[commit(0, 5)],
        members=[member(held={"t": [0]})],
        past_offsets=[offset(0, 9000, end_read_at=NOW - timedelta(seconds=60), **old)],
        past_commits=[commit(0, 8000, read_at=NOW - timedelta(seconds=60), **old)],
    )
    row = reading.lag()["g", "t", 0]
    assert (row.status, row.lag_records, row.arrival_rate_records_per_s) == ("OK", 5, None)


def test_a_commit_beyond_a_topic_recreated_with_fewer_partitions_is_left_out(spark: SparkSession) -> None:
    reading = Reading(
        spark, offsets=[offset(0, 10)], commits=[commit(0, 5), commit(7, 90)], members=[member()]
    )
    assert set(reading.lag()) == {("g", "t", 0)}


def test_a_group_of_the_newer_protocol_is_counted_by_its_commits(spark: SparkSession) -> None:
    row = member(None, group="new", topics=None, group_type="consumer", assignor=None)
    reading = Reading(spark, offsets=[offset(0, 10)], commits=[commit(0, 4, group="new")], members=[row])
    lag = reading.lag()["new", "t", 0]
    assert (lag.status, lag.lag_records) == ("OK", 6)


def test_a_group_of_the_newer_protocol_that_shows_its_members_is_like_any_other(spark: SparkSession) -> None:
    row = member("m-1", group="new", held={"t": [0]}, group_type="consumer", assignor="uniform")
    commits = [commit(0, 4, group="new"), commit(0, 1, topic="u", group="new")]
    reading = Reading(spark, offsets=[offset(0, 10), offset(0, 5, topic="u")], commits=commits, members=[row])
    lag = reading.lag()
    assert (lag["new", "t", 0].status, lag["new", "t", 0].owner_member_id) == ("OK", "m-1")
    assert lag["new", "u", 0].status == "NOT_SUBSCRIBED"
    assert lag["new", "t", 0].target_member_id is None


def test_who_shall_hold_a_partition_stands_beside_who_does(spark: SparkSession) -> None:
    wanted = [{"topic": "t", "partitions": [0, 1]}]
    people = [
        member("m-1", held={"t": [0]}, group_type="consumer", target_assignment=[]),
        member("m-2", held={}, group_type="consumer", target_assignment=wanted),
    ]
    reading = Reading(
        spark, offsets=[offset(n, 10) for n in range(3)], commits=[commit(0, 4)], members=people
    )
    holders = {
        number: (row.owner_member_id, row.target_member_id) for (*_, number), row in reading.lag().items()
    }
    assert holders == {0: ("m-1", "m-2"), 1: (None, "m-2"), 2: (None, None)}
