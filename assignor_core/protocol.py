"""The cooperative protocol: two phases instead of one, so that nobody ever works beside another (KIP-429)."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from assignor_core.assignors.base import COOPERATIVE, Assignor
from assignor_core.group import Assignment, Group
from assignor_core.members import UnknownClaim

_MAX_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Step:
    """What the leader of a cooperative group hands out in one round.

    Attributes
    ----------
    assignment
        int32 [P]: the target, with -1 where a partition must first be given up by who claims it.
    follow_up
        Whether anything was withheld: then the leader itself asks for the next round.
    withheld_rows
        The rows of the target that were withheld, ascending.
    kept_unknown
        (member index, topic, partition) of partitions that the group has no metadata of: their owners keep
        them, because metadata may be older than the claim.
    """

    assignment: Assignment
    follow_up: bool
    withheld_rows: NDArray[np.int64]
    kept_unknown: tuple[tuple[int, str, int], ...]


def cooperative_step(group: Group, target: Assignment) -> Step:
    """Return the part of a target that can be handed out now without two members on one partition.

    A member may newly get a partition only if no other member claims it, in any generation, subscribed or
    not. A member that claims it keeps it only if nobody else claims it from the same or a newer
    generation: with equal ones nobody knows who works on it, so both give it up first.

    Parameters
    ----------
    group
        The group with all its claims.
    target
        int32 [P], where everything is to go; not changed.

    Notes
    -----
    O(P + C). KIP-429 withholds what another member *owns*; here it is what another member *claims*,
    which also covers stale claims after a missed rebalance (KAFKA-12984).

    Examples
    --------
    >>> from assignor_core.group import Group
    >>> from assignor_core.members import Member
    >>> members = [Member("a", ("t",), owned=(("t", 0), ("t", 1))), Member("b", ("t",))]
    >>> step = cooperative_step(Group.from_members({"t": 2}, members), np.array([0, 1], dtype=np.int32))
    >>> step.assignment.tolist(), step.follow_up
    ([0, -1], True)
    """
    row, member, generation = group.claim_row, group.claim_member, group.claim_generation
    mine = target[row] == member
    lowest = np.iinfo(np.int64).min
    own_generation = np.full(group.num_partitions, lowest, dtype=np.int64)
    own_row = row[mine]
    claims_it = np.zeros(group.num_partitions, dtype=np.bool_)
    claims_it[own_row] = True
    np.maximum.at(own_generation, own_row, generation[mine])
    blocks = ~mine & (~claims_it[row] | (generation >= own_generation[row]))
    blocked = np.zeros(group.num_partitions, dtype=np.bool_)
    blocked[row[blocks]] = True
    withheld = np.flatnonzero(blocked & (target >= 0))
    handed = target.astype(np.int32, copy=True)
    handed[withheld] = -1
    return Step(
        assignment=handed,
        follow_up=bool(len(withheld)),
        withheld_rows=withheld,
        kept_unknown=_kept_unknown(group.unknown_claims),
    )


def _kept_unknown(claims: tuple[UnknownClaim, ...]) -> tuple[tuple[int, str, int], ...]:
    newest: dict[tuple[str, int], list[UnknownClaim]] = {}
    for claim in claims:
        best = newest.setdefault((claim.topic, claim.partition), [claim])
        if claim.generation > best[0].generation:
            best[:] = [claim]
        elif claim is not best[0] and claim.generation == best[0].generation:
            best.append(claim)
    kept = [best[0] for best in newest.values() if len(best) == 1 and best[0].subscribed]
    return tuple(sorted((claim.member, claim.topic, claim.partition) for claim in kept))


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Where a group comes to rest: the assignment, and how many rounds that took."""

    assignment: Assignment
    rounds: int


def settle(group: Group, assignor: Assignor, target: Assignment) -> Settled:
    """Run the rounds of a rebalance until nothing is withheld any more.

    The target of an assignor with `plans_once` is completed; any other is asked again in each round, as a
    group's leader does. An eager one is settled at once.

    Parameters
    ----------
    group
        The group with its claims.
    assignor
        The assignor of the group.
    target
        int32 [P], its first answer; not changed.

    Returns
    -------
    Settled
        The last assignment, after ten rounds at most.
    """
    if COOPERATIVE not in assignor.protocols:
        return Settled(target, 1)
    current, wanted = group, target
    for rounds in range(1, _MAX_ROUNDS + 1):
        step = cooperative_step(current, wanted)
        if not step.follow_up:
            return Settled(step.assignment, rounds)
        current = next_round(current, step.assignment)
        wanted = target if assignor.plans_once else assignor.assign(current)
    return Settled(step.assignment, _MAX_ROUNDS)


def next_round(group: Group, assignment: Assignment) -> Group:
    """Return the group as it joins the next round: everybody holds, and truly claims, what it was handed.

    Parameters
    ----------
    group, assignment
        The group in this round, and int32 [P], what its leader handed out.
    """
    rows = np.flatnonzero(assignment >= 0)
    generation = int(group.claim_generation.max(initial=0)) + 1
    members = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    joined = Group.from_arrays(
        topics=group.topics,
        num_partitions=np.diff(group.topic_start),
        member_ids=group.member_ids,
        instance_ids=group.instance_ids,
        subscriptions=(members, group.subscription_topic),
        claims=(rows, assignment[rows], np.full(len(rows), generation)),
        lags=group.lag,
    )
    return replace(
        joined,
        member_rack=group.member_rack,
        row_racks=group.row_racks,
        rack_names=group.rack_names,
        _cache={},
    )
