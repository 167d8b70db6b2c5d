"""What happened to a hint, as codes that are stable over releases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a hint was followed or not, or what became of it.

    The first group is about a record of the hint topic, the second about following a hint at a rebalance,
    the third about the watcher and this member.
    """

    RECEIVED = "RECEIVED"
    WITHDRAWN = "WITHDRAWN"
    STOPPED = "STOPPED"
    RESUMED = "RESUMED"
    MALFORMED = "MALFORMED"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    FOREIGN = "FOREIGN"
    REPLAYED = "REPLAYED"
    UNUSABLE = "UNUSABLE"

    FOLLOWED = "FOLLOWED"
    NO_HINT = "NO_HINT"
    COLD = "COLD"
    EXPIRED = "EXPIRED"
    FINGERPRINT = "FINGERPRINT"
    NO_TOPIC_IDS = "NO_TOPIC_IDS"
    MISMATCH = "MISMATCH"
    MAX_MOVES = "MAX_MOVES"
    COUNT_SLACK = "COUNT_SLACK"
    INVALID = "INVALID"
    INTERNAL_ERROR = "INTERNAL_ERROR"

    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    ASKED = "ASKED"
    COMMIT_REFUSED = "COMMIT_REFUSED"


IGNORED = frozenset(
    {
        Reason.MALFORMED, Reason.BAD_SIGNATURE, Reason.FOREIGN, Reason.REPLAYED, Reason.UNUSABLE,
        Reason.EXPIRED, Reason.FINGERPRINT, Reason.NO_TOPIC_IDS, Reason.MISMATCH, Reason.MAX_MOVES,
        Reason.COUNT_SLACK, Reason.INVALID,
    }
)  # fmt: skip
"""Why a hint that was there was not followed."""


@dataclass(frozen=True, slots=True)
class HintEvent:
    """One thing that happened.

    Attributes
    ----------
    reason
        What.
    plan_id
        Of which plan, None when it is about none.
    detail
        In words and numbers, for a log; never a secret.
    """

    reason: Reason
    plan_id: str | None = None
    detail: str = ""
