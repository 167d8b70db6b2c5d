"""Names that the answers of the audit use: kinds of anomalies, causes of rebalances, verdicts, certainty."""

from enum import StrEnum


class AnomalyKind(StrEnum):
    """Kind of an anomaly, in the order in which anomalies are listed."""

    OWNED_BY_TWO = "OWNED_BY_TWO"
    OWNED_BY_NOBODY = "OWNED_BY_NOBODY"
    DEAD_MEMBER_LAG = "DEAD_MEMBER_LAG"
    UNSUBSCRIBED_LAG = "UNSUBSCRIBED_LAG"
    STALLED = "STALLED"
    ASSIGNOR_NOT_POLICY = "ASSIGNOR_NOT_POLICY"
    MEMBER_IDLE = "MEMBER_IDLE"


class RebalanceCause(StrEnum):
    """Why a group rebalanced. One rebalance may have several causes."""

    MEMBER_JOINED = "MEMBER_JOINED"
    MEMBER_LEFT = "MEMBER_LEFT"
    MEMBER_BOUNCED = "MEMBER_BOUNCED"
    SUBSCRIPTION_CHANGED = "SUBSCRIPTION_CHANGED"
    PARTITIONS_ADDED = "PARTITIONS_ADDED"
    TOPIC_RECREATED = "TOPIC_RECREATED"
    ASSIGNOR_CHANGED = "ASSIGNOR_CHANGED"
    HINT_APPLIED = "HINT_APPLIED"
    UNKNOWN = "UNKNOWN"


class OwnerChange(StrEnum):
    """How the owner of a partition differs between two moments.

    ``RETURNED`` is a move to the same client under a new member id. ``CHANGING``: the snapshots around one of
    the moments show different owners, and the change depends on which of them is right.
    """

    SAME = "SAME"
    MOVED = "MOVED"
    RETURNED = "RETURNED"
    PLACED = "PLACED"
    FREED = "FREED"
    ADDED = "ADDED"
    REMOVED = "REMOVED"
    UNKNOWN = "UNKNOWN"
    CHANGING = "CHANGING"


class Certainty(StrEnum):
    """How well the owner of a partition at a moment is known.

    ``SEEN``: all snapshots around the moment agree. ``CHANGING``: they do not. ``GAP``: they agree, but are
    too far apart. ``LAST_SEEN``: no later snapshot. ``FIRST_SEEN``: no earlier snapshot.
    """

    SEEN = "SEEN"
    CHANGING = "CHANGING"
    GAP = "GAP"
    LAST_SEEN = "LAST_SEEN"
    FIRST_SEEN = "FIRST_SEEN"


class HintVerdict(StrEnum):
    """Whether a group applied a hint while it was on the hint topic.

    ``FOLLOWED``: one snapshot shows all of it. ``PARTLY``: more of it than before it was published.
    ``NOT_SEEN``: no snapshot shows the group in that time.
    """

    FOLLOWED = "FOLLOWED"
    PARTLY = "PARTLY"
    NOT_FOLLOWED = "NOT_FOLLOWED"
    NOT_SEEN = "NOT_SEEN"
