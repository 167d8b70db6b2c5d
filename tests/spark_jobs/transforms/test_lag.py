"""Lag counted by Spark: the tables of rules, and the joins beside those in arrays."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from evenlag.lag.formula import STORED_ONLY, count_lag
from evenlag.lag.partitions import join_partitions
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.policy.group_settings import GroupSettings
from spark_jobs.steps.snapshot_rows import to_contract
from spark_jobs.transforms.lag import build_lag
from tests.support.lag_rules import LAG_RULES, TIME_RULES
from tests.support.lakes.lag_rule_rows import REBALANCING, rule_rows, time_rule_rows
from tests.support.lakes.snapshots import HEAD, NOW, arrow, commit, frame, marker, member, offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.jvm

Rows = dict[str, list[dict[str, Any]]]
TABLES = (OFFSETS, COMMITS, MEMBERS)
RATE_WINDOW_S = 900


def by_spark(
    spark: SparkSession, rows: Rows, settings_of: Callable[[str], GroupSettings], num_batches: int = 1
) -> pa.Table:
    """The rows of ``lag``, by group, topic and partition."""
    offsets, commits, members = (rows.get(table.name, []) for table in TABLES)
    pairs = {(row["group_id"], row["topic"]) for row in commits if row.get("topic")}
    for row in members:
        held = [*(row.get("assignment") or []), *(row.get("target_assignment") or [])]
        topics = {*(row.get("subscription") or []), *(each["topic"] for each in held)}
        pairs |= {(row["group_id"], topic) for topic in topics}
    number = {group: n % num_batches for n, group in enumerate(sorted({group for group, _ in pairs}))}
    built = build_lag(
        offsets=frame(spark, OFFSETS, offsets),
        commits=frame(spark, COMMITS, commits),
        offset_history=frame(spark, OFFSETS, rows.get("past_offsets", [])),
        commit_history=frame(spark, COMMITS, rows.get("past_commits", [])),
        members=arrow(MEMBERS, members),
        batches=pa.table(
            {
                "group_id": [group for group, _ in sorted(pairs)],
                "topic": [topic for _, topic in sorted(pairs)],
                "batch": pa.array([number[group] for group, _ in sorted(pairs)], pa.int32()),
            }
        ),
        settings_of=settings_of,
        marker=HEAD | marker(),
        rate_window_s=RATE_WINDOW_S,
    )
    assert built.columns == list(LAG.column_names)
    return in_order(to_contract(built.toArrow(), LAG))


def in_arrays(rows: Rows, settings_of: Callable[[str], GroupSettings]) -> pa.Table:
    """The same rows without the columns of a stored snapshot, joined without Spark."""
    offsets, commits, members = (arrow(table, rows.get(table.name, [])) for table in TABLES)
    joined = join_partitions(
        offsets.sort_by([("topic", "ascending"), ("partition", "ascending")]),
        commits,
        members,
        settings_of,
        offset_history=arrow(OFFSETS, rows.get("past_offsets", [])),
        commit_history=arrow(COMMITS, rows.get("past_commits", [])),
    )
    return in_order(count_lag(joined.partitions, joined.groups, joined.member_ids, RATE_WINDOW_S))


def in_order(lag: pa.Table) -> pa.Table:
    return lag.sort_by([(name, "ascending") for name in ("group_id", "topic", "partition")])


def test_every_rule_of_the_tables(spark: SparkSession) -> None:
    """All rules in one snapshot, each with a group and a topic of its own."""
    rows: Rows = {"offsets": [], "commits": [], "members": [], "past_offsets": []}
    every = [rule_rows(rule) for rule in LAG_RULES] + [time_rule_rows(rule) for rule in TIME_RULES]
    for name, some in ((name, some) for each in every for name, some in each.items()):
        rows[name] += some
    settings = {
        rule.name: GroupSettings(reset_policy=rule.reset, isolation_level=rule.isolation)
        for rule in LAG_RULES
    } | {rule.name: GroupSettings(reset_policy="earliest") for rule in TIME_RULES}
    found = {row["group_id"]: row for row in by_spark(spark, rows, settings.__getitem__).to_pylist()}
    assert len(found) == len(LAG_RULES) + len(TIME_RULES)
    for rule in LAG_RULES:
        row = found[rule.name]
        seen = (row["status"], row["lag_records"], row["lag_bound"])
        assert seen == (rule.status, rule.lag, rule.bound), rule.name
        unknown = {fact for fact in ("commit", "subscription", "owner") if row[f"{fact}_problem"] is not None}
        assert unknown == rule.group.unknown
    for time_rule in TIME_RULES:
        row = found[time_rule.name]
        times = (row["time_lag_ms"], row["time_lag_at_least_ms"])
        assert times == (time_rule.time_ms, time_rule.at_least_ms), time_rule.name
    head = HEAD | {"slot": marker()["slot"]}
    assert {name: row[name] for name in STORED_ONLY} == head


def random_rows(chance: np.random.Generator) -> tuple[Rows, dict[str, GroupSettings]]:
    """Groups of each kind with some partitions of two topics, and their history."""

    def some(most: int, share: float = 0.6) -> list[int]:
        return [number for number in range(most) if chance.random() < share]

    def held() -> dict[str, list[int]]:
        return {topic: some(6, 0.3) for topic in ("t", "u", "gone") if chance.random() < 0.8}

    places = [(topic, number) for topic in ("t", "u") for number in range(5)]
    rows: Rows = {name: [] for name in ("offsets", "commits", "members", "past_offsets", "past_commits")}
    for topic, number in places:
        start, end = sorted(int(each) for each in chance.integers(0, 1_000, 2))
        error = "refused" if chance.random() < 0.1 else None
        rows["offsets"].append(offset(number, end, topic=topic, start=start, error=error))
        for age in some(4):
            old: Any = {"topic_id": "another"} if chance.random() < 0.2 else {}
            at: Any = {"end_read_at": NOW - timedelta(seconds=200 * (age + 1))}
            rows["past_offsets"].append(offset(number, end - 50 * age, topic=topic, **at, **old))
    kinds: tuple[dict[str, Any], ...] = (
        {},
        REBALANCING | {"subscription": None},
        {"group_type": "consumer", "subscription": None, "subscription_error": "not RE2"},
        {"member_id": None, "subscription": None, "assignment": None, "group_state": "Empty"},
        {"member_id": None, "subscription": None, "assignment": None, "error": "refused"},
    )
    settings = {}
    for number in range(40):
        group = f"g{number}"
        settings[group] = GroupSettings(reset_policy=("earliest", "latest", None)[number % 3])
        kind = kinds[number % len(kinds)]
        for name in ("m-1", "m-2", "m-3")[: 1 if "member_id" in kind else 3]:
            topics = [topic for topic in ("t", "u", "gone") if chance.random() < 0.5]
            target = [{"topic": "t", "partitions": some(6, 0.2)}] if chance.random() < 0.3 else None
            plain = member(name, group=group, topics=topics, held=held(), target_assignment=target)
            rows["members"].append(plain | kind)
        if chance.random() < 0.1:
            rows["commits"].append({"group_id": group, "read_at": NOW, "error": "refused"})
            continue
        for place in some(len(places)):
            topic, partition = places[place]
            more: Any = {"topic": topic, "group": group}
            committed = int(chance.integers(0, 1_100))
            rows["commits"].append(commit(partition, committed, **more))
            earlier: Any = {"read_at": NOW - timedelta(seconds=300)}
            rows["past_commits"].append(commit(partition, max(committed - 30, 0), **more, **earlier))
        rows["commits"].append(commit(9, 5, group=group))
    return rows, settings


@pytest.mark.parametrize("seed", range(2))
def test_spark_joins_the_rows_that_arrays_join(spark: SparkSession, seed: int) -> None:
    rows, settings = random_rows(np.random.default_rng(seed))
    expected = in_arrays(rows, settings.__getitem__)
    assert expected.num_rows > 100
    found = by_spark(spark, rows, settings.__getitem__, num_batches=3).drop_columns(list(STORED_ONLY))
    assert found.to_pylist() == expected.to_pylist()
