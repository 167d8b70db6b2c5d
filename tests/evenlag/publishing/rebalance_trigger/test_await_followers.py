"""When a group of the classic protocol is asked after a publishing, how often, and what is reported."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from assignor_core.hint import HintPayload
from evenlag.enums import GroupType
from evenlag.errors import KafkaUnreachableError
from evenlag.kafka.live_groups import LiveGroup
from evenlag.planning.published_plans import COST_COLUMNS
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing import publish
from evenlag.publishing.publish import PublishedPlan
from evenlag.publishing.rebalance_trigger import await_followers as module
from evenlag.publishing.rebalance_trigger import follow_wait
from evenlag.publishing.rebalance_trigger.await_followers import await_followers
from evenlag.publishing.rebalance_trigger.follow_wait import FollowCost
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

    def run(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        after_s: float = 2,
        costs: dict[str, FollowCost] | None = None,
    ) -> dict[str, str]:
        monkeypatch.setattr(follow_wait, "read_live_groups", self.look)
        monkeypatch.setattr(follow_wait, "time", self)
        monkeypatch.setattr(module, "ask_group", self.ask)
        monkeypatch.setattr(module, "time", self)
        hints = dict.fromkeys(self.at, HINT)
        return await_followers(None, SETTINGS, hints, after_s=after_s, costs=costs)


def test_a_group_that_follows_by_itself_in_time_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"at-once": {0: FOLLOWS}, "later": {0: OTHER, 1: REBALANCES, 5: BETWEEN, 9: FOLLOWS}})
    assert groups.run(monkeypatch) == {}
    assert groups.asked == []
    assert groups.now == 9


def test_groups_that_follow_in_two_seconds_are_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"a": {0: OTHER, 0.2: FOLLOWS}, "b": {0: OTHER, 1.3: FOLLOWS}})
    assert groups.run(monkeypatch) == {}
    assert groups.now == 1.5


def test_others_are_asked_once_they_have_shown_no_reaction(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups({"a": {0: OTHER}, "b": {0: OTHER}})
    assert groups.run(monkeypatch) == {}
    assert sorted(groups.asked) == [("a", 2), ("b", 2)]


def test_what_following_costs_a_group_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: dict[str, FollowCost] = {}
    never = replace(OTHER, assignor="range")
    at: dict[str, dict[float, LiveGroup]] = {
        "by-itself": {0: OTHER, 1.1: REBALANCES, 4: FOLLOWS},
        "asked": {0: OTHER},
        "not": {0: OTHER, 1: REBALANCES, 2: never},
        "before": {0: FOLLOWS},
    }
    assert set(Groups(at).run(monkeypatch, costs=costs)) == {"not"}
    by_itself = costs["by-itself"]
    # Looks at 1.25, 1.5, ... 3.75 s saw it rebalance.
    assert (by_itself.rebalancing_s, by_itself.num_triggers) == (2.75, 0)
    assert by_itself.followed_at is not None
    assert (costs["asked"].followed_at is not None, costs["asked"].num_triggers) == (True, 1)
    assert costs["not"] == FollowCost(None, 1.0, 0)
    # When it followed is not known.
    assert costs["before"] == FollowCost()


@pytest.mark.parametrize("busy", [REBALANCES, BETWEEN], ids=["rebalancing", "between its rounds"])
def test_a_group_in_a_rebalance_is_asked_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, busy: LiveGroup
) -> None:
    groups = Groups({"a": {0: OTHER, 1: busy, 6: OTHER}})
    assert groups.run(monkeypatch) == {}
    assert groups.asked == [("a", 8)]


def test_a_group_is_asked_twice_at_most(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups({"a": {0: OTHER}}, on_ask=OTHER)
    reason = "it has rebalanced twice without following: the log of its leader says why"
    assert groups.run(monkeypatch) == {"a": reason}
    assert [record.getMessage() for record in caplog.records] == [f"hint not taken up so far: {reason}"]
    assert groups.asked == [("a", 2), ("a", 12)]
    assert groups.now == 22


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
    groups = Groups({"a": {0: OTHER, 1: state}})
    assert groups.run(monkeypatch) == {"a": reason}
    assert groups.asked == []
    assert groups.now == 1


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
    assert groups.asked == [("b", 32)]
    assert groups.now == 47


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


def test_classic_groups_do_not_wait_for_coordinators_that_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    have_begun = threading.Barrier(2, timeout=600)
    seen: dict[str, list[str]] = {}
    now = datetime.now(UTC)

    def coordinators(_client: object, _settings: object, payloads: Any, *, costs: Any) -> dict[str, str]:
        have_begun.wait()
        costs["brokers"] = FollowCost(now + timedelta(seconds=3), 0.0, 1)
        seen["coordinators"] = list(payloads)
        return {"brokers": "not yet"}

    def followers(
        _client: object, _settings: object, payloads: Any, *, after_s: float, costs: Any
    ) -> dict[str, str]:
        have_begun.wait()
        costs["classic"] = FollowCost(now + timedelta(seconds=6.5), 2.5, 0)
        seen["followers"] = list(payloads)
        assert after_s == SETTINGS.temporary_member_after_s
        return {"classic": "nor this"}

    monkeypatch.setattr(publish, "await_target_assignment", coordinators)
    monkeypatch.setattr(publish, "await_followers", followers)
    published = [
        PublishedPlan(_plan(name, kind), 1, now, now)
        for name, kind in (("classic", "classic"), ("brokers", "consumer"), ("not-waited-for", "share"))
    ]
    costs: dict[str, FollowCost] = {}
    shown = publish._await_groups(None, SETTINGS, published, costs)
    assert shown == {"brokers": "not yet", "classic": "nor this"}
    assert seen == {"coordinators": ["brokers"], "followers": ["classic"]}
    written = publish._Written(published=tuple(published))
    events = publish._build_events(written, "c", "run", "actor", costs)
    assert [{name: event.get(name) for name in COST_COLUMNS} for event in events] == [
        {"follow_ms": 6500, "rebalancing_ms": 2500, "num_triggers": 0},
        {"follow_ms": 3000, "rebalancing_ms": None, "num_triggers": 1},
        {"follow_ms": None, "rebalancing_ms": None, "num_triggers": None},
    ]
    seen.clear()
    never = SETTINGS.model_copy(update={"temporary_member_after_s": None})
    assert publish._await_groups(None, never, published, {}) == {}
    assert seen == {}


def _plan(name: str, kind: str) -> dict[str, Any]:
    head = dict.fromkeys(("day", "snapshot_id", "plan_id"), name)
    return head | {"group_id": name, "group_type": kind, "payload": HINT.encode().decode()}
