"""Hint events, with reason codes that are stable over releases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a hint was followed or ignored, or what happened to it.

    The first group concerns a record of the hint topic, the second following a hint at a rebalance, the third
    the watcher and this member.
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
    """One hint event.

    Attributes
    ----------
    reason
        The reason code.
    plan_id
        The plan; None if the event concerns no plan.
    detail
        Details for a log; never a secret.
    """

    reason: Reason
    plan_id: str | None = None
    detail: str = ""
