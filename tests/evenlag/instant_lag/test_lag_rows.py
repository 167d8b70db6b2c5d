"""Lag counted in arrays: the rules of ``lag_rules``, which the jobs' own formula passes too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.enums import LagStatus
from evenlag.instant_lag.lag_rows import build_lag_rows
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.policy.group_settings import GroupSettings
from tests.support.lag_rules import LAG_RULES
from tests.support.lakes.lag_rule_rows import REBALANCING, rule_rows
from tests.support.lakes.snapshots import NOW, arrow, commit, member, offset

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIEST = GroupSettings(reset_policy="earliest")


def count(
    offsets: list[dict[str, Any]],
    commits: list[dict[str, Any]],
    members: list[dict[str, Any]],
    settings: Mapping[str, GroupSettings] | None = None,
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Lag by group, topic and partition; the rows of ``offsets`` in Kafka's order."""
    in_order = sorted(offsets, key=lambda row: (row["topic"], row["partition"]))
    rows = build_lag_rows(
        arrow(OFFSETS, in_order),
        arrow(COMMITS, commits),
        arrow(MEMBERS, members),
        lambda group_id: (settings or {}).get(group_id, EARLIEST),
    )
    places = [(in_order[place]["topic"], in_order[place]["partition"]) for place in rows.partition.tolist()]
    found = rows.table.to_pylist()
    assert [(row["topic"], row["partition"]) for row in found] == places
    return {(row["group_id"], row["topic"], row["partition"]): row for row in found}


def test_every_rule_of_the_table() -> None:
    """All rules in one snapshot, each with a group and a topic of its own."""
    rows: dict[str, list[dict[str, Any]]] = {"offsets": [], "commits": [], "members": []}
    for rule in LAG_RULES:
        for name, some in rule_rows(rule).items():
            rows[name] += some
    settings = {
        rule.name: GroupSettings(reset_policy=rule.reset, isolation_level=rule.isolation)
        for rule in LAG_RULES
    }
    lag = count(rows["offsets"], rows["commits"], rows["members"], settings)
    seen = {group: (row["status"], row["lag_records"]) for (group, _, _), row in lag.items()}
    assert len(lag) == len(LAG_RULES)
    assert seen == {rule.name: (rule.status.value, rule.lag) for rule in LAG_RULES}


def test_groups_of_each_kind_share_a_topic() -> None:
    lag = count(
        [
            offset(0, 100),
            offset(1, 100),
            offset(2, 100, start=60),
            offset(4, 100, error="NotLeaderForPartitionError", high_watermark=None),
            offset(0, 50, topic="u"),
        ],
        [
            commit(0, 70),
            commit(2, 40),
            commit(4, 10),
            # A partition that does not exist any more has no lag.
            commit(3, 10),
            commit(0, 20, topic="u"),
            commit(0, 90, group="empty"),
            commit(0, 95, group="rebalancing"),
            {"group_id": "broken", "read_at": NOW, "error": "CoordinatorNotAvailableError"},
        ],
        [
            member("m-1", held={"t": [0, 1]}),
            member("m-0", held={"t": [2, 4]}),
            member(None, group="empty", topics=None, group_state="Empty", assignor=None),
            member("m-2", group="rebalancing", topics=None, **REBALANCING),
            member("m-3", group="broken", held={"t": [0]}),
        ],
    )
    status, records, owner = (
        {key: row[name] for key, row in lag.items()} for name in ("status", "lag_records", "owner_member_id")
    )
    assert status == {
        ("g", "t", 0): LagStatus.OK,
        ("g", "t", 1): LagStatus.NO_COMMIT,
        ("g", "t", 2): LagStatus.DATA_LOSS,
        ("g", "t", 4): LagStatus.UNKNOWN,
        ("g", "u", 0): LagStatus.NOT_SUBSCRIBED,
        ("empty", "t", 0): LagStatus.NO_MEMBERS,
        ("rebalancing", "t", 0): LagStatus.UNKNOWN,
        **{("broken", "t", partition): LagStatus.UNKNOWN for partition in (0, 1, 2, 4)},
    }
    # 100 - 70; 100 - 0 without a commit; 100 - 60 after data loss; 50 - 20; 100 - 90.
    assert {key: value for key, value in records.items() if value is not None} == {
        ("g", "t", 0): 30,
        ("g", "t", 1): 100,
        ("g", "t", 2): 40,
        ("g", "u", 0): 30,
        ("empty", "t", 0): 10,
    }
    assert {key: value for key, value in owner.items() if value is not None} == {
        ("g", "t", 0): "m-1",
        ("g", "t", 1): "m-1",
        ("g", "t", 2): "m-0",
        ("g", "t", 4): "m-0",
        ("broken", "t", 0): "m-3",
    }


def test_of_two_owners_the_smaller_id_is_shown() -> None:
    lag = count(
        [offset(0, 9)], [commit(0, 4)], [member("m-2", held={"t": [0]}), member("m-1", held={"t": [0]})]
    )
    assert lag["g", "t", 0]["owner_member_id"] == "m-1"


def test_a_cluster_without_groups_or_topics_has_no_lag() -> None:
    assert count([], [], []) == {}
    assert count([offset(0, 9)], [], []) == {}
    assert count([], [commit(0, 4)], [member("m", held={"t": [0]})]) == {}


def test_the_columns_are_those_of_the_table_lag() -> None:
    (row,) = count([offset(0, 9)], [commit(0, 4)], [member("m", held={"t": [0]})]).values()
    assert list(row) == [
        name for name in LAG.column_names if name not in {"cluster", "day", "snapshot_id", "slot"}
    ]
