"""Enumerations that policies, tables and messages share, and the patterns that name groups.

Standard library only: Spark executors have no pydantic.
"""

from __future__ import annotations

import fnmatch
import re
from enum import StrEnum
from typing import Final

DEFAULT_ASSIGNOR: Final = "lag-aware-sticky"
# The name on the wire of the assignor that follows hints, in clients and on brokers.
EVENLAG_ASSIGNOR: Final = "evenlag"


class Mode(StrEnum):
    """What evenlag may do for a group, from least to most."""

    OBSERVE = "observe"
    SHADOW = "shadow"
    APPROVE = "approve"
    AUTO = "auto"

    @property
    def rank(self) -> int:
        """Position of the mode, from 0 for observe to 3 for auto."""
        return list(Mode).index(self)


class ResetPolicy(StrEnum):
    """``auto.offset.reset`` of a group's clients; Kafka does not report it."""

    EARLIEST = "earliest"
    LATEST = "latest"


class IsolationLevel(StrEnum):
    """``isolation.level`` of a group's clients; Kafka does not report it."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Disclosure(StrEnum):
    """How a value that may identify a person is written: as it is, as a keyed hash, or not at all."""

    KEEP = "keep"
    HASH = "hash"
    DROP = "drop"


class CycleStep(StrEnum):
    """Steps of a cycle, in their order, as ``runs`` and the log record them."""

    OBSERVE = "observe"
    DECIDE = "decide"
    PUBLISH = "publish"


class MaintenanceStep(StrEnum):
    """Steps of the lake's maintenance, in their order.

    Compaction follows both removals, so it rewrites neither what is removed nor what was never finished.
    """

    DOWNSAMPLE = "downsample"
    ORPHANS = "orphans"
    COMPACT = "compact"
    VACUUM = "vacuum"
    CHECK = "check"


class LagStatus(StrEnum):
    """Qualifies the lag of one partition in the ``lag`` table."""

    OK = "OK"
    NO_COMMIT = "NO_COMMIT"
    DATA_LOSS = "DATA_LOSS"
    NEGATIVE = "NEGATIVE"
    UNKNOWN = "UNKNOWN"
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"
    NO_MEMBERS = "NO_MEMBERS"


class GroupState(StrEnum):
    """State of a consumer group, as the broker's group coordinator names it.

    The classic protocol has ``PreparingRebalance`` and ``CompletingRebalance``, the consumer protocol
    (KIP-848) ``Assigning`` and ``Reconciling``. A group that does not exist is ``Dead``.
    """

    EMPTY = "Empty"
    STABLE = "Stable"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    DEAD = "Dead"


MEMBERLESS_STATES: Final = (GroupState.EMPTY, GroupState.DEAD)
# Members of a classic group report no assignment while it rebalances.
REBALANCING_STATES: Final = (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE)


class GroupType(StrEnum):
    """Type of a group, as ListGroups reports it. The same names say which protocol a member speaks."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


# Types of groups that hints reach.
HINTABLE_TYPES: Final = (GroupType.CLASSIC, GroupType.CONSUMER)


class PlanEvent(StrEnum):
    """Events in the life of a plan, as ``plan_events`` records them."""

    PROPOSED = "PROPOSED"
    REJECTED = "REJECTED"
    APPROVED = "APPROVED"
    PUBLISHED = "PUBLISHED"
    APPLIED = "APPLIED"
    IGNORED = "IGNORED"
    EXPIRED = "EXPIRED"
    WITHDRAWN = "WITHDRAWN"


# Position of an event in a plan's life. Events cannot be ordered by time alone: all that is decided from one
# snapshot has its end time.
EVENT_RANK: Final = {
    PlanEvent.PROPOSED: 0,
    PlanEvent.REJECTED: 1,
    PlanEvent.APPROVED: 1,
    PlanEvent.PUBLISHED: 2,
    PlanEvent.APPLIED: 3,
    PlanEvent.IGNORED: 3,
    PlanEvent.EXPIRED: 3,
    PlanEvent.WITHDRAWN: 4,
}


class Outcome(StrEnum):
    """What became of a published plan, as ``outcomes`` and ``plan_evaluations`` record it."""

    APPLIED = "APPLIED"
    IGNORED = "IGNORED"
    EXPIRED = "EXPIRED"
    WITHDRAWN = "WITHDRAWN"


class DecisionKind(StrEnum):
    """Result of planning one group, as ``decisions`` records it."""

    PROPOSED = "PROPOSED"
    BREACH = "BREACH"
    NO_CHANGE = "NO_CHANGE"
    NOT_PLANNED = "NOT_PLANNED"
    FAILED = "FAILED"


class RequestState(StrEnum):
    """State of an approval request, as ``approval_requests`` records it."""

    ASKED = "ASKED"
    SHADOWED = "SHADOWED"


class ControlAction(StrEnum):
    """Operator command on a cluster's hints, as ``control_actions`` records it."""

    WITHDRAW = "WITHDRAW"
    STOP_ALL = "STOP_ALL"
    RESUME = "RESUME"


class AlertState(StrEnum):
    """State of an alert, as ``alerts`` records it."""

    RAISED = "RAISED"
    CLEARED = "CLEARED"


class OwnershipState(StrEnum):
    """Whether a partition had an owner, as ``ownership`` records it."""

    OWNED = "OWNED"
    NOBODY = "NOBODY"
    UNKNOWN = "UNKNOWN"


def matches_pattern(pattern: str, name: str) -> bool:
    """Check whether a name matches a pattern.

    Parameters
    ----------
    pattern
        An exact name, a glob (case-sensitive), or a regular expression between slashes.
    name
        Name to match as a whole.

    Returns
    -------
    bool
        Whether it matches.
    """
    if is_expression(pattern):
        return re.fullmatch(pattern[1:-1], name) is not None
    return fnmatch.fnmatchcase(name, pattern)


def check_pattern(pattern: str) -> str:
    """Check that a pattern is valid.

    Parameters
    ----------
    pattern
        See :func:`matches_pattern`.

    Returns
    -------
    str
        The pattern.

    Raises
    ------
    ValueError
        When it is an invalid regular expression.
    """
    if is_expression(pattern):
        try:
            re.compile(pattern[1:-1])
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern} is not a regular expression: {error}") from error
    return pattern


def is_expression(pattern: str) -> bool:
    """Whether a pattern is a regular expression between slashes."""
    return len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
