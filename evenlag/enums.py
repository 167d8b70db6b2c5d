"""Enumerations that policies, tables and messages share.

Standard library only: Spark executors have no pydantic.
"""

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
    """``auto.offset.reset`` of a group's clients; Kafka does not report it.

    ``by_duration:PnDTnHnMnS`` (KIP-1106) is no member: see :func:`reset_age_ms`.
    """

    EARLIEST = "earliest"
    LATEST = "latest"


class IsolationLevel(StrEnum):
    """``isolation.level`` of a group's clients; Kafka does not report it."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class OnChange(StrEnum):
    """How a group's partitions are placed when its members change: by load, or by count alone."""

    LOADS = "loads"
    COUNTS = "counts"


class Disclosure(StrEnum):
    """How a value that may identify a person is written: as it is, as a keyed hash, or not at all."""

    KEEP = "keep"
    HASH = "hash"
    DROP = "drop"


class OnFailure(StrEnum):
    """What a snapshot that fails a quality check leads to: a warning, or that no plan is made from it."""

    WARN = "warn"
    STOP = "stop"


class CycleStep(StrEnum):
    """Steps of a cycle, in their order, as ``runs`` and the log record them."""

    OBSERVE = "observe"
    DECIDE = "decide"
    PUBLISH = "publish"


class MaintenanceStep(StrEnum):
    """Steps of the lake's maintenance, in their order.

    Compaction follows all removals, so it rewrites neither what is removed nor what was never finished.
    """

    DOWNSAMPLE = "downsample"
    EXPIRE = "expire"
    ORPHANS = "orphans"
    COMPACT = "compact"
    VACUUM = "vacuum"
    CHECK = "check"


class ForecastModel(StrEnum):
    """How the records that arrive at a group's partitions are forecast."""

    LAST_RATE = "last_rate"
    SMOOTHED_RATE = "smoothed_rate"
    SAME_HOUR_YESTERDAY = "same_hour_yesterday"
    SAME_HOUR_LAST_WEEK = "same_hour_last_week"


class AdviceReason(StrEnum):
    """What binds the number of members that a group needs."""

    RATE = "rate"
    HOT_PARTITION = "hot_partition"
    PARTITIONS = "partitions"


class LagStatus(StrEnum):
    """Qualifies the lag of one partition in the ``lag`` table."""

    OK = "OK"
    NO_COMMIT = "NO_COMMIT"
    DATA_LOSS = "DATA_LOSS"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNKNOWN = "UNKNOWN"
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"
    NO_MEMBERS = "NO_MEMBERS"


class LagBound(StrEnum):
    """Which way a lag of the ``lag`` table is off, where it is not exact."""

    LOWER = "LOWER"
    UPPER = "UPPER"


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
    SHARE = "share"
    STREAMS = "streams"


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


class OutcomeReason(StrEnum):
    """Why a published plan has its outcome, as ``outcomes`` records it beside the sentence.

    Few and fixed, so that metrics can count them; a withdrawal is an event, and has no row there.
    """

    AS_HINTED = "AS_HINTED"
    NEWER_HINT = "NEWER_HINT"
    OTHER_ASSIGNOR = "OTHER_ASSIGNOR"
    NO_MEMBERS = "NO_MEMBERS"
    MEMBERS_CHANGED = "MEMBERS_CHANGED"
    NOT_FOLLOWED = "NOT_FOLLOWED"
    UNKNOWN = "UNKNOWN"

    @property
    def outcome(self) -> Outcome:
        """The outcome that the reason stands for."""
        if self is OutcomeReason.AS_HINTED:
            return Outcome.APPLIED
        return Outcome.IGNORED if self in _IGNORED_FOR else Outcome.EXPIRED


_IGNORED_FOR: Final = (OutcomeReason.NEWER_HINT, OutcomeReason.OTHER_ASSIGNOR, OutcomeReason.NO_MEMBERS)


class DecisionKind(StrEnum):
    """Result of planning one group, as ``decisions`` records it."""

    PROPOSED = "PROPOSED"
    BREACH = "BREACH"
    NO_CHANGE = "NO_CHANGE"
    NOT_PLANNED = "NOT_PLANNED"
    FAILED = "FAILED"


class Channel(StrEnum):
    """How a user answered about a plan, as ``plan_events`` records it."""

    PAGE = "page"
    API = "api"
    COMMAND = "command"


class CommandApprovals(StrEnum):
    """What ``evenlag plans approve`` and ``reject`` may do on a cluster."""

    ALLOW = "allow"
    AIRFLOW = "airflow"
    REFUSE = "refuse"


class RequestState(StrEnum):
    """State of an approval request, as ``approval_requests`` records it."""

    ASKED = "ASKED"
    SHADOWED = "SHADOWED"


class ControlAction(StrEnum):
    """Operator command on a cluster's hints, as ``control_actions`` records it."""

    WITHDRAW = "WITHDRAW"
    STOP_ALL = "STOP_ALL"
    RESUME = "RESUME"
    PURGE = "PURGE"


class AlertState(StrEnum):
    """State of an alert, as ``alerts`` records it."""

    RAISED = "RAISED"
    STANDING = "STANDING"
    CLEARED = "CLEARED"


class OwnershipState(StrEnum):
    """Whether a partition had an owner, as ``ownership`` records it."""

    OWNED = "OWNED"
    NOBODY = "NOBODY"
    UNKNOWN = "UNKNOWN"


_BY_DURATION: Final = "by_duration:"
# The form of java.time.Duration that Kafka's clients accept, without signs.
_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d{1,5})D)?(?:T(?=.)(?:(\d{1,6})H)?(?:(\d{1,8})M)?(?:(\d{1,9})(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def reset_age_ms(policy: str | None) -> int | None:
    """Return how far back consumers without a commit start (KIP-1106), in ms; None for another reset policy.

    Examples
    --------
    >>> reset_age_ms("by_duration:P1DT12H"), reset_age_ms("earliest")
    (129600000, None)
    """
    if policy is None or not policy.startswith(_BY_DURATION):
        return None
    found = _DURATION.fullmatch(policy.removeprefix(_BY_DURATION))
    if found is None:
        raise ValueError(f"{policy!r} has no duration: write by_duration:PnDTnHnMnS, as in by_duration:PT6H")
    days, hours, minutes, seconds = (int(number or 0) for number in found.groups()[:4])
    part_ms = int((found[5] or "0").ljust(9, "0")) // 1_000_000
    return 1_000 * (86_400 * days + 3_600 * hours + 60 * minutes + seconds) + part_ms


def check_reset_policy(policy: str) -> str:
    """Check a reset policy."""
    if reset_age_ms(policy) is not None:
        return policy
    if policy in set(ResetPolicy):
        return ResetPolicy(policy)
    raise ValueError(f"{policy!r} is not earliest, latest or by_duration:PnDTnHnMnS")
