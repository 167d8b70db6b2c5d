"""The rules of lag and of times behind as tables of cases: raw values, and what they mean.

Every expected value here is computed manually, with the calculation and its source in ``why``; no value comes
from running evenlag. The tables run through the formula directly, through Spark, and before publishing.

The lag is ``max(end - position, 0)``. The end is the high watermark, or the last stable offset for
``read_committed`` consumers (Kafka's ListOffsets with that isolation level). The position is the commit, or
where ``auto.offset.reset`` puts a consumer without a valid one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evenlag.enums import IsolationLevel, LagBound, LagStatus, ResetPolicy


class GroupCase(StrEnum):
    """Condition of the group that the partition is read for."""

    SUBSCRIBED = "a live member subscribes to the topic"
    NOT_SUBSCRIBED = "live members subscribe to other topics only"
    EMPTY = "the group is Empty: it has commits and no members"
    DEAD = "the group is Dead: it was deleted while it was read"
    REBALANCING = "a classic group rebalances: its members do not report their subscriptions"
    NOT_DESCRIBED = "the coordinator did not describe the group"
    COMMITS_UNREAD = "the coordinator did not return the group's commits"
    NO_MEMBERS_REPORTED = "a group of a newer type that does not report its members"
    STREAMS = "a streams group (KIP-1071): its members are not read"
    SHARE = "a share group (KIP-932) whose member subscribes to the topic"
    EXPRESSION = (
        "a consumer group (KIP-848) that subscribes by an unreadable expression, and owns the partition"
    )
    HALF_KNOWN = "one member subscribes to other topics, the subscription of the other one is not readable"
    TWO_OWNERS = "two members own the partition: a foreign leader gave it to both"
    OWNED_ONLY = "a member owns the partition, and no member subscribes to the topic any more"

    @property
    def unknown(self) -> set[str]:
        """The facts that are unknown: of ``commit``, ``subscription`` and ``owner``."""
        return set(_UNKNOWN.get(self.name, "").split())


_UNKNOWN: Final = {
    "REBALANCING": "subscription owner",
    "NOT_DESCRIBED": "subscription owner",
    "COMMITS_UNREAD": "commit",
    "NO_MEMBERS_REPORTED": "subscription owner",
    "STREAMS": "subscription owner",
    # The partition itself has an owner.
    "EXPRESSION": "subscription",
    "HALF_KNOWN": "subscription",
    "TWO_OWNERS": "owner",
}


@dataclass(frozen=True, slots=True)
class LagRule:
    """One partition of one group, and its lag.

    name: Unique; names the case in a failure.
    committed, start, high_watermark, last_stable: Offsets as Kafka reports them; None: no commit, or not
        read.
    status, lag: Expected ``status`` and ``lag_records`` of the table ``lag``.
    why: The calculation, and where the rule comes from.
    reset, isolation: The group's client settings by the policy; None: the policy does not say.
    reset_offset: Offset of the first record that is no older than the duration of ``reset``; None: not
        read.
    offset_error: Why the partition's offsets could not be read.
    epoch: Leader epoch that is stored with the commit.
    is_commit_later: Whether the commit was read after the end.
    reported: Lag that the broker reports for a share group.
    """

    name: str
    committed: int | None
    start: int | None
    high_watermark: int | None
    status: LagStatus
    lag: int | None
    why: str
    last_stable: int | None = None
    reset: str | None = None
    reset_offset: int | None = None
    isolation: IsolationLevel | None = None
    group: GroupCase = GroupCase.SUBSCRIBED
    offset_error: str | None = None
    epoch: int | None = None
    is_commit_later: bool = False
    reported: int | None = None
    bound: LagBound | None = None

    @property
    def stable_end(self) -> int | None:
        """Last stable offset: the high watermark unless the case has an open transaction."""
        return self.high_watermark if self.last_stable is None else self.last_stable

    @property
    def is_live(self) -> bool:
        """Whether a group in this condition can reach the check before publishing.

        It must be Stable with the plan's fingerprint, so all its partitions are subscribed; only its commits
        and offsets can be missing. Ends are read last.
        """
        return self.group in {GroupCase.SUBSCRIBED, GroupCase.COMMITS_UNREAD} and not self.is_commit_later


_EARLIEST, _LATEST = ResetPolicy.EARLIEST, ResetPolicy.LATEST
BY_DURATION: Final = "by_duration:PT6H"
"""A reset policy of KIP-1106."""
_COMMITTED, _UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
_S, _G = LagStatus, GroupCase

# fmt: off
LAG_RULES: Final = (
    # Commits within the log. Kafka's own tool (kafka-consumer-groups --describe) shows end - committed.
    LagRule("behind", 40, 10, 100, _S.OK, 60, "100 - 40; LAG of kafka-consumer-groups"),
    LagRule("caught up", 100, 10, 100, _S.OK, 0, "100 - 100: the commit is the next offset to read"),
    LagRule("at the log start", 10, 10, 100, _S.OK, 90, "100 - 10: 10 is the first offset that still exists"),
    LagRule("commit at zero", 0, 0, 5, _S.OK, 5, "5 - 0: offset 0 is a valid commit, not a missing one"),
    LagRule("empty log", 0, 0, 0, _S.OK, 0, "0 - 0: nothing was ever produced"),
    LagRule("emptied by retention", 100, 100, 100, _S.OK, 0, "100 - 100: start and end meet"),
    # A commit that is valid makes the reset policy irrelevant.
    LagRule("behind, earliest", 40, 10, 100, _S.OK, 60,
            "100 - 40: no reset with a valid commit", reset=_EARLIEST),
    LagRule("behind, latest", 40, 10, 100, _S.OK, 60,
            "100 - 40: no reset with a valid commit", reset=_LATEST),
    LagRule("no commit, start past the end, earliest", None, 100, 90, _S.NO_COMMIT, 0,
            "90 - 100 < 0: clamped; a new leader has less, after an unclean election", reset=_EARLIEST),
    # Transactions: consumers with read_committed stop at the last stable offset (KIP-98).
    LagRule("open transaction, read_committed", 50, 0, 100, _S.OK, 30,
            "80 - 50: LSO 80, the transaction is open", last_stable=80, isolation=_COMMITTED),
    LagRule("open transaction, read_uncommitted", 50, 0, 100, _S.OK, 50,
            "100 - 50: up to the high watermark", last_stable=80, isolation=_UNCOMMITTED),
    LagRule("open transaction, no level", 50, 0, 100, _S.OK, 50,
            "100 - 50: read_uncommitted is Kafka's default", last_stable=80),
    LagRule("waits for a transaction", 80, 0, 100, _S.OK, 0,
            "80 - 80: all that may be read was read", last_stable=80, isolation=_COMMITTED),
    LagRule("past the last stable offset", 90, 0, 100, _S.OK, 0,
            "80 - 90 < 0: a position up to the high watermark is in range; nothing may be read",
            last_stable=80, isolation=_COMMITTED),
    # A commit beyond the high watermark that was read before it: offsets were lost, or are another cluster's.
    LagRule("past the end", 120, 10, 100, _S.OUT_OF_RANGE, None, "unknown without a reset policy"),
    LagRule("past the end, earliest", 100, 0, 10, _S.OUT_OF_RANGE, 10,
            "10 - 0: OffsetOutOfRange, then reset; kafka-python and librdkafka read 10", reset=_EARLIEST),
    LagRule("past the end, latest", 120, 10, 100, _S.OUT_OF_RANGE, 0, "reset to the end", reset=_LATEST),
    LagRule("past the end, by duration", 120, 10, 100, _S.OUT_OF_RANGE, 30,
            "100 - 70", reset=BY_DURATION, reset_offset=70),
    LagRule("past the end, by duration, not read", 120, 10, 100, _S.OUT_OF_RANGE, None,
            "unknown where the offset could not be read", reset=BY_DURATION),
    LagRule("past the end, open transaction", 120, 10, 100, _S.OUT_OF_RANGE, 70,
            "80 - 10: from log start to LSO", last_stable=80, reset=_EARLIEST, isolation=_COMMITTED),
    LagRule("past the end, read later", 120, 10, 100, _S.OK, 0,
            "the end has grown since: the commit is ahead of the answer",
            is_commit_later=True, reset=_EARLIEST),
    # With the epoch of the commit, Java asks where it diverges (OffsetsForLeaderEpoch) and continues there:
    # at the end of that epoch, anywhere in the log. librdkafka does so too, kafka-python resets.
    LagRule("past the end, with an epoch", 120, 10, 100, _S.OUT_OF_RANGE, 0,
            "from 0, if the logs diverge at the end, to 90", epoch=3, reset=_EARLIEST, bound=LagBound.LOWER),
    LagRule("past the end, with an epoch, latest", 120, 10, 100, _S.OUT_OF_RANGE, 0,
            "the policy only decides if the broker does not know the epoch", epoch=0, reset=_LATEST,
            bound=LagBound.LOWER),
    LagRule("past the end, with an epoch, no policy", 120, 10, 100, _S.OUT_OF_RANGE, None,
            "unknown: no policy says what happens", epoch=3),
    LagRule("past the end, epoch of an old client", 100, 0, 10, _S.OUT_OF_RANGE, 10,
            "10 - 0: -1 is no epoch", epoch=-1, reset=_EARLIEST),
    LagRule("behind, with an epoch", 40, 10, 100, _S.OK, 60, "100 - 40: in range", epoch=3),
    LagRule("overtaken by retention, with an epoch", 5, 10, 100, _S.DATA_LOSS, 90,
            "100 - 10: the epoch ends at or after 5, so nothing diverged", epoch=3, reset=_EARLIEST),
    # An empty log has nothing to read, whatever the policy is.
    LagRule("retention emptied the log", 30, 100, 100, _S.DATA_LOSS, 0, "100 - 100"),
    LagRule("retention emptied the log, by duration", 30, 100, 100, _S.DATA_LOSS, 0, "100 - 100",
            reset=BY_DURATION),
    LagRule("empty, no commit", None, 100, 100, _S.NO_COMMIT, 0, "100 - 100: every policy starts there"),
    LagRule("empty, past the end, with an epoch", 120, 100, 100, _S.OUT_OF_RANGE, 0, "100 - 100", epoch=3,
            reset=_EARLIEST),
    LagRule("empty, commits unread", None, 100, 100, _S.OK, 0, "100 - 100: whatever the commit is",
            group=_G.COMMITS_UNREAD),
    LagRule("nothing stable yet", None, 20, 100, _S.NO_COMMIT, 0,
            "20 - 20: an open transaction begins at the log start", last_stable=20, isolation=_COMMITTED),
    # Retention deleted the records between commit and log start: the consumer is reset (OffsetOutOfRange).
    LagRule("overtaken by retention, earliest", 5, 10, 100, _S.DATA_LOSS, 90,
            "100 - 10: restarts at the log start", reset=_EARLIEST),
    LagRule("overtaken by retention, latest", 5, 10, 100, _S.DATA_LOSS, 0,
            "restarts at the end: skips everything", reset=_LATEST),
    LagRule("overtaken by retention", 5, 10, 100, _S.DATA_LOSS, None, "unknown without a reset policy"),
    LagRule("overtaken, log emptied", 5, 100, 100, _S.DATA_LOSS, 0,
            "100 - 100: nothing is left to read", reset=_EARLIEST),
    LagRule("overtaken, open transaction", 5, 10, 100, _S.DATA_LOSS, 70,
            "80 - 10: from log start to LSO", last_stable=80, reset=_EARLIEST, isolation=_COMMITTED),
    # No commit: as after a reset.
    LagRule("no commit, earliest", None, 10, 100, _S.NO_COMMIT, 90,
            "100 - 10: starts at the log start", reset=_EARLIEST),
    LagRule("no commit, latest", None, 10, 100, _S.NO_COMMIT, 0, "starts at the end", reset=_LATEST),
    LagRule("no commit", None, 10, 100, _S.NO_COMMIT, None, "unknown without a reset policy"),
    LagRule("no commit, log starts at zero", None, 0, 100, _S.NO_COMMIT, 100, "100 - 0", reset=_EARLIEST),
    LagRule("no commit, no policy, log starts at zero", None, 0, 100, _S.NO_COMMIT, None,
            "unknown: a missing commit is not an offset below 0"),
    LagRule("no commit, open transaction", None, 10, 100, _S.NO_COMMIT, 70,
            "80 - 10: from log start to LSO", last_stable=80, reset=_EARLIEST, isolation=_COMMITTED),
    # KIP-1106: the consumer starts at the first record that is no older than the duration.
    LagRule("no commit, by duration", None, 10, 100, _S.NO_COMMIT, 30,
            "100 - 70: 70 is the first record of the last six hours", reset=BY_DURATION, reset_offset=70),
    LagRule("no commit, by duration, all older", None, 10, 100, _S.NO_COMMIT, 0,
            "100 - 100: no record is as young, so it starts at the end", reset=BY_DURATION, reset_offset=100),
    LagRule("no commit, by duration, all younger", None, 10, 100, _S.NO_COMMIT, 90,
            "100 - 10: the log starts later than that", reset=BY_DURATION, reset_offset=10),
    LagRule("no commit, by duration, deleted meanwhile", None, 40, 100, _S.NO_COMMIT, 60,
            "100 - 40: retention moved the log start past it", reset=BY_DURATION, reset_offset=30),
    LagRule("no commit, by duration, open transaction", None, 10, 100, _S.NO_COMMIT, 10,
            "80 - 70: up to the LSO", last_stable=80, reset=BY_DURATION, reset_offset=70,
            isolation=_COMMITTED),
    LagRule("no commit, by duration, past the LSO", None, 10, 100, _S.NO_COMMIT, 0,
            "80 - 90 < 0: clamped", last_stable=80, reset=BY_DURATION, reset_offset=90, isolation=_COMMITTED),
    LagRule("no commit, by duration, not read", None, 10, 100, _S.NO_COMMIT, None,
            "unknown where the offset could not be read", reset=BY_DURATION),
    LagRule("overtaken by retention, by duration", 5, 10, 100, _S.DATA_LOSS, 30,
            "100 - 70: the reset policy decides, as without a commit", reset=BY_DURATION, reset_offset=70),
    LagRule("behind, by duration", 40, 10, 100, _S.OK, 60,
            "100 - 40: no reset with a valid commit", reset=BY_DURATION, reset_offset=70),
    # What could not be read is unknown, never 0.
    LagRule("offsets unread", 40, None, None, _S.UNKNOWN, None,
            "the leader did not answer", offset_error="NotLeaderForPartitionError", reset=_EARLIEST),
    LagRule("end unread", 40, 10, None, _S.UNKNOWN, None,
            "the leader changed in between", offset_error="NotLeaderForPartitionError", reset=_LATEST),
    LagRule("start unread", None, None, 100, _S.UNKNOWN, None,
            "without the start no reset can be counted", offset_error="RequestTimedOutError", reset=_LATEST),
    LagRule("end missing", 40, 10, None, _S.UNKNOWN, None,
            "an answer without an end and without an error is no end of 0", reset=_EARLIEST),
    LagRule("commits unread", None, 10, 100, _S.UNKNOWN, None,
            "an unread commit is not a missing commit", group=_G.COMMITS_UNREAD, reset=_EARLIEST),
    # The group's condition.
    LagRule("rebalancing", 40, 10, 100, _S.OK, 60,
            "100 - 40: the commit is known, only the owners are not", group=_G.REBALANCING),
    LagRule("not described", 40, 10, 100, _S.OK, 60,
            "100 - 40: who is in the group does not matter", group=_G.NOT_DESCRIBED),
    LagRule("expression", 80, 10, 100, _S.OK, 20, "100 - 80", group=_G.EXPRESSION),
    LagRule("expression, no commit", None, 10, 100, _S.NO_COMMIT, 90,
            "100 - 10: it counts, because a member owns it", group=_G.EXPRESSION, reset=_EARLIEST),
    LagRule("half known", 40, 10, 100, _S.OK, 60, "100 - 40: the other may subscribe", group=_G.HALF_KNOWN),
    LagRule("two owners", 40, 10, 100, _S.OK, 60, "100 - 40", group=_G.TWO_OWNERS),
    LagRule("owned, not subscribed", 40, 10, 100, _S.OK, 60,
            "100 - 40: until it is revoked, its owner consumes it", group=_G.OWNED_ONLY),
    LagRule("streams group", 40, 10, 100, _S.OK, 60, "100 - 40: by its commits", group=_G.STREAMS),
    # Share groups: commits are share-partition start offsets.
    LagRule("share group, reported", 40, 10, 100, _S.OK, 25,
            "as the broker says: 35 of the 60 were acknowledged out of order", reported=25, group=_G.SHARE),
    LagRule("share group, nothing left", 40, 10, 100, _S.OK, 0, "as it says", reported=0, group=_G.SHARE),
    LagRule("share group, start offset", 40, 10, 100, _S.OK, 60,
            "at most 100 - 40: some of these may be acknowledged", group=_G.SHARE, bound=LagBound.UPPER),
    LagRule("share group, overtaken", 5, 10, 100, _S.OK, 90, "at most 100 - 10: the broker moves the start",
            group=_G.SHARE, bound=LagBound.UPPER),
    LagRule("share group, at the end", 100, 10, 100, _S.OK, 0, "100 - 100", group=_G.SHARE),
    LagRule("share group, never read", None, 10, 100, _S.NO_COMMIT, None,
            "unknown: share.auto.offset.reset is not the policy's", group=_G.SHARE, reset=_EARLIEST),
    LagRule("empty group", 40, 10, 100, _S.NO_MEMBERS, 60,
            "100 - 40: it grows until a consumer starts", group=_G.EMPTY),
    LagRule("dead group", 40, 10, 100, _S.NO_MEMBERS, 60, "100 - 40: its commits still exist", group=_G.DEAD),
    LagRule("empty group, overtaken", 5, 10, 100, _S.NO_MEMBERS, 90,
            "100 - 10; NO_MEMBERS before DATA_LOSS", group=_G.EMPTY, reset=_EARLIEST),
    LagRule("unsubscribed topic", 40, 10, 100, _S.NOT_SUBSCRIBED, 60,
            "100 - 40: a leftover commit that nobody advances", group=_G.NOT_SUBSCRIBED),
    LagRule("unsubscribed topic, unread", 40, None, None, _S.NOT_SUBSCRIBED, None,
            "it is beside the totals, so it is no unknown part of them", group=_G.NOT_SUBSCRIBED,
            offset_error="NotLeaderForPartitionError"),
    LagRule("members not reported", 40, 10, 100, _S.OK, 60,
            "100 - 40: its commits are all there is", group=_G.NO_MEMBERS_REPORTED),
)


@dataclass(frozen=True, slots=True)
class TimeRule:
    """One partition with lag, and for how long its group is behind. Offsets are those of the moment `now`.

    committed, start, end: Offsets; the reset policy is ``earliest``.
    points: Age in seconds and high watermark of earlier snapshots, oldest first.
    """

    name: str
    committed: int | None
    start: int
    end: int
    points: tuple[tuple[int, int], ...]
    time_ms: int | None
    at_least_ms: int | None
    why: str
    group: GroupCase = GroupCase.SUBSCRIBED
    epoch: int | None = None


TIME_RULES: Final = (
    TimeRule("between two points", 150, 0, 200, ((60, 100),), 30_000, None, "150 is halfway from 100 to 200"),
    TimeRule("at a point", 100, 0, 200, ((60, 50), (30, 100)), 30_000, None, "the log ended at 100 then"),
    TimeRule("read to the end", 200, 0, 200, ((60, 100),), 0, None, "no lag"),
    TimeRule("before all points", 40, 0, 200, ((60, 100), (30, 150)), None, 60_000,
             "record 40 existed 60 s ago; since when is not known"),
    TimeRule("without history", 150, 0, 200, (), None, None, "nothing says when 150 was written"),
    TimeRule("after retention", 10, 140, 200, ((90, 20), (60, 100), (30, 160)), 40_000, None,
             "it continues at 140, the oldest record: two thirds of the way from 60 s to 30 s"),
    TimeRule("after retention, before all points", 10, 90, 200, ((60, 100),), None, 60_000, "from 90 on"),
    TimeRule("without a commit", None, 140, 200, ((60, 100), (30, 160)), 40_000, None, "starts at 140"),
    TimeRule("out of range", 900, 150, 200, ((60, 100),), 30_000, None, "reset to 150"),
    TimeRule("out of range, with an epoch", 900, 150, 200, ((60, 100),), None, None,
             "where it continues is not known", epoch=3),
    TimeRule("truncated log", 60, 0, 80, ((60, 100), (30, 50)), 20_000, None,
             "the 100 of 60 s ago were lost; from 50 to 80 in 30 s, 60 came 20 s ago"),
    TimeRule("truncated below the position", 60, 0, 90, ((60, 100), (30, 50), (20, 80)), 26_667, None,
             "from 50 to 80 in 10 s: 60 came 3.3 s after the first of them"),
    TimeRule("topic that the group left", 150, 0, 200, ((60, 100),), None, None,
             "it is beside the totals", group=GroupCase.NOT_SUBSCRIBED),
    TimeRule("a point of the future", 150, 0, 200, ((-30, 150),), None, None,
             "the moment is after now: the clocks contradict each other"),
)
# fmt: on
