"""Batches of groups: the same rows however they are bundled, a failure that stays alone, a fair packing."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import FORECASTS, LAG, MEMBERS, SPEEDS
from evenlag.planning import group_planner
from evenlag.planning.plan_batch import plan_batch, with_counts
from spark_jobs.transforms.batch_packing import GROUP_ROWS, LEAST_ROWS, MOST_ROWS, pack_groups
from spark_jobs.transforms.plan_frames import KINDS, plan_partition
from tests.support.lakes.snapshots import member, plan_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lake.tables import Table
    from evenlag.planning.plan_batch import PlanContext

POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups:
  - {match: "group-*3", mode: observe}
  - {match: "group-*1", mode: shadow, count_slack: 1, max_moves: 4}
  - {match: "group-*2", mode: auto, assignor: lag-aware}
  - {match: "*", mode: auto}
"""
TOPICS = ("b", "a", "\U0001f600", "\uffee")
NUM_GROUPS = 30


def context() -> PlanContext:
    return plan_context(POLICY)


def snapshot(seed: int = 1) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Groups with differing topics and subscriptions, lags not known, owners that are strangers."""
    rng = random.Random(seed)  # noqa: S311 - rows to test with
    lags: list[dict[str, Any]] = []
    people: list[dict[str, Any]] = []
    for number in range(NUM_GROUPS):
        group, topics = f"group-{number}", rng.sample(TOPICS, rng.randint(1, 3))
        names = [f"m-{rng.randint(0, 99)}-{place}" for place in range(rng.randint(1, 6))]
        # The group has no rows of either, and other groups have some of the first.
        unread = [next(topic for topic in TOPICS if topic not in topics), "not read"]
        taken = {
            name: [*topics[: 1 + place % len(topics)], *unread] for place, name in enumerate(names[::-1])
        }
        people += [
            member(
                name, group=group, topics=taken[name], group_instance_id=f"i-{name}" if number % 2 else None
            )
            for name in names
        ]
        for topic in topics:
            takers = [name for name in names if topic in taken[name]]
            for partition in range(rng.randint(1, 12)):
                is_known = rng.random() < 0.95
                lags.append(
                    {
                        "group_id": group,
                        "topic_id": f"{TOPICS.index(topic):022}",
                        "topic": topic,
                        "partition": partition,
                        "owner_member_id": rng.choice([*takers, "stranger"]) if takers else None,
                        "status": ("OK" if is_known else "UNKNOWN") if takers else "NOT_SUBSCRIBED",
                        "lag_records": rng.choice([0, 0, 5, 900]) if is_known else None,
                        "stalled": rng.choice([True, False, None]),
                    }
                )
    # One without members, one that nothing was read of, one whose lag makes no sense.
    people.append(member(None, group="group-empty", topics=None, group_state="Empty"))
    people.append(member("m", group="group-unread", topics=["elsewhere"]))
    lags.append({**lags[0], "group_id": "group-bad", "lag_records": -5})
    people.append(member("m", group="group-bad", topics=[lags[0]["topic"]]))
    rng.shuffle(lags)
    rng.shuffle(people)
    return lags, people


def table(kind: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    schema = arrow_schema(kind)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def plan_in(
    batches: Sequence[set[str]], lags: list[dict[str, Any]], people: list[dict[str, Any]]
) -> list[str]:
    """All answers of these batches, as text in an order of their own."""
    found: list[str] = []
    for batch in batches:
        lag = table(LAG, [row for row in lags if row["group_id"] in batch])
        members = table(MEMBERS, [row for row in people if row["group_id"] in batch])
        found += [repr(row) for row in plan_batch(lag, members, context()).to_pylist()]
    return sorted(found)


def decisions(answer: pa.Table) -> dict[str, tuple[str, str | None]]:
    return {
        row["group_id"]: (row["decided"]["decision"], row["decided"]["reason"]) for row in answer.to_pylist()
    }


def test_rows_are_the_same_however_groups_are_bundled_and_rows_ordered() -> None:
    lags, people = snapshot()
    groups = sorted({row["group_id"] for row in (*lags, *people)})
    alone = plan_in([{group} for group in groups], lags, people)
    assert sum("'head': {" in row for row in alone) > NUM_GROUPS / 5
    assert plan_in([set(groups)], lags, people) == alone
    halves = [set(groups[::2]), set(groups[1::2])]
    assert plan_in(halves, lags[::-1], people[::-1]) == alone


def test_a_partition_of_mixed_batches_is_one_bundle() -> None:
    lags, people = snapshot()
    lag, members = table(LAG, lags), table(MEMBERS, people)
    expected = with_counts(plan_batch(lag, members, context()), lag, members)
    of_kind = {LAG: lag, MEMBERS: members, SPEEDS: table(SPEEDS, ()), FORECASTS: table(FORECASTS, ())}

    def as_rows(kind: Table) -> pa.Table:
        own = of_kind[kind]
        columns = {
            each.name: (own.select(names).to_struct_array() if each is kind else pa.nulls(own.num_rows))
            for each, names in KINDS
        }
        return pa.table({"group_id": own["group_id"], **columns})

    parts = [as_rows(kind) for kind in (MEMBERS, LAG, SPEEDS, FORECASTS)]
    rows = pa.concat_tables(parts, promote_options="default")
    answer = pa.Table.from_batches(plan_partition(rows.to_batches(max_chunksize=7), context()))
    assert answer.to_pylist() == expected.to_pylist()
    assert list(plan_partition([], context())) == []


def test_what_nobody_foresaw_fails_alone_and_leaves_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    lags, people = snapshot()
    expected = decisions(plan_batch(table(LAG, lags), table(MEMBERS, people), context()))
    plan_group = group_planner.plan_group

    def fail(*given: Any, group_id: str, **more: Any) -> Any:
        if group_id == "group-5":
            raise KeyError("nobody foresaw it")
        return plan_group(*given, group_id=group_id, **more)

    monkeypatch.setattr(group_planner, "plan_group", fail)
    answer = plan_batch(table(LAG, lags), table(MEMBERS, people), context())
    shown = decisions(answer)
    name, reason = shown.pop("group-5")
    assert name == "FAILED"
    assert "unexpected KeyError: 'nobody foresaw it'; this is a bug in evenlag" in str(reason)
    (failed,) = [row["decided"] for row in answer.to_pylist() if row["group_id"] == "group-5"]
    assert "in fail\n" in failed["traceback"]
    assert shown == {group: said for group, said in expected.items() if group != "group-5"}


def test_rows_that_cannot_be_put_in_order_fail_their_group_alone() -> None:
    lags, people = snapshot()
    expected = decisions(plan_batch(table(LAG, lags), table(MEMBERS, people), context()))
    broken = [row | {"topic": None} if row["group_id"] == "group-7" else row for row in lags]
    shown = decisions(plan_batch(table(LAG, broken), table(MEMBERS, people), context()))
    assert shown.pop("group-7")[0] == "FAILED"
    assert shown == {group: said for group, said in expected.items() if group != "group-7"}


def test_a_partition_that_is_owned_but_not_subscribed_any_more_is_not_planned() -> None:
    """It counts until it is revoked; the fingerprint is that of the topics that members subscribe to."""

    def row(topic: str, partition: int, lag: int | None, owner: str | None) -> dict[str, Any]:
        status = "UNKNOWN" if lag is None else "OK"
        same = {"group_id": "g", "topic_id": f"{TOPICS.index(topic):022}", "stalled": False}
        return same | {
            "topic": topic,
            "partition": partition,
            "owner_member_id": owner,
            "status": status,
            "lag_records": lag,
        }

    lags = [row("a", 0, 900, "m-1"), row("a", 1, 800, "m-1"), row("b", 3, 70, "m-1")]
    people = [member(name, topics=["a"]) for name in ("m-1", "m-2")]
    answer = plan_batch(table(LAG, lags), table(MEMBERS, people), context()).to_pylist()
    rows = {
        (row["topic"], row["partition"]): row["owner_after"] is None
        for group in answer
        for row in group["rows"] or ()
    }
    assert rows == {("a", 0): False, ("a", 1): False}


@given(st.lists(st.integers(0, 3 * MOST_ROWS), min_size=1, max_size=60), st.integers(1, 64))
def test_bundles_are_full_and_the_heaviest_is_first(sizes: list[int], cores: int) -> None:
    rows = np.array(sizes, dtype=np.int64)
    batches = pack_groups(rows, cores)
    weights = np.bincount(batches, rows + GROUP_ROWS)
    assert (weights > 0).all()
    assert (np.diff(weights) <= 0).all()
    for batch in range(len(weights)):
        held = rows[batches == batch] + GROUP_ROWS
        assert len(held) == 1 or held.sum() < 2 * MOST_ROWS
    assert (batches == pack_groups(rows, cores)).all()


@pytest.mark.parametrize("cores", [2, 8, 32])
def test_skewed_sizes_end_as_early_as_the_largest_group_or_an_even_share(cores: int) -> None:
    rows = np.array([1_000_000] + [100] * 10_000, dtype=np.int64)
    batches = pack_groups(rows, cores)
    weights = np.bincount(batches, rows + GROUP_ROWS)
    assert weights[1:].max() < max(LEAST_ROWS, weights.sum() / cores) / 2
    # Spark hands out partitions in their order, each to the first core that is free.
    free = [0.0] * cores
    for weight in weights:
        heapq.heapreplace(free, free[0] + weight)
    assert max(free) <= 1.05 * max(weights[0], weights.sum() / cores)
