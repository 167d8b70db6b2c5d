"""After publishing: wait until coordinators of consumer-protocol groups have adopted their hints as targets.

A coordinator calls evenlag's plug-in only when its group changes, so a change is triggered (see
`coordinator_trigger`). The plug-in may not have read the hint by then, and Kafka does not report whether a
hint was followed: the group's target assignment is compared with the hint, and the coordinator triggered
again, at most three times per plan. The wait is limited in time and never fails a publishing: the hint is on
the topic, and the coordinator reads it when the group changes next.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupType
from evenlag.errors import JobError
from evenlag.kafka.connection import kafka_errors, librdkafka_settings, request_limits
from evenlag.kafka.live_groups import read_live_groups
from evenlag.logging_setup import named_logger
from evenlag.publishing.coordinator_trigger import ask_coordinator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignor_core.hint import HintPayload
    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)

# As for members of the classic protocol: at most three times per plan.
_MAX_ASKS: Final = 3
_AT_ONCE: Final = 8
# Time for a coordinator to compute a target, its pause between two of them (one second) included.
_TAKE_UP_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.5
_LEAST_LOOK_S: Final = 5.0


def await_target_assignment(
    client: Any, cluster: ClusterSettings, payloads: Mapping[str, HintPayload], *, timeout_s: float = 60.0
) -> dict[str, str]:
    """Trigger the coordinators of groups until their target assignments match the hints.

    Returns by group id, why its target does not match its hint yet; without the groups whose target
    matches. Errors are returned as reasons and never raised.
    timeout_s: Time limit for all groups together, in seconds.
    """
    if not payloads:
        return {}
    asking = _Asking(client, cluster, payloads, time.monotonic() + timeout_s)
    try:
        asking.run()
    except Exception as error:  # noqa: BLE001 - the hints are published, whatever fails here
        _LOG.exception("coordinators could not be asked")
        asking.give_up(f"unexpected {type(error).__name__}: {error}")
    for group_id, reason in sorted(asking.reasons.items()):
        _LOG.warning("hint not taken up so far: %s", reason, extra={"group_id": group_id})
    return asking.reasons


def is_taken_up(payload: HintPayload, group: LiveGroup) -> bool:
    """Whether a group's target assignment matches its hint.

    True when every hinted member has exactly its hinted partitions as target.
    """
    wanted = {
        key: {topic: sorted(numbers) for topic, numbers in by_topic.items() if len(numbers)}
        for key, by_topic in payload.assignment.items()
    }
    target = {
        key: {topic: sorted(numbers) for topic, numbers in by_topic.items() if numbers}
        for key, by_topic in group.held.items()
    }
    return all(target.get(key) == by_topic for key, by_topic in wanted.items() if by_topic)


class _Asking:
    """The groups that are left, each with the reason, and how to trigger their coordinators."""

    def __init__(
        self, client: Any, cluster: ClusterSettings, payloads: Mapping[str, HintPayload], deadline: float
    ) -> None:
        self._client, self._cluster, self._payloads = client, cluster, payloads
        self._deadline = deadline
        self._waiting = sorted(payloads)
        self.reasons = dict.fromkeys(self._waiting, "its coordinator was not asked in time")

    def run(self) -> None:
        """Read targets and trigger coordinators in turn, until all targets match or the time is over."""
        # Read the groups before joining any: joining a missing group would create it, or change its protocol.
        self._look()
        for _ in range(_MAX_ASKS):
            if not self._waiting or time.monotonic() >= self._deadline:
                return
            self._ask_all()
            until = min(self._deadline, time.monotonic() + _TAKE_UP_S)
            self._look()
            while self._waiting and time.monotonic() < until:
                time.sleep(_LOOK_EVERY_S)
                self._look()

    def give_up(self, reason: str) -> None:
        """Stop waiting for all groups that are left."""
        self.reasons |= dict.fromkeys(self._waiting, reason)
        self._waiting = []

    def _ask_all(self) -> None:
        """Trigger the coordinator of each group; a few concurrently, because most of the time is waiting."""
        try:
            settings = librdkafka_settings(self._cluster)
        except JobError as error:
            self.give_up(str(error))
            return

        def ask(group_id: str) -> str:
            left_s = self._deadline - time.monotonic()
            if left_s <= 0:
                return self.reasons[group_id]
            try:
                ask_coordinator(settings, group_id, self._cluster.hint_topic, timeout_s=left_s)
            except JobError as error:
                return str(error)
            return "its coordinator was asked, and its target is not as hinted"

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            self.reasons |= dict(zip(self._waiting, pool.map(ask, self._waiting), strict=True))

    def _look(self) -> None:
        """Remove the groups whose targets match their hints, and those that no longer exist."""
        limits = request_limits(self._cluster)
        left_s = max(_LEAST_LOOK_S, self._deadline - time.monotonic())
        limits = replace(limits, deadline_s=left_s, request_timeout_s=min(limits.request_timeout_s, left_s))
        try:
            with kafka_errors(self._cluster):
                live = read_live_groups(
                    self._client,
                    dict.fromkeys(self._waiting, GroupType.CONSUMER),
                    limits,
                    frozenset({self._cluster.hint_topic}),
                )
        except JobError as error:
            self.give_up(f"its target cannot be seen: {error}")
            return
        left = []
        for group_id in self._waiting:
            group = live[group_id]
            if is_taken_up(self._payloads[group_id], group):
                del self.reasons[group_id]
            elif group.error is not None:
                self.reasons[group_id] = f"its target cannot be seen: {group.error}"
                left.append(group_id)
            elif group.held:
                left.append(group_id)
            else:
                self.reasons[group_id] = f"the group is {group.state} by now, or does not show its members"
        self._waiting = left
