"""Current lag before publishing: the rules of ``lag_rules``, and a plan measured on the current lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assignor_core.hint import HintPayload
from evenlag.enums import IsolationLevel
from evenlag.kafka.live_groups import LiveGroup, LiveOffsets
from evenlag.lag.speed_rows import with_speeds
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, SPEEDS
from evenlag.planning.plan_batch import plan_batch
from evenlag.policy.group_settings import CapacityRule, GroupSettings
from evenlag.publishing.publish_checks import LiveGain, live_lags, measure_gains
from tests.support.lag_rules import LAG_RULES, LagRule
from tests.support.lakes.lag_rule_rows import rule_rows
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, arrow, commit, member, offset, plan_context

if TYPE_CHECKING:
    from collections.abc import Sequence


TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LIVE = LiveGroup(
    state="Stable",
    assignor="evenlag",
    fingerprint="f" * 64,
    topics=(("t", TOPIC_ID, 4),),
    held={"i:big": {TOPIC_ID: [0, 1]}, "m:b": {TOPIC_ID: [2, 3]}},
)


@pytest.mark.parametrize("rule", [rule for rule in LAG_RULES if rule.is_live], ids=lambda rule: rule.name)
def test_lag_is_counted_by_the_rules_of_the_table(rule: LagRule) -> None:
    rows = rule_rows(rule)
    offsets = LiveOffsets(arrow(OFFSETS, rows["offsets"]), arrow(COMMITS, rows["commits"]))
    group = LiveGroup("Stable", "evenlag", "f", topics=((rule.name, TOPIC_ID, 1),))
    settings = GroupSettings(reset_policy=rule.reset, isolation_level=rule.isolation)
    # A bound is not enough to publish by.
    expected = -1 if rule.lag is None or rule.bound is not None else rule.lag
    lags = live_lags({rule.name: group}, {rule.name: settings}, offsets)
    assert lags[rule.name].tolist() == [expected]


def test_each_partition_has_its_place_by_topic_and_number() -> None:
    """A partition that is not there any more, or was added since, is unknown."""
    rows = [offset(0, 10), offset(1, 20), offset(3, 30), offset(0, 5, topic="u"), offset(1, 7, topic="u")]
    commits = [commit(0, 1), commit(3, 3), commit(0, 2, topic="u"), commit(1, 4, topic="u", group="other")]
    topics = (("u", TOPIC_IDS["u"], 1), ("t", TOPIC_ID, 3), ("gone", "id", 2))
    group = LiveGroup("Stable", "evenlag", "f", topics=topics)
    offsets = LiveOffsets(arrow(OFFSETS, rows), arrow(COMMITS, commits), {"gone": "it does not exist"})
    earliest, none = GroupSettings(reset_policy="earliest"), GroupSettings()
    other = LiveGroup("Stable", "evenlag", "f", topics=(("u", TOPIC_IDS["u"], 2),))
    lags = live_lags({"g": group, "other": other}, {"g": earliest, "other": none}, offsets)
    assert lags["g"].tolist() == [3, 9, 20, -1, -1, -1]
    assert lags["other"].tolist() == [-1, 3]
    names = {"g": ["t", "gone"], "other": ["t", "u"]}
    assert offsets.errors(names) == {"g": "topic gone: it does not exist"}


def measure(
    ends: Sequence[int],
    settings: GroupSettings | None = None,
    *,
    stable: Sequence[int] | None = None,
    group: str = "g",
) -> LiveGain:
    """Measure a plan that swaps partitions 1 and 3; the group has committed offset 0 of all four."""
    payload = HintPayload(
        cluster_id="k",
        group_id=group,
        snapshot_id="s",
        fingerprint="f" * 64,
        assignment={"i:big": {TOPIC_ID: [0, 3]}, "m:b": {TOPIC_ID: [1, 2]}},
        count_slack=0,
        max_moves=2,
    )
    plan = {"plan_id": "p", "group_id": group, "payload": payload.encode().decode(), "capacities": None}
    rows = [offset(n, end, stable=(stable or ends)[n]) for n, end in enumerate(ends)]
    rows = [row | {"error": None if ends[n] >= 0 else "refused"} for n, row in enumerate(rows)]
    commits = [commit(number, 0) for number in range(4)]
    refused = {"group_id": "refused", "read_at": NOW, "error": "CoordinatorNotAvailableError"}
    offsets = LiveOffsets(arrow(OFFSETS, rows), arrow(COMMITS, [*commits, refused]))
    found = measure_gains([plan], {group: LIVE}, {group: settings or GroupSettings()}, offsets)
    return found["p"]


def test_a_plan_is_measured_on_the_lag_of_this_moment() -> None:
    good = measure((500, 500, 10, 10))
    assert good.num_unknown == 0
    assert good.gain == pytest.approx(1 - 510 / 1000)
    worse = measure((500, 10, 10, 500))
    assert worse.gain == pytest.approx(1 - 1000 / 510)
    assert measure((0, 0, 0, 0)) == LiveGain(0.0, 0)


def test_capacities_and_isolation_level_count() -> None:
    ends = (500, 500, 10, 10)
    big = GroupSettings(capacities=(CapacityRule(match="big", capacity=4),))
    assert measure(ends, big).gain == pytest.approx(1 - 510 / 250)
    committed = GroupSettings(isolation_level=IsolationLevel.READ_COMMITTED)
    assert measure(ends, committed, stable=(0, 0, 0, 0)) == LiveGain(0.0, 0)


def test_what_cannot_be_read_is_not_known() -> None:
    unread = measure((500, 500, 10, -1))
    assert (unread.num_unknown, unread.error) == (1, "topic t: refused")
    refused = measure((5, 5, 5, 5), group="refused")
    assert (refused.num_unknown, refused.error) == (4, "CoordinatorNotAvailableError")


def test_a_plan_by_measured_speeds_is_judged_by_them() -> None:
    """Speeds 1:2:4 without configuration, and 21 partitions of lag 100: 3, 6 and 12 are even."""
    names, speeds = ("m-1", "m-2", "m-3"), (50.0, 100.0, 200.0)
    policy = """
    lake: /nowhere
    clusters: {c: {bootstrap_servers: "localhost:9092"}}
    groups: [{match: g, mode: auto, capacities: measured, count_slack: 20, max_moves: 20}]
    """
    context = plan_context(policy)
    rows = [
        {
            "slot": NOW,
            "group_id": "g",
            "topic_id": TOPIC_ID,
            "topic": "t",
            "partition": number,
            "owner_member_id": names[number // 7],
            "status": "OK",
            "lag_records": 100,
        }
        for number in range(21)
    ]
    known = [
        {"member_id": name, "speed_records_per_s": speed, "is_bound": False, "confidence": 1.0}
        for name, speed in zip(names, speeds, strict=True)
    ]
    members = with_speeds(
        arrow(MEMBERS, [member(name) for name in names]), arrow(SPEEDS, [{"group_id": "g", "members": known}])
    )
    (answer,) = plan_batch(arrow(LAG, rows), members, context).to_pylist()
    plan = {"plan_id": "p", "group_id": "g", **answer["head"]}
    live = LiveGroup(
        state="Stable",
        assignor="evenlag",
        fingerprint=plan["fingerprint"],
        topics=(("t", TOPIC_ID, 21),),
        held={f"m:{name}": {TOPIC_ID: list(range(7 * at, 7 * at + 7))} for at, name in enumerate(names)},
    )
    offsets = LiveOffsets(
        arrow(OFFSETS, [offset(number, 100) for number in range(21)]),
        arrow(COMMITS, [commit(number, 0) for number in range(21)]),
    )
    settings = {"g": context.policy.group_settings("c", "g")}
    [found] = measure_gains([plan], {"g": live}, settings, offsets).values()
    # The slowest member's 700 records become 300, at half of the typical speed.
    assert [plan["gain"], found.gain] == pytest.approx([1 - 300 / 700] * 2)
    assert [each["capacity"] for each in plan["capacities"]] == pytest.approx([0.5, 1.0, 2.0])
