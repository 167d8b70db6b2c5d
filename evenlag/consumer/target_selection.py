"""The target assignment of a rebalance: the hint's, else by loads, else cooperative-sticky's.

Pure: it uses a `Group` and a `HintView`, and does not import kafka-python.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assignor_core.algorithms.place_by_load import place_by_load
from assignor_core.algorithms.present_loads import present_loads
from assignor_core.assignors import get_assignor
from assignor_core.errors import HintMismatchError, ProblemError
from assignor_core.group import Assignment, Group
from assignor_core.hint import Hint, fingerprint, member_key
from assignor_core.loads import LoadsPayload
from assignor_core.metrics import count_moves
from assignor_core.verify import find_violations
from evenlag.consumer.cache import HintView
from evenlag.consumer.events import Reason
from evenlag.consumer.hint_arrays import FlatHint
from evenlag.consumer.record_marks import is_from_future


@dataclass(frozen=True, slots=True)
class Decision:
    """A target assignment and its reason.

    target: int32 [P], before the two-phase step.
    reason: ``FOLLOWED``, ``PLACED_BY_LOAD``, or why neither a hint nor loads were used.
    hint_reason: ``FOLLOWED``, or why no hint is followed.
    plan_id: The plan that was followed or refused; None without a hint.
    fingerprint: The group's fingerprint as the leader computes it; None if topic ids are unknown.
    is_provisional: Whether counts are less even than they will be once it is known whether a hint exists.
    is_uneven: Whether counts, or loads after a late sync, are less even than one more rebalance can make
        them.
    """

    target: Assignment
    reason: Reason
    hint_reason: Reason = Reason.NO_HINT
    plan_id: str | None = None
    detail: str = ""
    fingerprint: str | None = None
    is_provisional: bool = False
    is_uneven: bool = False


def choose_target(group: Group, view: HintView, topic_ids: Mapping[str, str], *, now_ms: int) -> Decision:
    """Choose the target assignment of a group: a hint that fits, else by fresh loads, else evenly.

    group: The group as its leader sees it, with the claims of all members.
    topic_ids: Topic ids by name, in the text form of hints.
    """
    identity = group_fingerprint(group, topic_ids)
    if view.is_cold:
        return _decide_cold(group, identity)
    hint, plan = view.usable_hint, None
    reason, detail = Reason.NO_HINT, "no hint"
    if hint is not None:
        plan = hint.plan_id
        target, reason, detail = _try_hint(group, hint, view.flat, topic_ids, identity, now_ms)
        if target is not None:
            return Decision(target, reason, reason, plan, detail, identity)
    return _decide_without_hint(group, view, topic_ids, now_ms, Refusal(reason, plan, detail, identity))


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no hint is followed; the fields are those of `Decision`."""

    reason: Reason
    plan_id: str | None
    detail: str
    fingerprint: str | None


def _decide_without_hint(
    group: Group, view: HintView, topic_ids: Mapping[str, str], now_ms: int, why: Refusal
) -> Decision:
    loads, reason, detail = view.usable_loads, why.reason, why.detail
    if loads is not None and not loads.is_fresh(now_ms):
        reason = Reason.LOADS_STALE if why.reason is Reason.NO_HINT else why.reason
        detail = f"{detail}; the loads measured at {loads.payload.measured_at_ms} are not fresh"
    elif loads is not None and why.fingerprint is not None:
        present = present_loads(loads.payload, now_ms)
        placed = place_by_load(group, topic_ids, present)
        detail = f"{detail}; {count_moves(group, placed.target)} moves by the loads"
        return Decision(
            target=placed.target,
            reason=Reason.PLACED_BY_LOAD,
            hint_reason=why.reason,
            plan_id=why.plan_id,
            detail=detail,
            fingerprint=why.fingerprint,
            is_uneven=placed.is_uneven or _is_short_of(group, placed.target, topic_ids, present),
        )
    return Decision(fall_back(group), reason, why.reason, why.plan_id, detail, why.fingerprint)


def _is_short_of(group: Group, target: Assignment, topic_ids: Mapping[str, str], loads: LoadsPayload) -> bool:
    """Return whether members that missed a round keep what the group needs to be even by loads.

    Their claims are of an older generation: their sync came after the next rebalance had begun, and they
    have released nothing, while what others released is placed now.
    """
    is_live = group.live_owner[group.claim_row] == group.claim_member
    generations = group.claim_generation[is_live]
    has_free = bool(((group.live_owner < 0) & (target >= 0)).any())
    if not has_free or not len(generations) or generations.min() == generations.max():
        return False
    settled = group.with_state(target, group.lag)
    return count_moves(settled, place_by_load(settled, topic_ids, loads).target) > 0


def _decide_cold(group: Group, identity: str | None) -> Decision:
    even = fall_back(group)
    # Without owned partitions no plan can be undone: an even assignment only places free partitions.
    target = place_free(group) if count_moves(group, even) else even
    return Decision(
        target,
        Reason.COLD,
        Reason.COLD,
        detail="hints are not read yet",
        fingerprint=identity,
        is_provisional=not np.array_equal(target, even),
    )


def fall_back(group: Group) -> Assignment:
    """Return the assignment of cooperative-sticky. No hint has a say in it, nor has its slack.

    Returns int32 [P], row → member, -1 for none.
    """
    return get_assignor("cooperative-sticky", count_slack=0).assign(group)


def has_begun(group: Group, target: Assignment, max_moves: int) -> bool:
    """Return whether the members have begun to follow a target: an expired hint is then completed and kept.

    There are claims, each is within its claimant's part of the target, and the partitions that nobody owns
    are no more than what the hint may move.
    """
    if not len(group.claim_row) or group.unknown_claims:
        return False
    is_within = bool((target[group.claim_row] == group.claim_member).all())
    num_free = int(np.count_nonzero((group.live_owner < 0) & (target >= 0)))
    return is_within and num_free <= max_moves


def place_free(group: Group) -> Assignment:
    """Keep every partition with its live owner and distribute the free ones, fewest partitions first.

    Used while it is unknown whether a hint exists: an even assignment could undo a plan that the group has
    just followed.

    Returns int32 [P], row → member, -1 if no member subscribes to the topic.
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

    topic_ids: Topic ids by name, in the text form of hints.
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

    Returns int32 [P], row → member, -1 for partitions that the hint leaves out.
    topic_ids: Topic ids by name, in the text form of hints.
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
    if not len(hint.first):
        return target
    topic_of = topics[hint.topic_of]
    beyond = hint.last >= np.diff(group.topic_start)[topic_of]
    if beyond.any():
        first = int(np.argmax(beyond))
        name, number = group.topics[int(topic_of[first])], int(hint.last[first])
        raise HintMismatchError(f"topic {name!r} has no partition {number}")
    sizes = hint.last - hint.first + 1
    if int(sizes.sum()) > group.num_partitions:
        raise HintMismatchError("the hint repeats a partition")
    # Expanded only here, where the group's own counts bound the ranges.
    starts = np.asarray(group.topic_start)[topic_of] + hint.first
    ends = np.cumsum(sizes)
    rows = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]))
    target[rows] = np.repeat(members[hint.key_of], sizes)
    return target


def _try_hint(
    group: Group,
    hint: Hint,
    flat: FlatHint | None,
    topic_ids: Mapping[str, str],
    identity: str | None,
    now_ms: int,
) -> tuple[Assignment | None, Reason, str]:
    payload = hint.payload
    why = _find_misfit(hint, identity, now_ms)
    if why is not None:
        return None, *why
    try:
        target = hint_target(group, flat or FlatHint.of(payload), topic_ids)
    except HintMismatchError as error:
        return None, Reason.MISMATCH, str(error)
    try:
        found = find_violations(
            group,
            target,
            max_moves=payload.max_moves,
            count_slack=payload.count_slack,
            together=_together_names(payload.together or (), topic_ids),
        )
    except ProblemError as error:
        return None, Reason.INVALID, str(error)
    if found:
        rules = {violation.rule for violation in found}
        known = [reason for reason in (Reason.MAX_MOVES, Reason.COUNT_SLACK) if {reason.value} == rules]
        return None, known[0] if known else Reason.INVALID, "; ".join(v.message for v in found)
    if hint.is_expired(now_ms) and not has_begun(group, target, payload.max_moves):
        age_s = (now_ms - hint.expires_at_ms) / 1000
        return None, Reason.EXPIRED, f"expired {age_s:.0f} s ago and not begun"
    return target, Reason.FOLLOWED, f"{count_moves(group, target)} moves"


def _together_names(together: Sequence[Sequence[str]], topic_ids: Mapping[str, str]) -> list[list[str]]:
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return [[names[topic_id] for topic_id in topics if topic_id in names] for topics in together]


def _find_misfit(hint: Hint, identity: str | None, now_ms: int) -> tuple[Reason, str] | None:
    if is_from_future(hint.issued_at_ms, now_ms):
        return Reason.FUTURE, f"issued {(hint.issued_at_ms - now_ms) / 1000:.0f} s in the future"
    if identity is None:
        return Reason.NO_TOPIC_IDS, "the broker's metadata hold no topic ids"
    wanted = hint.payload.fingerprint
    return (
        None if identity == wanted else (Reason.FINGERPRINT, f"for {wanted:.12}, the group is {identity:.12}")
    )
