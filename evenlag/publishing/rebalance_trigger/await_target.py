"""After publishing: wait until coordinators of consumer-protocol groups have adopted their hints as targets.

A coordinator calls evenlag's plug-in only when its group changes, and Kafka has no request for that. So a
temporary member joins that subscribes only to the hint topic, and leaves as soon as it has joined. The
plug-in ignores it: a valid hint stays valid, and without a hint no partition moves because of it. On a broker
without the plug-in, Kafka's own may move partitions: trigger only groups whose assignor is evenlag's.

The plug-in may not have read the hint by then, and Kafka does not report whether a hint was followed: the
group's target assignment is compared with the hint, and the coordinator triggered again, at most three times
per plan. The wait is limited in time and never fails a publishing: the hint is on the topic, and the
coordinator reads it when the group changes next.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from evenlag.enums import REBALANCING_STATES, GroupType
from evenlag.errors import JobError, KafkaUnreachableError
from evenlag.kafka.connection import kafka_errors, librdkafka_settings, request_limits
from evenlag.kafka.live_groups import read_live_groups
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assignor_core.hint import HintPayload
    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)
_POLL_S: Final = 0.2

# As for members of the classic protocol: at most three times per plan.
_MAX_ASKS: Final = 3
_AT_ONCE: Final = 8
# Time for a coordinator to compute a target, its pause between two of them (one second) included.
_TAKE_UP_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.5
_MIN_READ_S: Final = 5.0


@dataclass(slots=True)
class FollowCost:
    """What a wait saw of a group; Kafka describes no members of a group that rebalances, and no generation.

    followed_at: When the group was first seen to follow; None if it was not, or did at the first look.
    rebalancing_s: How long the group rebalanced, by the looks.
    """

    followed_at: datetime | None = None
    rebalancing_s: float = 0.0
    num_triggers: int = 0


def await_target_assignment(
    client: Any,
    cluster: ClusterSettings,
    payloads: Mapping[str, HintPayload],
    *,
    timeout_s: float = 60.0,
    costs: dict[str, FollowCost] | None = None,
) -> dict[str, str]:
    """Trigger the coordinators of groups until their target assignments match the hints.

    Returns by group id, why its target does not match its hint yet; errors are reasons, and never raised.
    costs: Receives what was seen of each group.
    """
    if not payloads:
        return {}
    return _TargetWait(client, cluster, payloads, time.monotonic() + timeout_s).finish(costs)


def is_taken_up(payload: HintPayload, group: LiveGroup) -> bool:
    """Whether every hinted member of a group has exactly its hinted partitions as target."""
    wanted = {
        key: {topic: sorted(numbers) for topic, numbers in by_topic.items() if len(numbers)}
        for key, by_topic in payload.assignment.items()
    }
    target = {
        key: {topic: sorted(numbers) for topic, numbers in by_topic.items() if numbers}
        for key, by_topic in group.held.items()
    }
    return all(target.get(key) == by_topic for key, by_topic in wanted.items() if by_topic)


class FollowWait(ABC):
    """The groups that do not follow their hints yet, each with the reason; errors are reasons, too."""

    group_type: ClassVar[GroupType]
    first_reason: ClassVar[str]

    def __init__(
        self, client: Any, cluster: ClusterSettings, payloads: Mapping[str, HintPayload], deadline: float
    ) -> None:
        self.client, self.cluster, self.payloads, self.deadline = client, cluster, payloads, deadline
        self.reasons = dict.fromkeys(sorted(payloads), self.first_reason)
        self.left = list(self.reasons)
        self.costs = {group_id: FollowCost() for group_id in self.reasons}
        self._looked_at: float | None = None
        self._is_first_look = True

    def finish(self, costs: dict[str, FollowCost] | None = None) -> dict[str, str]:
        """Wait until all groups follow or the time is over; return the reasons of those that do not."""
        if costs is not None:
            costs.update(self.costs)
        try:
            self.run()
        except Exception as error:  # noqa: BLE001 - the hints are published, whatever fails here
            _LOG.exception("groups could not be asked")
            self.give_up(f"unexpected {type(error).__name__}: {error}")
        for group_id, reason in sorted(self.reasons.items()):
            _LOG.warning("hint not taken up so far: %s", reason, extra={"group_id": group_id})
        return self.reasons

    @abstractmethod
    def run(self) -> None:
        """Read the groups, and trigger a rebalance of those that need it."""

    def give_up(self, reason: str) -> None:
        """Stop waiting for all groups that are left."""
        self.reasons |= dict.fromkeys(self.left, reason)
        self.left = []

    def is_followed(self, group_id: str, group: LiveGroup) -> bool:
        """Whether a group follows, which is noted; called once for each group of a look."""
        if not is_taken_up(self.payloads[group_id], group):
            return False
        del self.reasons[group_id]
        if not self._is_first_look:
            self.costs[group_id].followed_at = datetime.now(UTC)
        return True

    def ask_groups(
        self, group_ids: Sequence[str], ask: Callable[[str, float], object], limit_s: float = float("inf")
    ) -> list[str | None]:
        """Ask for the rebalance of groups, a few concurrently; return why each was not asked, or None.

        ask: Called with a group and its time limit in seconds.
        """

        def attempt(group_id: str) -> str | None:
            left_s = min(limit_s, self.deadline - time.monotonic())
            if left_s <= 0:
                return self.reasons[group_id]
            try:
                ask(group_id, left_s)
            except JobError as error:
                return str(error)
            self.costs[group_id].num_triggers += 1
            return None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(attempt, group_ids))

    def read_groups(self) -> dict[str, LiveGroup] | None:
        """Describe the groups that are left; None after an error, by which the wait is over."""
        limits = request_limits(self.cluster)
        left_s = max(_MIN_READ_S, self.deadline - time.monotonic())
        limits = replace(limits, deadline_s=left_s, request_timeout_s=min(limits.request_timeout_s, left_s))
        ignored = frozenset({self.cluster.hint_topic})
        try:
            with kafka_errors(self.cluster):
                live = read_live_groups(
                    self.client, dict.fromkeys(self.left, self.group_type), limits, ignored
                )
        except JobError as error:
            self.give_up(f"its members cannot be read: {error}")
            return None
        self._note_rebalances(live)
        return live

    def _note_rebalances(self, live: Mapping[str, LiveGroup]) -> None:
        last, self._looked_at = self._looked_at, time.monotonic()
        self._is_first_look = last is None
        for group_id, group in live.items():
            if last is not None and group.state in REBALANCING_STATES:
                self.costs[group_id].rebalancing_s += self._looked_at - last


class _TargetWait(FollowWait):
    """Groups whose coordinators assign: their target assignments are compared with the hints."""

    group_type = GroupType.CONSUMER
    first_reason = "its coordinator was not asked in time"

    def run(self) -> None:
        """Read targets and trigger coordinators in turn, until all targets match or the time is over."""
        # Read the groups before joining any: joining a missing group would create it, or change its protocol.
        self._look()
        for _ in range(_MAX_ASKS):
            if not self.left or time.monotonic() >= self.deadline:
                return
            self._ask_all()
            until = min(self.deadline, time.monotonic() + _TAKE_UP_S)
            self._look()
            while self.left and time.monotonic() < until:
                time.sleep(_LOOK_EVERY_S)
                self._look()

    def _ask_all(self) -> None:
        try:
            settings = librdkafka_settings(self.cluster)
        except JobError as error:
            self.give_up(str(error))
            return

        def ask(group_id: str, timeout_s: float) -> None:
            ask_coordinator(settings, group_id, self.cluster.hint_topic, timeout_s=timeout_s)

        for group_id, reason in zip(self.left, self.ask_groups(self.left, ask), strict=True):
            self.reasons[group_id] = reason or "its coordinator was asked, and its target is not as hinted"

    def _look(self) -> None:
        """Remove the groups whose targets match their hints, and those that no longer exist."""
        live = self.read_groups()
        if live is None:
            return
        left = []
        for group_id in self.left:
            group = live[group_id]
            if self.is_followed(group_id, group):
                continue
            if group.error is not None:
                self.reasons[group_id] = f"its members cannot be read: {group.error}"
                left.append(group_id)
            elif group.held:
                left.append(group_id)
            else:
                self.reasons[group_id] = f"the group is {group.state} by now, or does not show its members"
        self.left = left


class MissingExtraError(JobError, exit_code=2):
    """Raised when confluent-kafka, an optional dependency, is not installed."""


def ask_coordinator(
    client: Mapping[str, Any], group_id: str, hint_topic: str, *, timeout_s: float = 60.0
) -> str:
    """Join a group briefly, subscribed to the hint topic only: its coordinator then calls its assignor."""
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingExtraError("confluent-kafka is not installed: install evenlag[kip848]") from error
    joined: list[int] = []
    config = {
        **client,
        "group.id": group_id,
        "group.protocol": GroupType.CONSUMER.value,
        "client.id": "evenlag-trigger",
        "enable.auto.commit": False,
        # It does not need the records of the partitions that are assigned to it.
        "auto.offset.reset": "latest",
    }
    try:
        consumer = Consumer(config, logger=_LOG)
    except KafkaException as error:
        raise JobError(f"confluent-kafka does not take these settings: {error}") from error
    try:
        consumer.subscribe([hint_topic], on_assign=lambda _, partitions: joined.append(len(partitions)))
        deadline = time.monotonic() + timeout_s
        while not joined:
            if time.monotonic() > deadline:
                raise KafkaUnreachableError(f"joining group {group_id!r} timed out after {timeout_s:.0f} s")
            message = consumer.poll(_POLL_S)
            trouble = None if message is None else message.error()
            if trouble is not None and trouble.fatal():
                raise KafkaUnreachableError(f"group {group_id!r} cannot be joined: {trouble}")
        member_id = str(consumer.memberid())
    finally:
        consumer.close()
    _LOG.info("the coordinator of group %s was made to ask again, by member %s", group_id, member_id)
    return member_id
