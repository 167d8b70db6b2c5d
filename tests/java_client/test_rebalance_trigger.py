"""evenlag's temporary member on a real broker: groups with Java members follow, and nothing else moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.rebalance_trigger import await_followers as module
from evenlag.publishing.rebalance_trigger.await_followers import await_followers
from evenlag.publishing.rebalance_trigger.temporary_member import ask_group
from tests.java_client.test_on_a_broker import group, traffic  # noqa: F401 - a fixture
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from assignor_core.hint import HintPayload
    from tests.support.java_client.group import JavaGroup

pytestmark = [pytest.mark.extended, pytest.mark.broker]


def settings_of(group: JavaGroup) -> ClusterSettings:  # noqa: F811
    servers = tuple(group.cluster.bootstrap_servers.split(","))
    return ClusterSettings(bootstrap_servers=servers, hint_topic=group.cluster.hint_topic)


def await_group(group: JavaGroup, payload: HintPayload, *, after_s: float = 0) -> dict[str, str]:  # noqa: F811
    payloads = {group.cluster.group_id: payload}
    return await_followers(group.cluster.admin, settings_of(group), payloads, after_s=after_s)


def never(*_: Any, **__: Any) -> str:
    raise AssertionError("the group was asked")


def test_a_group_in_java_follows_after_the_temporary_member(
    group: JavaGroup,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group.start_java("a", "b", "c", "d")
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    before = group.settle()
    even = group.held()
    unhinted = group.counts()["NoHintTotal"]
    with traffic(group):
        # Without a hint it moves nothing.
        ask_group(group.cluster.admin, settings_of(group), group.cluster.group_id, timeout_s=600)
        group.wait_for_count("NoHintTotal", unhinted + 1)
        wait_until(lambda: group.is_settled() and min(group.generations()) > before)
        assert group.held() == even
        plan = {"a": [0, 1, 2, 3], "b": [4, 5], "c": [6], "d": [7]}
        payload = group.publish(plan)
        group.wait_for_count("ReceivedTotal", 1)
        # A run that does not see it follow in time leaves it to the next one.
        wait_until(lambda: await_group(group, payload) == {})
        group.wait_for(plan)
        # Two rounds, as when a member in Python asks; more for a late sync, and for a late leaving.
        assert group.settle() >= before + 3
        # It follows by now: it is not asked again.
        monkeypatch.setattr(module, "ask_group", never)
        assert await_group(group, payload) == {}
    assert group.held() == plan
    assert group.counts()["FingerprintTotal"] == group.counts()["InternalErrorTotal"] == 0


def test_members_in_python_ask_before_the_temporary_member(
    group: JavaGroup,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group.start_java("a", "b")
    group.start_python("c")
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    monkeypatch.setattr(module, "ask_group", never)
    held = group.held()
    plan = {"a": held["b"], "b": held["c"], "c": held["a"]}
    assert await_group(group, group.publish(plan), after_s=600) == {}
    group.wait_for(plan)


@pytest.mark.parametrize("leader", ["java", "python"])
def test_a_leader_ignores_a_temporary_member_that_is_still_there(
    group: JavaGroup,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    leader: str,
) -> None:
    """It stays until the rebalance is over, as it does when all members join within milliseconds."""
    start = {"java": group.start_java, "python": group.start_python}
    start[leader]("a")
    group.settle()
    start["java"]("b", "c")
    group.settle()
    group.wait_for_count("ReadyTotal", 1)
    monkeypatch.setattr(
        "evenlag.publishing.rebalance_trigger.temporary_member._Watched.is_stable", lambda _: True
    )
    even = group.held()
    ask_group(group.cluster.admin, settings_of(group), group.cluster.group_id, timeout_s=600)
    group.settle()
    assert group.held() == even
    held = sorted(number for numbers in even.values() for number in numbers)
    plan = {"a": held[:1], "b": held[1:3], "c": held[3:]}
    payload = group.publish(plan)
    wait_until(lambda: await_group(group, payload, after_s=1) == {})
    group.wait_for(plan)
    assert group.counts()["FingerprintTotal"] == group.counts()["InternalErrorTotal"] == 0
