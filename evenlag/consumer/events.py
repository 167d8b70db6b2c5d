"""Hint events, with reason codes that are stable over releases, and their log."""

import logging
from dataclasses import dataclass
from enum import StrEnum


class Reason(StrEnum):
    """Why a hint was followed or ignored, what happened to it, and how partitions were placed instead.

    The first group concerns a record of the hint topic, the second the leader's decision at a rebalance, the
    third the watcher and this member.
    """

    RECEIVED = "RECEIVED"
    WITHDRAWN = "WITHDRAWN"
    STOPPED = "STOPPED"
    RESUMED = "RESUMED"
    MALFORMED = "MALFORMED"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    FOREIGN = "FOREIGN"
    REPLAYED = "REPLAYED"
    NEWER_FORMAT = "NEWER_FORMAT"
    FUTURE = "FUTURE"
    UNUSABLE = "UNUSABLE"
    LOADS_RECEIVED = "LOADS_RECEIVED"
    LOADS_WITHDRAWN = "LOADS_WITHDRAWN"
    COMPRESSED = "COMPRESSED"

    FOLLOWED = "FOLLOWED"
    PLACED_BY_LOAD = "PLACED_BY_LOAD"
    LOADS_STALE = "LOADS_STALE"
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
    TOPIC_RECREATED = "TOPIC_RECREATED"
    ASKED = "ASKED"
    REFUSED = "REFUSED"
    COMMIT_REFUSED = "COMMIT_REFUSED"


IGNORED = frozenset(
    {
        Reason.MALFORMED, Reason.BAD_SIGNATURE, Reason.FOREIGN, Reason.REPLAYED, Reason.NEWER_FORMAT,
        Reason.FUTURE, Reason.UNUSABLE, Reason.EXPIRED, Reason.FINGERPRINT, Reason.NO_TOPIC_IDS,
        Reason.MISMATCH, Reason.MAX_MOVES, Reason.COUNT_SLACK, Reason.INVALID,
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


def named_logger(name: str) -> logging.Logger:
    """Return a logger whose messages have no control characters, whatever a hint contains.

    Anybody who may write to the hint topic chooses the names in it, and the application chooses the format of
    its log.

    Parameters
    ----------
    name
        The module's ``__name__``.

    Returns
    -------
    logging.Logger
        The logger of that name.
    """
    logger = logging.getLogger(name)
    logger.addFilter(_escape)
    return logger


def _escape(record: logging.LogRecord) -> bool:
    record.msg, record.args = _printable(record.getMessage()), None
    if record.exc_info and not record.exc_text:
        trace = logging.Formatter().formatException(record.exc_info)
        record.exc_text = "\n".join(f"    {_printable(line)}" for line in trace.split("\n"))
    return True


def _printable(text: str) -> str:
    # Not evenlag.safe_text: this package is installed without the rest of evenlag.
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
