"""After publishing: wait until groups of the classic protocol follow, and make those rebalance that do not.

Members of the consumer client for Python ask for the rebalance of a hint themselves; Kafka's Java client has
no way to. Members read a hint within a fraction of a second, and leaders in Python ask at once: a group that
has shown no reaction for a while has nobody that asks soon. A temporary member then makes it rebalance, if
the hint still fits and nothing is in progress; that its members join within a heartbeat interval is more time
for the leader to read the hint. As for groups that brokers assign (`await_target`), none of this can fail a
publishing: the hint is on the topic, and the leader reads it when the group rebalances next.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import EVENLAG_ASSIGNOR, MEMBERLESS_STATES, GroupState, GroupType
from evenlag.publishing.rebalance_trigger.await_target import FollowWait
from evenlag.publishing.rebalance_trigger.temporary_member import ask_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignor_core.hint import HintPayload
    from evenlag.kafka.live_groups import LiveGroup
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.publishing.rebalance_trigger.await_target import FollowCost

# Asked once, a leader may not have read the hint yet; more often, it refuses the hint.
_MAX_ASKS: Final = 2
# Time for the rounds of a rebalance: members notice each one within a heartbeat interval (3 s).
_FOLLOW_S: Final = 10.0
_LOOK_EVERY_S: Final = 1.0
# Between the looks of the first ten seconds: in this time groups follow.
_FIRST_PAUSES_S: Final = (0.125, 0.125, *39 * (0.25,))
_ASK_TIMEOUT_S: Final = 15.0


def await_followers(
    client: Any,
    cluster: ClusterSettings,
    payloads: Mapping[str, HintPayload],
    *,
    after_s: float,
    timeout_s: float = 45.0,
    costs: dict[str, FollowCost] | None = None,
) -> dict[str, str]:
    """Wait until groups of the classic protocol follow their hints, and ask those that do not.

    Returns by group id, why it does not follow yet; errors are reasons, and never raised. A group is asked
    when it has looked the same for `after_s`; all have `after_s` and `timeout_s` together.
    costs: Receives what was seen of each group.
    """
    if not payloads:
        return {}
    wait = _FollowerWait(client, cluster, payloads, time.monotonic() + after_s + timeout_s)
    wait.quiet_s = after_s
    return wait.finish(costs)


@dataclass(slots=True)
class _Progress:
    """What is known about a group between two looks; it has looked like `last` since `same_since`."""

    last: LiveGroup | None = None
    same_since: float = field(default=float("inf"))
    num_asks: int = 0
    asked_at: float = field(default=float("-inf"))


class _FollowerWait(FollowWait):
    """Groups whose members assign: what they own is compared with the hints."""

    group_type = GroupType.CLASSIC
    first_reason = "it was not seen to follow in time"
    quiet_s: float

    def run(self) -> None:
        """Read the groups and ask those that need it, until all follow or the time is over."""
        self._progress: dict[str, _Progress] = defaultdict(_Progress)
        first_pauses = iter(_FIRST_PAUSES_S)
        while True:
            due = self._look()
            if due:
                self._ask(due)
            if not self.left or time.monotonic() >= self.deadline:
                return
            time.sleep(next(first_pauses, _LOOK_EVERY_S))

    def _look(self) -> list[str]:
        """Remove the groups that follow, or never will; return those that are to be asked now."""
        live = self.read_groups()
        if live is None:
            return []
        now, due = time.monotonic(), []
        for group_id in list(self.left):
            group, payload = live[group_id], self.payloads[group_id]
            progress = self._progress[group_id]
            if self.is_followed(group_id, group):
                self.left.remove(group_id)
                continue
            final = _why_never(payload, group)
            if final is None and progress.num_asks == _MAX_ASKS and self._is_over(progress, group, now):
                final = "it has rebalanced twice without following: the log of its leader says why"
            if final is not None:
                self.left.remove(group_id)
                self.reasons[group_id] = final
                continue
            last, progress.last = progress.last, group
            if last is None or (last.state, last.held) != (group.state, group.held):
                progress.same_since = now
            waits = _why_wait(payload, group)
            if waits is not None:
                self.reasons[group_id] = waits
            elif now - progress.same_since >= self.quiet_s and self._is_over(progress, group, now):
                due.append(group_id)
        return due

    def _is_over(self, progress: _Progress, group: LiveGroup, now: float) -> bool:
        """Whether nothing more is to be expected of the last request."""
        return group.state == GroupState.STABLE and now >= progress.asked_at + _FOLLOW_S

    def _ask(self, due: list[str]) -> None:
        def ask(group_id: str, timeout_s: float) -> None:
            ask_group(self.client, self.cluster, group_id, timeout_s=timeout_s)

        for group_id, reason in zip(due, self.ask_groups(due, ask, _ASK_TIMEOUT_S), strict=True):
            progress = self._progress[group_id]
            # A refused request counts too: what refuses one (a full group, a missing right) stays.
            progress.num_asks += 1
            progress.asked_at, progress.last = time.monotonic(), None
            self.reasons[group_id] = reason or "it was made to rebalance, and does not follow yet"
            if reason is not None and progress.num_asks == _MAX_ASKS:
                self.left.remove(group_id)


def _why_never(payload: HintPayload, group: LiveGroup) -> str | None:
    """Why a group cannot follow any more; None if it can."""
    if group.error is not None:
        return None
    if group.state in MEMBERLESS_STATES:
        return f"the group is {group.state} by now"
    if group.state != GroupState.STABLE:
        return None
    if group.assignor != EVENLAG_ASSIGNOR:
        return f"the group has selected the assignor {group.assignor!r} by now"
    if group.fingerprint != payload.fingerprint:
        return "its members, subscriptions or partitions have changed since it was planned"
    return None


def _why_wait(payload: HintPayload, group: LiveGroup) -> str | None:
    """Why a group is not asked at this moment; None if it may be."""
    if group.error is not None:
        return f"its members cannot be read: {group.error}"
    if group.state != GroupState.STABLE:
        return f"the group is {group.state}"
    if _num_owned(group.held) < _num_owned(payload.assignment):
        # Between the two rounds of a cooperative rebalance: those who gave partitions up are about to join.
        return "its partitions are being handed over"
    return None


def _num_owned(held: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(len(numbers) for by_topic in held.values() for numbers in by_topic.values())
