"""The assignor on kafka-python's own wire types: claims, two phases, and never an exception."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.protocol.consumer import JoinGroupResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from evenlag.consumer import HintAssignor, HintCache, Reason
from evenlag.consumer._wire_format import make_subscription, read_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Pair = tuple[str, int]


@dataclass
class Cluster:
    """As much of kafka-python's metadata as an assignor asks for."""

    topics: Mapping[str, int]
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    refreshed_s: float = 0.0

    @property
    def _last_successful_refresh_ms(self) -> float:
        return self.refreshed_s * 1000

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.topics[topic])) if topic in self.topics else None

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self.ids.get(topic)


@dataclass
class Port:
    """A consumer as the assignor sees it."""

    holds: list[Pair] = field(default_factory=list)
    assigned_generation: int = -1
    num_asked: int = 0

    def claims(self) -> tuple[list[Pair], int]:
        return self.holds, self.assigned_generation

    def ask_from_io_thread(self) -> None:
        self.num_asked += 1


def member(name: str, topics: Iterable[str], owned: Iterable[Pair] = (), generation: int = -1) -> Any:
    """Return a member as the leader gets it, through the wire format and back."""
    data = make_subscription(topics, owned, generation, None).encode()
    made = JoinGroupResponse.JoinGroupResponseMember(member_id=name, group_instance_id=None, metadata=data)
    made.metadata = ConsumerProtocolSubscription.decode(made.metadata)
    return made


def pairs(assignment: Any) -> set[Pair]:
    decoded = ConsumerProtocolAssignment.decode(assignment.encode())
    return {(tp.topic, tp.partition) for tp in decoded.partitions()}


def ready_assignor() -> HintAssignor:
    cache = HintCache("g")
    cache.mark_ready()
    return HintAssignor(cache)


def test_claims_are_what_is_held_and_since_when() -> None:
    assignor = ready_assignor()
    port = Port(holds=[("t", 1), ("t", 0)], assigned_generation=7)
    assignor.attach(port)  # type: ignore[arg-type]  # a stand-in
    data = ConsumerProtocolSubscription.decode(assignor.metadata({"t", "s"}).encode())
    assert data.version == 2
    assert list(data.topics) == ["s", "t"]
    assert not data.user_data
    assert data.generation_id == 7
    assert [(o.topic, list(o.partitions)) for o in data.owned_partitions] == [("t", [0, 1])]


def test_the_rack_goes_along_in_version_3() -> None:
    data = HintAssignor(HintCache("g"), client_rack="zone-a").metadata({"t"})
    assert ConsumerProtocolSubscription.decode(data.encode()).rack_id == "zone-a"
    assert data.version == 3


def test_it_may_stand_beside_cooperative_and_eager_assignors() -> None:
    assert ready_assignor().supported_protocols() == [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]


def test_a_move_takes_two_rounds_and_the_leader_asks_for_the_second() -> None:
    assignor, port = ready_assignor(), Port()
    assignor.attach(port)  # type: ignore[arg-type]  # a stand-in
    cluster = Cluster({"t": 2})
    assignor.metadata({"t"})
    first = assignor.assign(cluster, [member("a", ["t"], [("t", 0), ("t", 1)], 3), member("b", ["t"])])
    assert {name: pairs(each) for name, each in first.items()} == {"a": {("t", 0)}, "b": set()}
    assert port.num_asked == 0
    assignor.on_assignment(first["a"], 4)
    assert port.num_asked == 1
    assignor.metadata({"t"})
    second = assignor.assign(cluster, [member("a", ["t"], [("t", 0)], 4), member("b", ["t"], [], 4)])
    assert pairs(second["b"]) == {("t", 1)}
    assignor.on_assignment(second["a"], 5)
    assert port.num_asked == 1


def test_one_who_claims_for_ever_does_not_keep_the_group_rebalancing() -> None:
    assignor, port = ready_assignor(), Port()
    assignor.attach(port)  # type: ignore[arg-type]  # a stand-in
    liar = member("z", ["other"], [("t", 0)], 3)
    for generation in range(50):
        assignor.metadata({"t"})
        given_out = assignor.assign(Cluster({"t": 2}), [member("a", ["t"], [("t", 1)], generation), liar])
        assert ("t", 0) not in pairs(given_out["a"])
        assignor.on_assignment(given_out["a"], generation)
    assert port.num_asked == 5


def test_claims_on_topics_without_metadata_stay_as_they_are() -> None:
    members = [
        member("a", ["t", "unseen"], [("unseen", 0), ("unseen", 1)], 3),
        member("b", ["unseen"], [("unseen", 1), ("unseen", 2)], 4),
    ]
    given_out = ready_assignor().assign(Cluster({"t": 1}), members)
    assert pairs(given_out["a"]) == {("t", 0), ("unseen", 0)}
    assert pairs(given_out["b"]) == {("unseen", 1), ("unseen", 2)}


def test_when_all_else_fails_everybody_keeps_what_is_its_own() -> None:
    class Broken(Cluster):
        def partitions_for_topic(self, topic: str) -> set[int] | None:
            raise RuntimeError(topic)

    assignor = ready_assignor()
    members = [
        member("a", ["t"], [("t", 0), ("t", 1), ("t", 2)], 3),
        member("b", ["t"], [("t", 1), ("t", 3)], 4),
        member("c", ["t"], [("t", 3)], 4),
        member("d", ["other"], [("t", 4)], 4),
    ]
    given_out = {name: pairs(each) for name, each in assignor.assign(Broken({}), members).items()}
    assert given_out == {"a": {("t", 0), ("t", 2)}, "b": {("t", 1)}, "c": set(), "d": set()}
    assert assignor.cache.counts[Reason.INTERNAL_ERROR] == 1


def assigned(assignor: HintAssignor, cluster: Cluster, *members: Any) -> dict[str, set[Pair]]:
    return {name: pairs(each) for name, each in assignor.assign(cluster, members).items()}


def test_claims_beyond_older_metadata_stay_with_their_owners_until_newer_metadata_arrive() -> None:
    """8 partitions are known and a member owns a ninth: nobody else gets it, and it is not taken away."""
    assignor = ready_assignor()
    owner = member("a", ["t"], [("t", n) for n in (0, 1, 2, 3, 8)], 4)
    others = member("b", ["t"], [("t", n) for n in (4, 5, 6, 7)], 4), member("z", ["other"], [("t", 8)], 3)
    cluster = Cluster({"t": 8}, refreshed_s=100.0)
    assert ("t", 8) in assigned(assignor, cluster, owner, *others)["a"]
    cluster.refreshed_s = 105.0  # a broker may still answer with what it knew before
    answer = assigned(assignor, cluster, owner, *others)
    assert {name for name, held in answer.items() if ("t", 8) in held} == {"a"}
    assert not assignor.owes_balance({"t": 8}, 105.0)
    newer = Cluster({"t": 9}, refreshed_s=111.0)
    assert not assignor.owes_balance({"t": 9}, 111.0)
    assert sum(map(len, assigned(assignor, newer, owner, others[0]).values())) == 9


def test_of_two_claims_beyond_the_metadata_the_newer_one_holds_and_equal_ones_do_not() -> None:
    older, newer = member("a", ["t"], [("t", 8)], 4), member("b", ["t"], [("t", 8)], 5)
    cluster = Cluster({"t": 1})
    assert assigned(ready_assignor(), cluster, older, newer)["b"] >= {("t", 8)}
    same = member("b", ["t"], [("t", 8)], 4)
    assert all(("t", 8) not in held for held in assigned(ready_assignor(), cluster, older, same).values())


def test_claims_that_newer_metadata_still_do_not_show_are_dropped_and_the_leader_asks_for_it() -> None:
    assignor = ready_assignor()
    owner = member("a", ["t"], [("t", 0), ("t", 8)], 4)
    cluster = Cluster({"t": 1}, refreshed_s=100.0)
    assert assigned(assignor, cluster, owner)["a"] == {("t", 0), ("t", 8)}
    assert not assignor.owes_balance({"t": 1}, 109.0)
    assert assignor.owes_balance({"t": 1}, 110.0)
    cluster.refreshed_s = 110.0
    assert assigned(assignor, cluster, owner)["a"] == {("t", 0)}
    assert not assignor.owes_balance({"t": 1}, 120.0)


def test_claims_on_a_topic_that_was_recreated_with_fewer_partitions_are_dropped_at_once() -> None:
    assignor = ready_assignor()
    owner = member("a", ["t"], [("t", 0), ("t", 8)], 4)
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    assert len(assigned(assignor, Cluster({"t": 9}, {"t": first}), owner)["a"]) == 9
    for _ in range(2):
        assert assigned(assignor, Cluster({"t": 1}, {"t": second}), owner)["a"] == {("t", 0)}


def test_topics_of_others_only_and_empty_groups_are_no_error() -> None:
    assert ready_assignor().assign(Cluster({}), []) == {}
    given_out = ready_assignor().assign(Cluster({}), [member("a", ["gone"])])
    assert pairs(given_out["a"]) == set()


topics = st.sampled_from(["t", "u", "gone"])
claims = st.lists(st.tuples(topics, st.integers(-2, 6)), max_size=8)
someone = st.tuples(st.lists(topics, max_size=3), claims, st.integers(-1, 4))


@settings(max_examples=150, deadline=None)
@given(st.lists(someone, max_size=4), st.booleans())
def test_no_claims_lead_to_an_exception_or_to_two_owners(
    people: list[tuple[list[str], list[Pair], int]], cold: bool
) -> None:
    members = [member(f"m{i}", ts, owned, generation) for i, (ts, owned, generation) in enumerate(people)]
    assignor = HintAssignor(HintCache("g")) if cold else ready_assignor()
    given_out = {
        name: pairs(each) for name, each in assignor.assign(Cluster({"t": 4, "u": 2}), members).items()
    }
    assert not assignor.cache.counts.get(Reason.INTERNAL_ERROR)
    assert set(given_out) == {m.member_id for m in members}
    handed = [pair for held in given_out.values() for pair in held]
    assert len(handed) == len(set(handed))
    by_id = {m.member_id: m for m in read_members(members)}
    for name, held in given_out.items():
        claimed_by_others = {p for other, m in by_id.items() if other != name for p in m.owned}
        assert {topic for topic, _ in held} <= set(by_id[name].topics)
        assert not (held - set(by_id[name].owned)) & claimed_by_others
