"""After publishing: wait until groups of the classic protocol follow, and make those rebalance that do not.

Members of the consumer client for Python ask for the rebalance of a hint themselves; Kafka's Java client has
no way to. Members read a hint within a fraction of a second, and leaders in Python ask at once: a group that
has shown no reaction for a while has nobody that asks soon. A temporary member then makes it rebalance, if
the hint still fits and nothing is in progress; that its members join within a heartbeat interval is more time
for the leader to read the hint.
"""

import time
from collections.abc import Mapping
from typing import Any

from assignor_core.hint import HintPayload
from evenlag.enums import EVENLAG_ASSIGNOR, MEMBERLESS_STATES, GroupState, GroupType
from evenlag.kafka.live_groups import LiveGroup
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.rebalance_trigger.follow_wait import FollowCost, FollowWait
from evenlag.publishing.rebalance_trigger.temporary_member import ask_group


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


class _FollowerWait(FollowWait):
    """Groups whose members assign: what they own is compared with the hints."""

    group_type = GroupType.CLASSIC
    first_reason = "it was not seen to follow in time"
    asked_reason = "it was made to rebalance, and does not follow yet"
    last_reason = "it has rebalanced twice without following: the log of its leader says why"
    # Asked once, a leader may not have read the hint yet; more often, it refuses the hint.
    max_asks = 2
    # Time for the rounds of a rebalance: members notice each one within a heartbeat interval (3 s).
    settle_s = 10.0
    ask_timeout_s = 15.0

    def ask(self, group_id: str, timeout_s: float) -> None:
        """Let a temporary member join a group and leave it."""
        ask_group(self.client, self.cluster, group_id, timeout_s=timeout_s)

    def why_never(self, payload: HintPayload, group: LiveGroup) -> str | None:
        """Return what has changed permanently."""
        if group.state in MEMBERLESS_STATES:
            return f"the group is {group.state} by now"
        if group.state != GroupState.STABLE:
            return None
        if group.assignor != EVENLAG_ASSIGNOR:
            return f"the group has selected the assignor {group.assignor!r} by now"
        if group.fingerprint != payload.fingerprint:
            return "its members, subscriptions or partitions have changed since it was planned"
        return None

    def why_wait(self, payload: HintPayload, group: LiveGroup) -> str | None:
        """Return what a group is busy with."""
        if group.state != GroupState.STABLE:
            return f"the group is {group.state}"
        if _num_owned(group.held) < _num_owned(payload.assignment):
            # Between two rounds of a rebalance: those who gave partitions up are about to join.
            return "its partitions are being handed over"
        return None


def _num_owned(held: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(len(numbers) for by_topic in held.values() for numbers in by_topic.values())
