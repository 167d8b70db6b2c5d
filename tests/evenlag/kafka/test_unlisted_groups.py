"""What is concluded from the answers about a group that an earlier snapshot has and no broker lists."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from kafka import TopicPartition
from kafka.protocol.consumer import JoinGroupRequest
from kafka.structs import OffsetAndMetadata

from evenlag.kafka import cluster_reader
from evenlag.kafka.broker_requests import BrokerCalls, Call, RequestLimits
from evenlag.kafka.cluster_reader import ClusterReader, find_unlisted
from evenlag.kafka.connection import admin_client
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import GroupListing
from evenlag.kafka.topic_metadata import error_name
from tests.support.brokers import settings_of
from tests.support.commits import commit_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.kafka.broker import Broker

GONE = "GroupIdNotFoundError"


def conclude(
    monkeypatch: pytest.MonkeyPatch,
    described: dict[str, Any],
    *,
    has_commits: bool = False,
    commits_failed: str | None = None,
    listed: GroupListing | None = None,
) -> GroupListing | None:
    """Return what is found of the group ``g`` by these answers; None: it is gone."""
    commits = SimpleNamespace(
        groups=("other", "g"),
        group=np.array([0, 1] if has_commits else [0], dtype=np.int32),
        failed={} if commits_failed is None else {"g": commits_failed},
    )
    row = {"group_id": "g", "group_type": "consumer", "protocol_type": "consumer"}
    row |= {"group_state": None, "error": None} | described
    answers = {
        "find_coordinators": {"g": 1},
        "read_commits": commits,
        "describe_groups": [row],
        "list_groups": ({} if listed is None else {"g": listed}, {2: "did not answer"}),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(cluster_reader, name, lambda *_, answer=answer, **__: answer)
    found, silent = find_unlisted(cast("Any", None), {"g": "consumer"}, {1, 2}, ["t"])
    assert silent == {2: "did not answer"}
    return found.get("g")


@pytest.mark.parametrize("state", ["Stable", "Empty", "PreparingRebalance"])
def test_a_group_that_is_described_exists(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    found = conclude(monkeypatch, {"group_state": state})
    assert found == GroupListing(state, "consumer", "consumer")


@pytest.mark.parametrize(
    "described",
    [
        {"error": GONE, "group_state": "Dead"},
        {"error": f"{GONE}: Group g not found."},
        # Brokers before 4.0.
        {"group_state": "Dead"},
    ],
)
def test_a_group_is_gone_if_its_coordinator_says_so(
    monkeypatch: pytest.MonkeyPatch, described: dict[str, Any]
) -> None:
    assert conclude(monkeypatch, described) is None
    assert conclude(monkeypatch, described, commits_failed=GONE) is None
    # The coordinator may change between the two answers.
    assert conclude(monkeypatch, described, has_commits=True) is not None
    failed = conclude(monkeypatch, described, commits_failed="NotCoordinatorError")
    assert failed is not None
    assert failed.error == "NotCoordinatorError"


def test_a_group_is_looked_for_when_its_coordinator_knows_what_is_replicated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it does, the coordinator neither lists nor describes the group, and has no commits of it."""
    commits = SimpleNamespace(groups=(), group=np.array([], dtype=np.int32), failed={})
    knows: list[bool] = []

    def read_commits(*_: Any, require_stable: bool = False, **__: Any) -> Any:
        knows.extend([True] * require_stable)
        return commits

    def describe_groups(*_: Any) -> list[dict[str, Any]]:
        state = {"group_state": "Empty", "error": None} if knows else {"group_state": "Dead", "error": GONE}
        return [{"group_id": "g", "group_type": "classic", "protocol_type": "consumer"} | state]

    listing = GroupListing("Empty", "classic", "consumer")
    answers = {
        "find_coordinators": lambda *_: {"g": 1},
        "read_commits": read_commits,
        "describe_groups": describe_groups,
        "list_groups": lambda *_: ({"g": listing} if knows else {}, {}),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(cluster_reader, name, answer)
    assert find_unlisted(cast("Any", None), {"g": "classic"}, {1}, ["t"])[0] == {"g": listing}


def test_a_group_whose_coordinator_does_not_answer_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = conclude(monkeypatch, {"error": "broker 1 did not answer: KafkaTimeoutError: 10 s"})
    assert found is not None
    assert found.error == "broker 1 did not answer: KafkaTimeoutError: 10 s"


def test_a_group_that_may_not_be_described_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = error_name(30)
    found = conclude(monkeypatch, {"error": denied}, commits_failed=denied)
    assert found is not None
    assert found.error == "GroupAuthorizationFailedError: evenlag lacks the ACL Describe on the group"


def test_a_group_may_have_another_type_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = GroupListing("Stable", "classic", "consumer")
    assert conclude(monkeypatch, {"error": GONE}, has_commits=True, listed=listed) == listed


@pytest.mark.broker
def test_a_group_that_is_kafka_connect_s_by_now_is_listed_as_that(
    broker: Broker, unique: Callable[[str], str]
) -> None:
    group_id, topic = unique("billing"), unique("orders")
    with admin_client(settings_of(broker)) as admin:
        admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
        commit_offsets(admin, group_id, {TopicPartition(topic, 0): OffsetAndMetadata(0, "", -1)})
        reader = ClusterReader(admin, known_groups=lambda: {group_id: "classic"})
        assert group_id in reader.take_inventory().listed
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="sessioned", metadata=b"")
        join = partial(
            JoinGroupRequest,
            group_id=group_id, session_timeout_ms=600_000, rebalance_timeout_ms=600_000, member_id="",
            protocol_type="connect", protocols=[protocol], max_version=3,
        )  # fmt: skip
        calls = BrokerCalls(admin, RequestLimits())
        node = find_coordinators(calls, [group_id])[group_id]
        assert isinstance(node, int)
        (answer,) = calls.run([Call(node, join)])
        assert answer.response.error_code == 0
        assert reader.take_inventory().listed[group_id].protocol_type == "connect"


def test_nothing_is_asked_if_all_are_listed() -> None:
    assert find_unlisted(cast("Any", None), {}, {1}, ["t"]) == ({}, {})
