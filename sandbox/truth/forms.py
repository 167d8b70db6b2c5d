"""How a person reads numbers, durations, shares and moments: written here once more, by their description."""

from __future__ import annotations

import unicodedata
from datetime import UTC, date, datetime
from typing import Any, Final

UNKNOWN: Final = "-"
_TURNING: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def number(value: float | None, *, digits: int = 0) -> str:
    """A number with separators of thousands; a dash for what is not known."""
    return UNKNOWN if value is None else format(value, f",.{digits}f")


def percent(share: float | None) -> str:
    """A share as per cent with one digit."""
    return UNKNOWN if share is None else format(share * 100, ".1f") + " %"


def duration(milliseconds: float | None) -> str:
    """A duration in its largest unit and the one below it; the second only when it is not 0."""
    if milliseconds is None:
        return UNKNOWN
    minutes, seconds = divmod(int(milliseconds // 1000), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    counts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
    while len(counts) > 1 and counts[0][0] == 0:
        counts.pop(0)
    shown = [counts[0], *(part for part in counts[1:2] if part[0])]
    return " ".join(f"{count} {unit}" for count, unit in shown)


def moment(value: datetime | None) -> str:
    """A moment in UTC to the second, as the command prints it."""
    return UNKNOWN if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + "Z"


def page_moment(value: datetime) -> str:
    """A moment in UTC to the second, as the page shows it."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def between(early: datetime | None, late: datetime | None) -> str:
    """A moment that lies between two others; the date once where it is the same."""
    if early is None or late is None:
        known, side = (late, "before") if early is None else (early, "later")
        return UNKNOWN if known is None else f"{moment(known)} or {side}"
    first, last = moment(early), moment(late)
    same_day = first.split(" ")[0] == last.split(" ")[0]
    return f"{first[:-1]}..{last.split(' ')[1] if same_day else last}"


def as_json(value: Any) -> Any:
    """A value as JSON has it: moments as ISO 8601 in UTC, days as ISO 8601."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(key): as_json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    return value


def as_printed(value: Any) -> Any:
    """A text, or texts in lists, with what a terminal would obey written as in a literal of Python."""
    if isinstance(value, str):
        return "".join(_visible(character) for character in value).strip()
    return [as_printed(each) for each in value] if isinstance(value, list) else value


def _visible(character: str) -> str:
    # Controls, ends of lines and paragraphs, and what turns the direction of text around.
    is_turning = unicodedata.bidirectional(character) in _TURNING or character in "\u200e\u200f"
    if is_turning or unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character
