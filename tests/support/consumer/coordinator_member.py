"""A member of a group whose coordinator is called step by step, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import MemberState

from evenlag.consumer._kafka_coordinator import Membership
from tests.support.hints import AsyncListener

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Member:
    """One member whose broker is this test."""

    def __init__(self, offline_consumer: Callable[..., Any], strategy: Sequence[Any], listener: Any) -> None:
        self.consumer = offline_consumer(listener=listener, partition_assignment_strategy=strategy)
        if isinstance(listener, AsyncListener):
            listener.consumer = self.consumer
        self.coordinator = self.consumer._coordinator
        self.refused: list[tuple[str, int]] = []
        self.membership = Membership(self.consumer, on_commit_refused=self.refused.extend)
        self.sent: list[dict[Any, Any]] = []
        self.generation = 0

    def prepare(self) -> None:
        current = self.coordinator._generation
        self.consumer._net.run(
            self.coordinator._on_join_prepare_async, current.generation_id, current.member_id
        )
        self.coordinator.rejoining = True

    def answer_join(self, protocol: str, *, leader: str = "other") -> None:
        self.generation += 1
        self.coordinator.state = MemberState.REBALANCING
        response = SimpleNamespace(
            error_code=0, protocol_type="consumer", generation_id=self.generation, member_id="me",
            protocol_name=protocol, leader=leader,
        )  # fmt: skip
        self.coordinator._process_join_group_response(response, 0.0)

    def complete(self, protocol: str, *partitions: Any) -> None:
        content = ConsumerProtocolAssignment(1, [("t", [tp.partition for tp in partitions])], b"").encode()
        self.coordinator.rejoining = self.coordinator.rejoin_needed = False
        self.coordinator.state = MemberState.STABLE
        self.consumer._net.run(
            self.coordinator._on_join_complete_async, self.generation, "me", protocol, content
        )

    def join(self, protocol: str, *partitions: Any) -> None:
        self.prepare()
        self.coordinator.group_protocols()
        self.answer_join(protocol)
        self.complete(protocol, *partitions)

    def held(self) -> set[Any]:
        return set(self.consumer.assignment())
