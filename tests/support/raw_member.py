"""A member of a classic group, request by request: it rebalances only when a test lets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from kafka import KafkaAdminClient
from kafka.protocol.consumer import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from evenlag.kafka.broker_requests import BrokerCalls, Call, RequestLimits
from evenlag.kafka.coordinators import COORDINATOR_ERRORS, find_coordinators
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MEMBER_ID_REQUIRED = 79


class RawMember:
    """A member on a connection of its own.

    topics, user_data: What its subscription says.
    protocols: Names of its assignors.
    subscription: Bytes of its subscription; None: those of its topics and user data.
    session_timeout_ms: How long it stays without a heartbeat. A rebalance waits ten minutes for it.
    """

    def __init__(
        self,
        servers: str,
        group_id: str,
        *,
        topics: Sequence[str] = (),
        user_data: bytes = b"",
        protocols: Sequence[str] = ("evenlag",),
        client_id: str = "raw",
        subscription: bytes | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 600_000,
    ) -> None:
        self._group_id, self._protocols, self._protocol_type = group_id, protocols, protocol_type
        self._session_timeout_ms = session_timeout_ms
        if subscription is None:
            subscription = ConsumerProtocolSubscription(
                version=1, topics=list(topics), user_data=user_data, owned_partitions=[]
            ).encode()
        self._subscription = subscription
        self._client = KafkaAdminClient(bootstrap_servers=servers, client_id=client_id)
        self._calls = BrokerCalls(self._client, RequestLimits(request_timeout_s=600, deadline_s=900))
        self.member_id, self.generation = "", -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._client.close()

    def _send(self, make: Callable[[], Any]) -> Any:
        def settled() -> Any:
            response = self._answer(make)
            # Its broker may have been fenced for a moment.
            return None if getattr(response, "error_code", 0) in COORDINATOR_ERRORS else response

        return wait_until(settled, what="the coordinator is not available")

    def _answer(self, make: Callable[[], Any]) -> Any:
        node = find_coordinators(self._calls, [self._group_id])[self._group_id]
        assert isinstance(node, int), node
        (answer,) = self._calls.run([Call(node, make)])
        assert answer.response is not None, answer.error
        return answer.response

    def send_join(self) -> Any:
        """Send one JoinGroup; return its response."""
        return self._send(
            lambda: JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=self._session_timeout_ms,
                rebalance_timeout_ms=600_000,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=self._protocol_type,
                protocols=[(name, self._subscription) for name in self._protocols],
            )
        )

    def join(self) -> Any:
        """Join, and return the response of the completed rebalance."""
        response = self.send_join()
        if response.error_code == MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = self.send_join()
        assert response.error_code == 0, response
        self.generation = response.generation_id
        return response

    def sync(self, owned: Sequence[tuple[str, Sequence[int]]] = ()) -> None:
        """Send the assignment as the leader: these partitions to this member, and none to others."""
        mine = ConsumerProtocolAssignment(0, [(topic, list(numbers)) for topic, numbers in owned], b"")
        self.sync_bytes(mine.encode())

    def sync_bytes(self, assignment: bytes, *others: str) -> None:
        """Send any bytes as the leader's assignment of this member and of others, and none to the rest."""
        assignments = [(member_id, assignment) for member_id in (self.member_id, *others)]
        response = self._send(
            lambda: SyncGroupRequest(
                group_id=self._group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type=self._protocol_type,
                protocol_name=self._protocols[0],
                assignments=assignments,
            )
        )
        assert response.error_code == 0, response

    def heartbeat(self) -> int:
        """Send a heartbeat; return the error code: 27 while the group rebalances."""
        response = self._send(
            lambda: HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=None,
            )
        )
        return int(response.error_code)

    def leave(self, member_id: str | None = None) -> int:
        """Let this member, or another one, leave; return the error code of the member."""
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member_id or self.member_id, group_instance_id=None, reason=None
        )
        response = self._send(lambda: LeaveGroupRequest(group_id=self._group_id, members=[identity]))
        assert response.error_code == 0
        return int(response.members[0].error_code)
