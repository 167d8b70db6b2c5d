"""Groups that an earlier snapshot has and no broker lists: gone, or their coordinator is moving.

ListGroups has no error for a group whose coordinator moves: a broker skips the partitions of
``__consumer_offsets`` that it has lost or not begun to load. A coordinator that has loaded a partition shows
what it knows to be replicated, and it learns that from its followers' next requests. Until then it does not
list a group whose records are newer, describes it as one that does not exist, and has no commits of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import GroupState, GroupType
from evenlag.kafka.committed_offsets import read_commits
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import GroupListing, describe_groups, list_groups
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE
from evenlag.kafka.topic_metadata import error_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from evenlag.kafka.broker_requests import BrokerCalls

# INVALID_GROUP_ID, GROUP_ID_NOT_FOUND: the coordinator answers, and does not have the group. A group that
# evenlag may not describe (GROUP_AUTHORIZATION_FAILED) may exist.
_NOT_THERE: Final = (24, 69)
_COMMITS_ONLY: Final = "its coordinator has commits of it, and neither lists nor describes it"


@dataclass(frozen=True, slots=True)
class UnlistedGroups:
    """What became of groups that no broker lists.

    found: Groups that exist, by id. One that could not be read has its error.
    silent: Brokers that did not list their groups when they were asked again, with the error.
    """

    found: dict[str, GroupListing] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)

    @property
    def unread(self) -> dict[str, int | str]:
        """Why groups could not be read, by group id."""
        return {group_id: row.error for group_id, row in self.found.items() if row.error is not None}


def find_unlisted(
    calls: BrokerCalls, known: Mapping[str, str], brokers: Collection[int], topics: Sequence[str]
) -> UnlistedGroups:
    """Ask for groups that no broker lists; those whose coordinator says that they are gone are left out.

    First their commits are read with ``require_stable``: the coordinator answers when it has loaded the group
    and knows that all that it loaded is replicated. What it describes and lists after that is complete.

    Returns the groups that exist, or may exist.
    """
    if not known:
        return UnlistedGroups()
    names = {
        group_id: GroupListing(None, group_type, CONSUMER_PROTOCOL_TYPE)
        for group_id, group_type in known.items()
    }
    coordinators = find_coordinators(calls, sorted(names))
    share = {group_id for group_id, group_type in known.items() if group_type == GroupType.SHARE}
    commits = read_commits(calls, coordinators, topics, share_groups=share, require_stable=True)
    described = {row["group_id"]: row for row in describe_groups(calls, names, coordinators, lambda: topics)}
    # Last: the type of a group may have changed.
    listed, silent = list_groups(calls, brokers)
    have_commits = {commits.groups[number] for number in set(commits.group.tolist())}
    found = dict(listed)
    for group_id, row in described.items():
        if group_id in listed:
            continue
        if _exists(row):
            found[group_id] = GroupListing(row["group_state"], row["group_type"], row["protocol_type"])
        elif (error := _failure(row["error"]) or _failure(commits.failed.get(group_id))) is not None:
            found[group_id] = GroupListing(None, row["group_type"], CONSUMER_PROTOCOL_TYPE, error=error)
        elif group_id in have_commits:
            found[group_id] = GroupListing(
                None, row["group_type"], CONSUMER_PROTOCOL_TYPE, error=_COMMITS_ONLY
            )
    return UnlistedGroups(found, silent)


def _exists(row: Mapping[str, Any]) -> bool:
    """Whether a description shows a group; older brokers describe one that is gone as dead, without error."""
    return row["error"] is None and row["group_state"] not in {None, GroupState.DEAD.value}


def _failure(error: str | None) -> str | None:
    """Return an error that leaves it open whether a group exists; None for an answer."""
    if error is None or error.partition(":")[0] in map(error_name, _NOT_THERE):
        return None
    return error
