"""When a group of the classic protocol is asked after a publishing, how often, and what is reported."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from assignor_core.hint import HintPayload
from evenlag.enums import GroupType
from evenlag.errors import KafkaUnreachableError
from evenlag.kafka.live_groups import LiveGroup
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing import publish
from evenlag.publishing.publish import PublishedPlan
from evenlag.publishing.rebalance_trigger import await_followers as module
from evenlag.publishing.rebalance_trigger import await_target
from evenlag.publishing.rebalance_trigger.await_followers import await_followers
from evenlag.publishing.rebalance_trigger.temporary_member import (
    _GROUP_MAX_SIZE_REACHED,
    NotAskedError,
    _check,
)

SETTINGS = ClusterSettings(bootstrap_servers=("b:9092",))
TOPIC = "AAAAAAAAAAAAAAAAAAAAAQ"
F = "f" * 64
HINT = HintPayload(
    "c", "g", "s", F, {"i:a": {TOPIC: [0, 1]}, "i:b": {TOPIC: [2]}}, count_slack=0, max_moves=9
)
FOLLOWS = LiveGroup("Stable", "evenlag", F, held={"i:a": {TOPIC: [0, 1]}, "i:b": {TOPIC: [2]}})
OTHER = replace(FOLLOWS, held={"i:a": {TOPIC: [0]}, "i:b": {TOPIC: [1, 2]}})
BETWEEN = replace(FOLLOWS, held={"i:a": {TOPIC: [0]}, "i:b": {TOPIC: [2]}})
REBALANCES = LiveGroup("PreparingRebalance", None, None)


@dataclass
class Groups:
    """Stands for coordinators and the clock: what a group does at which second cannot be chosen on a broker.

    on_ask: What becomes of a group that is asked; an error is raised.
    """

    at: dict[str, dict[float, LiveGroup]]
    on_ask: LiveGroup | Exception = FOLLOWS
    asked: list[tuple[str, float]] = field(default_factory=list)
    now: float = 0.0

    def look(self, _client: object, types: Any, _limits: object, _ignored: object) -> dict[str, LiveGroup]:
        assert set(types.values()) == {GroupType.CLASSIC}
        return {
            name: [group for since, group in sorted(self.at[name].items()) if since <= self.now][-1]
            for name in types
        }

    def ask(self, _client: object, _settings: object, group_id: str, *, timeout_s: float) -> str:
        assert timeout_s > 0
        self.asked.append((group_id, self.now))
        if isinstance(self.on_ask, Exception):
            raise self.on_ask
        self.at[group_id][self.now] = self.on_ask
        return "id"

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def monotonic(self) -> float:
        return self.now

    def run(self, monkeypatch: pytest.MonkeyPatch, *, after_s: float = 15) -> dict[str, str]:
        monkeypatch.setattr(await_target, "read_live_groups", self.look)
        monkeypatch.setattr(await_target, "time", self)
        monkeypatch.setattr(module, "ask_group", self.ask)
        monkeypatch.setattr(module, "time", self)
        return await_followers(None, SETTINGS, dict.fromkeys(self.at, HINT), after_s=after_s)


def test_a_group_that_follows_by_itself_in_time_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"at-once": {0: FOLLOWS}, "later": {0: OTHER, 9: REBALANCES, 12: BETWEEN, 14: FOLLOWS}})
    assert groups.run(monkeypatch) == {}
    assert groups.asked == []
    assert groups.now == 14


def test_groups_that_follow_in_two_seconds_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"a": {0: OTHER, 0.2: FOLLOWS}, "b": {0: OTHER, 1.3: FOLLOWS}})
    assert groups.run(monkeypatch) == {}
    assert groups.now == 1.5


def test_others_are_asked_once_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"a": {0: OTHER}, "b": {0: OTHER}})
    assert groups.run(monkeypatch) == {}
    assert sorted(groups.asked) == [("a", 15), ("b", 15)]


@pytest.mark.parametrize("busy", [REBALANCES, BETWEEN], ids=["rebalancing", "between its rounds"])
def test_a_group_in_a_rebalance_is_asked_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, busy: LiveGroup
) -> None:
    groups = Groups({"a": {0: OTHER, 14: busy, 20: OTHER}})
    assert groups.run(monkeypatch) == {}
    # Seen twice the same: a second later.
    assert groups.asked == [("a", 21)]


def test_a_group_is_asked_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"a": {0: OTHER}}, on_ask=OTHER)
    assert groups.run(monkeypatch) == {
        "a": "it has rebalanced twice without following: the log of its leader says why"
    }
    assert groups.asked == [("a", 15), ("a", 25)]
    assert groups.now == 35


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (LiveGroup("Dead", None, None), "the group is Dead by now"),
        (LiveGroup("Empty", None, None), "the group is Empty by now"),
        (replace(OTHER, assignor="range"), "the group has selected the assignor 'range' by now"),
        (
            replace(OTHER, fingerprint="0" * 64),
            "its members, subscriptions or partitions have changed since it was planned",
        ),
    ],
)
def test_a_group_that_cannot_follow_any_more_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, state: LiveGroup, reason: str
) -> None:
    groups = Groups({"a": {0: OTHER, 3: state}})
    assert groups.run(monkeypatch) == {"a": reason}
    assert groups.asked == []
    assert groups.now == 3


def test_a_group_that_is_full_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAskedError) as caught:
        _check(_GROUP_MAX_SIZE_REACHED)
    groups = Groups({"a": {0: OTHER}}, on_ask=caught.value)
    full = "the group has as many members as group.max.size of the brokers allows"
    assert groups.run(monkeypatch) == {"a": full}
    assert len(groups.asked) == 2


def test_a_group_whose_coordinator_does_not_answer_is_looked_at_until_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = LiveGroup("Unknown", None, None, error="NotCoordinator")
    groups = Groups({"a": {0: lost}, "b": {0: lost, 30: OTHER}})
    assert groups.run(monkeypatch) == {"a": "its members cannot be read: NotCoordinator"}
    assert groups.asked == [("b", 31)]
    assert groups.now == 60


def test_whatever_goes_wrong_is_a_reason_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"a": {0: OTHER}})
    monkeypatch.setattr(groups, "look", lambda *_: {})
    assert groups.run(monkeypatch) == {"a": "unexpected KeyError: 'a'"}

    def fail(*_: object) -> dict[str, LiveGroup]:
        raise KafkaUnreachableError("no broker answered")

    groups = Groups({"a": {0: OTHER}})
    monkeypatch.setattr(groups, "look", fail)
    assert groups.run(monkeypatch) == {"a": "its members cannot be read: no broker answered"}
    assert Groups({}).run(monkeypatch) == {}


@pytest.mark.parametrize(("waits_s", "left_s"), [(0.0, 15.0), (9.0, 6.0), (40.0, 0.0)])
def test_the_time_of_classic_groups_runs_while_coordinators_are_asked(
    monkeypatch: pytest.MonkeyPatch, waits_s: float, left_s: float
) -> None:
    clock = Groups({})
    seen: list[tuple[str, float]] = []

    def coordinators(_client: object, _settings: object, payloads: Any) -> dict[str, str]:
        seen.extend((name, -1.0) for name in payloads)
        clock.now += waits_s
        return {"brokers": "not yet"}

    def followers(_client: object, _settings: object, payloads: Any, *, after_s: float) -> dict[str, str]:
        seen.extend((name, after_s) for name in payloads)
        return {"classic": "nor this"}

    monkeypatch.setattr(publish, "time", clock)
    monkeypatch.setattr(publish, "await_target_assignment", coordinators)
    monkeypatch.setattr(publish, "await_followers", followers)
    now = datetime.now(UTC)
    published = [
        PublishedPlan({"group_id": name, "group_type": kind, "payload": HINT.encode().decode()}, 1, now, now)
        for name, kind in (("classic", "classic"), ("brokers", "consumer"))
    ]
    shown = publish._await_groups(None, SETTINGS, published)
    assert shown == {"brokers": "not yet", "classic": "nor this"}
    assert seen == [("brokers", -1.0), ("classic", left_s)]
    never = SETTINGS.model_copy(update={"temporary_member_after_s": None})
    assert publish._await_groups(None, never, published) == {}
    assert len(seen) == 2
