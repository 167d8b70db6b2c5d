"""The target assignment of a rebalance: the hint's if it fits, otherwise cooperative-sticky's.

Pure: it uses a `Group` and a `HintView`, and does not import kafka-python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from assignor_core.assignors import get_assignor
from assignor_core.errors import HintMismatchError
from assignor_core.hint import fingerprint, member_key
from assignor_core.metrics import count_moves
from assignor_core.verify import find_violations
from evenlag.consumer.events import Reason
from evenlag.consumer.hint_arrays import FlatHint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignor_core.group import Assignment, Group
    from assignor_core.hint import Hint
    from evenlag.consumer.cache import HintView


@dataclass(frozen=True, slots=True)
class Decision:
    """A target assignment and its reason.

    Attributes
    ----------
    target
        int32 [P], before the two-phase step.
    reason
        ``FOLLOWED``, or why no hint is followed.
    plan_id
        The plan that was followed or refused; None without a hint.
    detail
        Details for a log.
    fingerprint
        The group's fingerprint as the leader computes it; None if topic ids are unknown.
    is_provisional
        Whether counts are less even than they will be once it is known whether a hint exists.
    """

    target: Assignment
    reason: Reason
    plan_id: str | None = None
    detail: str = ""
    fingerprint: str | None = None
    is_provisional: bool = False


def choose_target(
    group: Group,
    view: HintView,
    topic_ids: Mapping[str, str],
    *,
    now_ms: int,
    started_plan_id: str | None = None,
) -> Decision:
    """Choose the target assignment of a group.

    Parameters
    ----------
    group
        The group as its leader sees it, with the claims of all members.
    view
        State of the hint cache.
    topic_ids
        Topic ids by name, in the text form of hints.
    now_ms
        Milliseconds since the epoch: an expired hint is not started.
    started_plan_id
        The plan that this leader followed last: it is completed even after it expired.

    Returns
    -------
    Decision
        The target and why it was chosen.
    """
    hint = view.usable_hint
    identity = group_fingerprint(group, topic_ids)
    if view.is_cold:
        return _decide_cold(group, identity)
    if hint is None:
        return Decision(fall_back(group, view.count_slack), Reason.NO_HINT, fingerprint=identity)
    target, reason, detail = _try_hint(group, hint, view.flat, topic_ids, identity)
    if target is not None and hint.is_expired(now_ms) and hint.plan_id != started_plan_id:
        # Expiry prevents a start, not completion: a hint without moves was started before.
        moves = count_moves(group, target)
        if moves:
            target, reason = None, Reason.EXPIRED
            detail = f"expired {(now_ms - hint.expires_at_ms) / 1000:.0f} s ago with {moves} moves to start"
    if target is None:
        target = fall_back(group, view.count_slack)
    return Decision(target, reason, hint.plan_id, detail, identity)


def _decide_cold(group: Group, identity: str | None) -> Decision:
    even = fall_back(group, 0)
    # Without owned partitions no plan can be undone: an even assignment only places free partitions.
    target = place_free(group) if count_moves(group, even) else even
    is_provisional = not np.array_equal(target, even)
    return Decision(target, Reason.COLD, None, "hints are not read yet", identity, is_provisional)


def fall_back(group: Group, count_slack: int) -> Assignment:
    """Return the assignment of cooperative-sticky, with the slack that keeps a followed plan in place.

    Parameters
    ----------
    group
        The group.
    count_slack
        Allowed difference in partition counts between members.

    Returns
    -------
    numpy.ndarray
        int32 [P], row → member, -1 for none.
    """
    return get_assignor("cooperative-sticky", count_slack=count_slack).assign(group)


def place_free(group: Group) -> Assignment:
    """Keep every partition with its live owner and distribute the free ones, fewest partitions first.

    Used while it is unknown whether a hint exists: an even assignment could undo a plan that the group has
    just followed.

    Parameters
    ----------
    group
        The group.

    Returns
    -------
    numpy.ndarray
        int32 [P], row → member, -1 if no member subscribes to the topic.
    """
    target = group.live_owner.astype(np.int32, copy=True)
    counts = np.bincount(target[target >= 0], minlength=group.num_members)
    takers = [np.flatnonzero(group.subscribed[:, topic]) for topic in range(group.num_topics)]
    free = np.flatnonzero(target < 0)
    for row in free[np.argsort(group.row_partition[free], kind="stable")]:
        eligible = takers[group.row_topic[row]]
        if len(eligible):
            member = eligible[np.argmin(counts[eligible])]
            target[row] = member
            counts[member] += 1
    return target


def group_fingerprint(group: Group, topic_ids: Mapping[str, str]) -> str | None:
    """Return the group's fingerprint; None if the id of one of its topics is unknown.

    Parameters
    ----------
    group
        The group.
    topic_ids
        Topic ids by name, in the text form of hints.
    """
    if any(topic not in topic_ids for topic in group.topics):
        return None
    ids = [topic_ids[topic] for topic in group.topics]
    start, topics = group.subscription_start, group.subscription_topic
    members = (
        (member_key(member, instance), [ids[topic] for topic in topics[start[i] : start[i + 1]]])
        for i, (member, instance) in enumerate(zip(group.member_ids, group.instance_ids, strict=True))
    )
    counts = np.diff(group.topic_start).tolist()
    return fingerprint(members, dict(zip(ids, counts, strict=True)))


def hint_target(group: Group, hint: FlatHint, topic_ids: Mapping[str, str]) -> Assignment:
    """Convert a hint's assignment to an array.

    Parameters
    ----------
    group
        The group.
    hint
        The hint's assignment.
    topic_ids
        Topic ids by name, in the text form of hints.

    Returns
    -------
    numpy.ndarray
        int32 [P], row → member, -1 for partitions that the hint leaves out.

    Raises
    ------
    HintMismatchError
        If the hint names a member, a topic or a partition that the group does not have.
    """
    index_by_key = {
        member_key(member, instance): index
        for index, (member, instance) in enumerate(zip(group.member_ids, group.instance_ids, strict=True))
    }
    topic_by_id = {topic_ids[name]: index for index, name in enumerate(group.topics) if name in topic_ids}
    members = np.array([index_by_key.get(key, -1) for key in hint.keys], dtype=np.int32)
    topics = np.array([topic_by_id.get(topic_id, -1) for topic_id in hint.topic_ids], dtype=np.int64)
    if (members < 0).any():
        raise HintMismatchError(f"member {hint.keys[int(np.argmin(members))]!r:.80} is not in the group")
    if (topics < 0).any():
        raise HintMismatchError(f"topic {hint.topic_ids[int(np.argmin(topics))]} is not taken by the group")
    target = np.full(group.num_partitions, -1, dtype=np.int32)
    if not len(hint.number):
        return target
    topic_of = topics[hint.topic_of]
    beyond = hint.number >= np.diff(group.topic_start)[topic_of]
    if beyond.any():
        first = int(np.argmax(beyond))
        name, number = group.topics[int(topic_of[first])], int(hint.number[first])
        raise HintMismatchError(f"topic {name!r} has no partition {number}")
    target[np.asarray(group.topic_start)[topic_of] + hint.number] = members[hint.key_of]
    return target


def _try_hint(
    group: Group, hint: Hint, flat: FlatHint | None, topic_ids: Mapping[str, str], identity: str | None
) -> tuple[Assignment | None, Reason, str]:
    payload = hint.payload
    if identity is None:
        return None, Reason.NO_TOPIC_IDS, "the broker's metadata hold no topic ids"
    if identity != payload.fingerprint:
        return None, Reason.FINGERPRINT, f"made for {payload.fingerprint:.12}, the group is {identity:.12}"
    try:
        target = hint_target(group, flat or FlatHint.of(payload), topic_ids)
    except HintMismatchError as error:
        return None, Reason.MISMATCH, str(error)
    found = find_violations(group, target, max_moves=payload.max_moves, count_slack=payload.count_slack)
    if found:
        rules = {violation.rule for violation in found}
        known = [reason for reason in (Reason.MAX_MOVES, Reason.COUNT_SLACK) if {reason.value} == rules]
        return None, known[0] if known else Reason.INVALID, "; ".join(v.message for v in found)
    return target, Reason.FOLLOWED, f"{count_moves(group, target)} moves"
