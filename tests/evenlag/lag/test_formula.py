"""The formula of lag: the tables of rules, and what is known of groups that share topics."""

from __future__ import annotations

from typing import Any

import pytest

from evenlag.enums import LagStatus
from evenlag.lag.formula import STORED_ONLY, count_lag
from evenlag.lag.partitions import join_partitions
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.policy.group_settings import GroupSettings
from tests.support.lag_rules import LAG_RULES, TIME_RULES, GroupCase, LagRule, TimeRule
from tests.support.lakes.lag_rule_rows import REBALANCING, rule_rows, time_rule_rows
from tests.support.lakes.snapshots import NOW, arrow, commit, member, offset

Rows = list[dict[str, Any]]
EARLIEST = GroupSettings(reset_policy="earliest")


def count(
    offsets: Rows,
    commits: Rows,
    members: Rows,
    settings: GroupSettings = EARLIEST,
    past_offsets: Rows | None = None,
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Lag by group, topic and partition."""
    in_order = sorted(offsets, key=lambda row: (row["topic"], row["partition"]))
    joined = join_partitions(
        arrow(OFFSETS, in_order),
        arrow(COMMITS, commits),
        arrow(MEMBERS, members),
        lambda _group_id: settings,
        offset_history=arrow(OFFSETS, past_offsets or []),
        commit_history=arrow(COMMITS, []),
    )
    places = [(in_order[place]["topic"], in_order[place]["partition"]) for place in joined.row.tolist()]
    found = count_lag(joined.partitions, joined.groups, joined.member_ids, 900).to_pylist()
    assert [(row["topic"], row["partition"]) for row in found] == places
    return {(row["group_id"], row["topic"], row["partition"]): row for row in found}


@pytest.mark.parametrize("rule", LAG_RULES, ids=lambda rule: rule.name)
def test_every_rule_of_lag(rule: LagRule) -> None:
    settings = GroupSettings(reset_policy=rule.reset, isolation_level=rule.isolation)
    rows: Any = rule_rows(rule)
    (row,) = count(**rows, settings=settings).values()
    assert (row["status"], row["lag_records"], row["lag_bound"]) == (rule.status, rule.lag, rule.bound), (
        rule.why
    )
    unknown = {fact for fact in ("commit", "subscription", "owner") if row[f"{fact}_problem"] is not None}
    assert unknown == rule.group.unknown
    is_known = rule.committed is not None and row["end_offset"] is not None and rule.start is not None
    assert row["raw_lag_records"] == (row["end_offset"] - (rule.committed or 0) if is_known else None)


@pytest.mark.parametrize("rule", TIME_RULES, ids=lambda rule: rule.name)
def test_every_rule_of_times(rule: TimeRule) -> None:
    rows: Any = time_rule_rows(rule)
    (row,) = count(**rows).values()
    assert (row["time_lag_ms"], row["time_lag_at_least_ms"]) == (rule.time_ms, rule.at_least_ms), rule.why


def test_the_tables_have_every_status_and_condition() -> None:
    assert {rule.status for rule in LAG_RULES} == set(LagStatus)
    assert {rule.group for rule in LAG_RULES} == set(GroupCase)
    for table in (LAG_RULES, TIME_RULES):
        assert len({rule.name for rule in table}) == len(table)


def test_groups_of_each_kind_share_a_topic() -> None:
    lag = count(
        [offset(0, 100), offset(1, 100), offset(2, 100, start=60), offset(0, 50, topic="u")],
        [
            commit(0, 70),
            commit(2, 40),
            # A partition that does not exist any more has no lag.
            commit(3, 10),
            commit(0, 20, topic="u"),
            commit(0, 90, group="empty"),
            commit(0, 95, group="rebalancing"),
            {"group_id": "broken", "read_at": NOW, "error": "CoordinatorNotAvailableError"},
            commit(1, 30, group="not in members"),
        ],
        [
            member("m-1", held={"t": [0, 1]}),
            member("m-0", held={"t": [2]}),
            member(None, group="empty", topics=None, group_state="Empty", assignor=None),
            member("m-2", group="rebalancing", topics=None, **REBALANCING),
            member("m-3", group="broken", held={"t": [0]}),
        ],
    )
    message = ("status", "lag_records", "owner_member_id")
    assert {key: tuple(row[name] for name in message) for key, row in lag.items()} == {
        # 100 - 70; 100 - 0 without a commit; 100 - 60 after data loss; 50 - 20; 100 - 90; 100 - 95; 100 - 30.
        ("g", "t", 0): ("OK", 30, "m-1"),
        ("g", "t", 1): ("NO_COMMIT", 100, "m-1"),
        ("g", "t", 2): ("DATA_LOSS", 40, "m-0"),
        ("g", "u", 0): ("NOT_SUBSCRIBED", 30, None),
        ("empty", "t", 0): ("NO_MEMBERS", 10, None),
        ("rebalancing", "t", 0): ("OK", 5, None),
        ("not in members", "t", 1): ("OK", 70, None),
        ("broken", "t", 0): ("UNKNOWN", None, "m-3"),
        ("broken", "t", 1): ("UNKNOWN", None, None),
        ("broken", "t", 2): ("UNKNOWN", None, None),
    }
    problems = ("commit_problem", "subscription_problem", "owner_problem")
    moving = "the group is PreparingRebalance"
    nobody = "the group was not described"
    assert {
        key[0]: tuple(row[name] for name in problems)
        for key, row in lag.items()
        if any(row[name] for name in problems)
    } == {
        "broken": ("CoordinatorNotAvailableError", None, None),
        "rebalancing": (None, moving, moving),
        "not in members": (None, nobody, nobody),
    }


@pytest.mark.parametrize(
    ("members", "message"),
    [(("m-2", "m-1"), "owned by 2 members: m-1, m-2"), (("a", "c", "b"), "owned by 3 members: a, …, c")],
)
def test_members_that_own_a_partition_together_are_named(members: tuple[str, ...], message: str) -> None:
    # A member that lists a partition twice owns it once.
    people = [member(name, held={"t": [0, 0]}) for name in members]
    row = count([offset(0, 9)], [commit(0, 4)], people)["g", "t", 0]
    assert (row["owner_member_id"], row["owner_problem"]) == (min(members), message)
    # Members of share groups share partitions.
    shared = [{**one, "group_type": "share"} for one in people]
    row = count([offset(0, 9)], [commit(0, 4)], shared)["g", "t", 0]
    assert (row["owner_member_id"], row["owner_problem"]) == (None, None)


def test_the_target_owner_stands_beside_the_owner() -> None:
    wanted = [{"topic": "t", "partitions": [0, 1]}]
    people = [
        member("m-1", held={"t": [0]}, group_type="consumer", target_assignment=[]),
        member("m-2", held={}, group_type="consumer", target_assignment=wanted),
    ]
    lag = count([offset(number, 10) for number in range(3)], [commit(0, 4)], people)
    owners = {key[2]: (row["owner_member_id"], row["target_member_id"]) for key, row in lag.items()}
    assert owners == {0: ("m-1", "m-2"), 1: (None, "m-2"), 2: (None, None)}


def test_a_cluster_without_groups_or_topics_has_no_lag() -> None:
    assert count([], [], []) == {}
    assert count([offset(0, 9)], [], []) == {}
    assert count([], [commit(0, 4)], [member("m", held={"t": [0]})]) == {}


def test_the_columns_are_those_of_the_table_lag() -> None:
    (row,) = count([offset(0, 9)], [commit(0, 4)], [member("m", held={"t": [0]})]).values()
    assert list(row) == [name for name in LAG.column_names if name not in STORED_ONLY]
