"""The rules of lag as a table of cases, which both implementations of the formula must pass.

``spark_jobs.transforms.lag`` counts lag in Spark, ``evenlag.planning.lag_formula`` that of few rows in
arrays. Every expected value here is computed manually, with the calculation and its source in ``why``; no
value comes from running either implementation.

The formula is ``max(end - committed, 0)``. The end is the high watermark, or the last stable offset for
``read_committed`` consumers (Kafka's ListOffsets with that isolation level). Without a valid commit the
consumer starts where ``auto.offset.reset`` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from evenlag.enums import IsolationLevel, LagStatus, ResetPolicy


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


@dataclass(frozen=True, slots=True)
class LagRule:
    """One partition of one group, and its lag.

    Attributes
    ----------
    name
        Unique; names the case in a failure.
    committed, start, high_watermark, last_stable
        Offsets as Kafka reports them; None: no commit, or not read.
    status, lag
        Expected ``status`` and ``lag_records`` of the table ``lag``.
    why
        The calculation, and where the rule comes from.
    reset, isolation
        The group's client settings by the policy; None: the policy does not say.
    group
        Condition of the group.
    reset_offset
        Offset of the first record that is no older than the duration of ``reset``; None: not read.
    offset_error
        Why the partition's offsets could not be read.
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

    @property
    def stable_end(self) -> int | None:
        """Last stable offset: the high watermark unless the case has an open transaction."""
        return self.high_watermark if self.last_stable is None else self.last_stable

    @property
    def is_live(self) -> bool:
        """Whether a group in this condition can reach the check before publishing.

        It must be Stable with the plan's fingerprint, so all its partitions are subscribed; only its commits
        and offsets can be missing.
        """
        return self.group in {GroupCase.SUBSCRIBED, GroupCase.COMMITS_UNREAD}


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
    LagRule("past the last stable offset", 90, 0, 100, _S.NEGATIVE, 0,
            "80 - 90 < 0: clamped, the commit is ahead", last_stable=80, isolation=_COMMITTED),
    # The commit was read before the end, so a commit past the end is real: offsets were lost or reset.
    LagRule("past the end", 120, 10, 100, _S.NEGATIVE, 0, "100 - 120 < 0: clamped; unclean leader election"),
    LagRule("past the end, earliest", 120, 10, 100, _S.NEGATIVE, 0,
            "clamped: the commit still counts as valid", reset=_EARLIEST),
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
    LagRule("rebalancing", 40, 10, 100, _S.UNKNOWN, None,
            "the subscriptions are not reported", group=_G.REBALANCING),
    LagRule("not described", 40, 10, 100, _S.UNKNOWN, None,
            "nobody knows who is in the group", group=_G.NOT_DESCRIBED),
    LagRule("empty group", 40, 10, 100, _S.NO_MEMBERS, 60,
            "100 - 40: it grows until a consumer starts", group=_G.EMPTY),
    LagRule("dead group", 40, 10, 100, _S.NO_MEMBERS, 60, "100 - 40: its commits still exist", group=_G.DEAD),
    LagRule("empty group, overtaken", 5, 10, 100, _S.NO_MEMBERS, 90,
            "100 - 10; NO_MEMBERS before DATA_LOSS", group=_G.EMPTY, reset=_EARLIEST),
    LagRule("unsubscribed topic", 40, 10, 100, _S.NOT_SUBSCRIBED, 60,
            "100 - 40: a leftover commit that nobody advances", group=_G.NOT_SUBSCRIBED),
    LagRule("members not reported", 40, 10, 100, _S.OK, 60,
            "100 - 40: its commits are all there is", group=_G.NO_MEMBERS_REPORTED),
)
# fmt: on
