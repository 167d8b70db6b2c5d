"""A group's coordinator and its members, simulated: joins, syncs, generations, and what goes wrong with them.

States are plain values and rebalances are functions from one to the next, so a test can go through all
there are. What is simulated is who may commit what in which generation: the promise is that no partition
is committed by two owners in one generation.

A member of ours keeps four rules, which the promise rests on:

- after an eager round it gives up, and commits, all it holds before it joins the next; after a
  cooperative one it joins with what it holds and claims just that, with the generation it got it in;
- it commits only when it has synced; what a cooperative round takes from it is committed then;
- what an *eager* round takes from it, though it joined holding it, is lost, not committed: the leader may
  have been one that does not look at claims (a group on its way back to `range`);
- as a leader it withholds what others claim, whatever the protocol.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from assignor_core.assignors import COOPERATIVE, EAGER, get_assignor
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.protocol import cooperative_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOPIC = "t"


@dataclass(frozen=True, slots=True)
class SimMember:
    """A member between two rebalances.

    Attributes
    ----------
    name, assignors
        Its id, and the assignors it supports, the preferred first.
    held
        The partitions it works on (or, once it is out, thinks it works on).
    generation, protocol
        Those of the last round it synced; -1 and EAGER when it is new.
    looks_at_claims
        Whether it withholds as a leader. Kafka's own `range` and `roundrobin` do not.
    is_out
        Whether the coordinator has removed it for missing a round. Its commits are refused.
    claims_falsely
        Whether it goes on to claim what it held after it was removed, as some clients do.
    """

    name: str
    assignors: tuple[str, ...]
    held: frozenset[int] = frozenset()
    generation: int = -1
    protocol: str = EAGER
    looks_at_claims: bool = True
    is_out: bool = False
    claims_falsely: bool = False


@dataclass(frozen=True, slots=True)
class SimGroup:
    """A group with one topic of `num_partitions`, in its `generation`; the members sorted by name.

    ``wants_round`` says that the last leader withheld something and asks for the next round.
    """

    num_partitions: int
    members: tuple[SimMember, ...]
    generation: int = 0
    wants_round: bool = False


class Choice(NamedTuple):
    """What is left to chance in a rebalance.

    The selected assignor among equals, the leader, who does not join in time (and is removed), and who
    joins but does not sync before the next rebalance.
    """

    selected: str
    leader: str
    missing: frozenset[str] = frozenset()
    unsynced: frozenset[str] = frozenset()


class Outcome(NamedTuple):
    """The group after a rebalance, and who has committed, or may commit, what in the new generation."""

    group: SimGroup
    committers: tuple[frozenset[str], ...]


def leave(group: SimGroup, name: str) -> SimGroup:
    """Return the group after a member has left in good order: it has committed, and holds nothing."""
    return replace(group, members=tuple(member for member in group.members if member.name != name))


def join(group: SimGroup, member: SimMember) -> SimGroup:
    """Return the group with one more member, which the next rebalance takes in."""
    return replace(group, members=tuple(sorted([*group.members, member], key=lambda other: other.name)))


def choices(group: SimGroup, *, may_miss: bool = False, may_stall: bool = False) -> Iterator[Choice]:
    """Return every way the next rebalance can go, with at most one member that misses it or stalls in it."""
    names = [member.name for member in group.members]
    absences: list[tuple[frozenset[str], frozenset[str]]] = [(frozenset(), frozenset())]
    if may_miss and len(names) > 1:
        absences += [(frozenset({name}), frozenset()) for name in names]
    if may_stall:
        absences += [(frozenset(), frozenset({name})) for name in names]
    for missing, unsynced in absences:
        joining = [member for member in group.members if member.name not in missing]
        selections = possible_selections([member.assignors for member in joining])
        for selected, leader in product(selections, joining):
            # A leader that does not sync hands nothing out: that round is as if it had not been.
            if leader.name not in unsynced:
                yield Choice(selected, leader.name, missing, unsynced)


def rebalance(group: SimGroup, choice: Choice) -> Outcome:
    """Return what one rebalance makes of a group."""
    generation = group.generation + 1
    joining = [member for member in group.members if member.name not in choice.missing]
    joined = [_join(member) for member in joining]
    leader = next(member for member in joined if member.name == choice.leader)
    guarded = leader.looks_at_claims or protocol_of(choice.selected) == COOPERATIVE
    claims = tuple(_claims(before, member) for before, member in zip(joining, joined, strict=True))
    handed, withheld = _hand_out(group.num_partitions, claims, choice.selected, guarded)
    protocol = protocol_of(choice.selected)
    committers: list[set[str]] = [set() for _ in range(group.num_partitions)]
    after: list[SimMember] = []
    for member, given in zip(joined, handed, strict=True):
        if member.name in choice.unsynced:
            after.append(member)
            continue
        kept_or_got = given if protocol == EAGER else given | member.held
        for partition in kept_or_got:
            committers[partition].add(member.name)
        after.append(replace(member, held=given, generation=generation, protocol=protocol))
    out = [replace(member, is_out=True) for member in group.members if member.name in choice.missing]
    members = tuple(sorted([*after, *out], key=lambda member: member.name))
    wants_round = withheld or bool(out) or bool(choice.unsynced)
    state = SimGroup(group.num_partitions, members, generation, wants_round)
    return Outcome(state, tuple(map(frozenset, committers)))


def _join(member: SimMember) -> SimMember:
    """Return the member as it joins: with what it then really holds."""
    if member.is_out:
        # It learns that it was removed: what it held is lost.
        return replace(member, held=frozenset(), generation=-1, is_out=False)
    if member.protocol == EAGER:
        return replace(member, held=frozenset())
    return member


def _claims(before: SimMember, joined: SimMember) -> tuple[str, tuple[int, ...], int]:
    claiming = before if before.is_out and before.claims_falsely else joined
    return joined.name, tuple(sorted(claiming.held)), claiming.generation


@lru_cache(maxsize=100_000)
def _hand_out(
    num_partitions: int,
    claims: tuple[tuple[str, tuple[int, ...], int], ...],
    selected: str,
    guarded: bool,
) -> tuple[tuple[frozenset[int], ...], bool]:
    members = [
        Member(name, (_TOPIC,), owned=tuple((_TOPIC, p) for p in held), generation=generation)
        for name, held, generation in claims
    ]
    group = Group.from_members({_TOPIC: num_partitions}, members)
    target = get_assignor(selected).assign(group)
    withheld = False
    if guarded:
        step = cooperative_step(group, target)
        target, withheld = step.assignment, step.follow_up
    mapping = group.to_mapping(target)
    given = tuple(frozenset(p for _, p in mapping[name]) for name, _, _ in claims)
    return given, withheld


def common_assignors(preferences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the names that every member supports, sorted."""
    if not preferences:
        return ()
    return tuple(sorted(set(preferences[0]).intersection(*map(set, preferences[1:]))))


def possible_selections(preferences: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the assignors that the coordinator may select, sorted: more than one if votes are tied.

    Each member votes for the first of its list that all members support; the most votes win, and which of
    equals does is arbitrary. Empty if the members have none in common: then the coordinator refuses
    whoever joins last.

    Examples
    --------
    >>> possible_selections([["cooperative-sticky", "range"], ["range"]])
    ('range',)
    >>> possible_selections([["sticky", "range"], ["range", "sticky"]])
    ('range', 'sticky')
    """
    common = set(common_assignors(preferences))
    votes = Counter(next(name for name in names if name in common) for names in preferences if common)
    most = max(votes.values(), default=0)
    return tuple(sorted(name for name, count in votes.items() if count == most))


def protocol_of(assignor: str) -> str:
    """Return the protocol of a group that selected this assignor: COOPERATIVE if it can be used so.

    It follows the selected assignor, not the lists that members offer at start: an eager assignor in a list
    must not make a cooperative one eager.

    Raises
    ------
    UnknownAssignorError
        If there is no such assignor.
    """
    return COOPERATIVE if COOPERATIVE in get_assignor(assignor).protocols else EAGER
