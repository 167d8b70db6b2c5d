"""Make a group of the classic protocol rebalance: a member joins, and leaves before anybody sees it.

Kafka has no request for a rebalance, and an assignor of Kafka's Java client cannot ask for one. A dynamic
member that joins starts one. It subscribes to no topic, and leaves as soon as the coordinator has begun the
rebalance: the coordinator then waits for the other members only, and their leader assigns without it. If they
have all joined before that, leaders of evenlag ignore it: its subscription is marked by user data.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from assignor_core.members import TEMPORARY_MEMBER_MARK
from evenlag.enums import EVENLAG_ASSIGNOR, GroupState
from evenlag.errors import JobError
from evenlag.kafka.broker_requests import BrokerCalls, Call
from evenlag.kafka.connection import admin_client, kafka_client_settings, request_limits
from evenlag.kafka.coordinators import COORDINATOR_ERRORS, find_coordinators
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE, TEMPORARY_CLIENT_ID
from evenlag.kafka.topic_metadata import error_name
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)

# The group's other assignors are not reported. The list contains Kafka's own ones, so that a group that
# offers some of them beside evenlag's can still select each of them, and no new member is refused.
_PROTOCOLS: Final = (EVENLAG_ASSIGNOR, "cooperative-sticky", "range", "roundrobin", "sticky")
_REASON: Final = "evenlag has published a hint"
# How long a killed publisher's member stays: the brokers' least by default, and the consumers' default.
_SESSION_TIMEOUTS_MS: Final = (6_000, 45_000)
_WITH_MEMBER_ID: Final = 4
_SEVERAL_LEAVE: Final = 3
_LOOK_EVERY_S: Final = 0.05
_LEAST_LEAVE_S: Final = 10.0

_UNKNOWN_MEMBER_ID: Final = 25
_INVALID_SESSION_TIMEOUT: Final = 26
_REBALANCE_IN_PROGRESS: Final = 27
_GROUP_AUTHORIZATION_FAILED: Final = 30
_MEMBER_ID_REQUIRED: Final = 79
_GROUP_MAX_SIZE_REACHED: Final = 81
_REMEDIES: Final = {
    _REBALANCE_IN_PROGRESS: "the group rebalances already",
    _GROUP_AUTHORIZATION_FAILED: "evenlag lacks Read on the group (docs/security.md)",
    _GROUP_MAX_SIZE_REACHED: "the group has as many members as group.max.size of the brokers allows",
    _INVALID_SESSION_TIMEOUT: "the brokers' group.min.session.timeout.ms is above "
    f"{_SESSION_TIMEOUTS_MS[-1] // 1000} s",
}


class NotAskedError(JobError):
    """Raised when the temporary member did not make the group rebalance; the text says why."""


def ask_group(client: Any, cluster: ClusterSettings, group_id: str, *, timeout_s: float = 30.0) -> str:
    """Make a stable group of the classic protocol rebalance, by a member that joins and leaves.

    The member has its own connection: on it a coordinator answers nothing else while a join waits.
    """
    limits = request_limits(cluster)
    limits = replace(limits, deadline_s=timeout_s, request_timeout_s=min(limits.request_timeout_s, timeout_s))
    watched = _Watched(BrokerCalls(client, limits), group_id)
    watched.check_stable()
    settings = {**kafka_client_settings(cluster), "client_id": TEMPORARY_CLIENT_ID}
    deadline = time.monotonic() + timeout_s
    with admin_client(cluster, settings) as own:
        member = _TemporaryMember(own, BrokerCalls(own, limits), watched)
        try:
            member.join(deadline)
        finally:
            # In every case: a member id that is not used delays the next rebalance of the group.
            if member.member_id:
                leave_limits = replace(limits, deadline_s=max(_LEAST_LEAVE_S, timeout_s))
                _leave(BrokerCalls(client, leave_limits), group_id, member.member_id)
    _LOG.info("group %s was made to rebalance by member %s", group_id, member.member_id)
    return member.member_id


class _Watched:
    """The group as its coordinator describes it, on the connection of the publisher."""

    def __init__(self, calls: BrokerCalls, group_id: str) -> None:
        self._calls = calls
        self.group_id = group_id
        found = find_coordinators(calls, [group_id])[group_id]
        if isinstance(found, str):
            raise NotAskedError(f"its coordinator cannot be found: {found}")
        self.node = found

    def is_stable(self) -> bool:
        """Return whether no rebalance is in progress."""
        return bool(self._describe().group_state == GroupState.STABLE)

    def check_stable(self) -> None:
        """Raise an error if the group may not be joined."""
        group = self._describe()
        if group.group_state != GroupState.STABLE:
            raise NotAskedError(f"the group is {group.group_state}")
        if group.protocol_data != EVENLAG_ASSIGNOR:
            raise NotAskedError(f"the group has selected the assignor {group.protocol_data!r}")

    def _describe(self) -> Any:
        call = Call(self.node, lambda: DescribeGroupsRequest(groups=[self.group_id]))
        (answer,) = self._calls.run([call])
        if answer.response is None:
            raise NotAskedError(f"the group cannot be described: {answer.error}")
        (group,) = answer.response.groups
        if group.error_code:
            raise NotAskedError(f"the group cannot be described: {error_name(group.error_code)}")
        return group


class _TemporaryMember:
    """The member on its own connection. Its id is empty until the coordinator has given it one."""

    def __init__(self, client: Any, calls: BrokerCalls, watched: _Watched) -> None:
        self._manager = client._manager  # noqa: SLF001 - kafka-python has no public API for messages
        self._calls = calls
        self._watched = watched
        self.member_id = ""

    def join(self, deadline: float) -> None:
        """Join; return when the coordinator has begun a rebalance. The caller leaves."""
        session_timeout_ms = self._get_member_id()
        # Between the two requests the group may have begun a rebalance: it is then left alone.
        self._watched.check_stable()
        joining = self._manager.call_soon(self._send_join, session_timeout_ms, deadline)
        while not joining.is_done:
            if not self._watched.is_stable():
                return
            if time.monotonic() > deadline:
                raise NotAskedError("the coordinator did not let evenlag's temporary member in in time")
            time.sleep(_LOOK_EVERY_S)
        if joining.failed():
            raise NotAskedError(f"the coordinator did not answer the temporary member: {joining.exception}")
        # Without an error a whole rebalance is over; the other members' leader has ignored this member, or
        # this one is the leader: it assigns nothing, and its leaving lets the coordinator choose another one.
        _check(joining.value.error_code)

    def _get_member_id(self) -> int:
        """Let the coordinator give this member an id: without one it could not leave after a time-out."""
        error = _INVALID_SESSION_TIMEOUT
        for session_timeout_ms in _SESSION_TIMEOUTS_MS:
            request = self._request(session_timeout_ms)
            (answer,) = self._calls.run([Call(self._watched.node, request)])
            if answer.response is None:
                raise NotAskedError(f"the group cannot be joined: {answer.error}")
            error = answer.response.error_code
            if error == _MEMBER_ID_REQUIRED:
                self.member_id = answer.response.member_id
                return session_timeout_ms
            if error != _INVALID_SESSION_TIMEOUT:
                break
        _check(error)
        raise NotAskedError("the coordinator gave the temporary member no id")

    def _request(self, session_timeout_ms: int) -> Callable[[], Any]:
        subscription = ConsumerProtocolSubscription(
            version=1, topics=[], user_data=TEMPORARY_MEMBER_MARK, owned_partitions=[]
        ).encode()
        return lambda: JoinGroupRequest(
            group_id=self._watched.group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[(name, subscription) for name in _PROTOCOLS],
            reason=_REASON,
            min_version=_WITH_MEMBER_ID,
        )

    async def _send_join(self, session_timeout_ms: int, deadline: float) -> Any:
        # The deadline is checked by the caller, which then closes the connection.
        timeout_ms = 1000 * (deadline - time.monotonic() + _LEAST_LEAVE_S)
        sent = self._manager.send(
            self._request(session_timeout_ms)(), node_id=self._watched.node, request_timeout_ms=timeout_ms
        )
        return await self._manager.wait_for(sent, timeout_ms)


def _check(error_code: int) -> None:
    if error_code:
        raise NotAskedError(
            _REMEDIES.get(error_code, f"the group cannot be joined: {error_name(error_code)}")
        )


def _leave(calls: BrokerCalls, group_id: str, member_id: str) -> None:
    """Leave by the member's id; what fails is logged, and the coordinator removes the member by itself."""
    identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=None, reason=_REASON)

    def request() -> Any:
        return LeaveGroupRequest(group_id=group_id, members=[identity], min_version=_SEVERAL_LEAVE)

    error: str | None = None
    for _ in calls.rounds():
        node = find_coordinators(calls, [group_id])[group_id]
        if isinstance(node, str):
            error = node
            break
        (answer,) = calls.run([Call(node, request)])
        if answer.response is None:
            error = answer.error
            continue
        code = answer.response.error_code or answer.response.members[0].error_code
        error = error_name(code) if code not in {0, _UNKNOWN_MEMBER_ID} else None
        if code not in COORDINATOR_ERRORS:
            break
    if error is not None:
        _LOG.warning("member %s could not leave group %s, and expires: %s", member_id, group_id, error)
