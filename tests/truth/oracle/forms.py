"""Formats of numbers, durations, shares and times: a second implementation of their description."""

from __future__ import annotations

import unicodedata
from datetime import UTC, date, datetime
from typing import Any, Final

UNKNOWN: Final = "-"
_FORMULA_SIGNS: Final = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")


def number(value: float | None, *, digits: int = 0) -> str:
    """Return a number with thousands separators; a dash if unknown."""
    return UNKNOWN if value is None else format(value, f",.{digits}f")


def percent(share: float | None) -> str:
    """Format a share as a percentage with one decimal."""
    return UNKNOWN if share is None else format(share * 100, ".1f") + " %"


def duration(milliseconds: float | None) -> str:
    """Format a duration in its two largest units; the smaller one only if it is not 0."""
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
    """Format a time in UTC to the second, as commands print it."""
    return UNKNOWN if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + "Z"


def page_moment(value: datetime) -> str:
    """Format a time in UTC to the second, as the page shows it."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def between(early: datetime | None, late: datetime | None) -> str:
    """Return a time between two others as text; the date appears once if it is the same."""
    if early is None or late is None:
        known, side = (late, "before") if early is None else (early, "later")
        return UNKNOWN if known is None else f"{moment(known)} or {side}"
    first, last = moment(early), moment(late)
    same_day = first.split(" ")[0] == last.split(" ")[0]
    return f"{first[:-1]}..{last.split(' ')[1] if same_day else last}"


def as_json(value: Any) -> Any:
    """Return a value as in JSON: times as ISO 8601 in UTC, days as ISO 8601."""
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
    """Escape what a terminal interprets or hides as in a Python literal, in a text or in lists of texts."""
    if isinstance(value, str):
        return "".join(map(_visible, value)).strip()
    return [as_printed(each) for each in value] if isinstance(value, list) else value


def as_on_page(value: Any) -> Any:
    """Escape as for a terminal, but leave white space, which a browser collapses."""
    if isinstance(value, str):
        return "".join(each if each in "\n\t" else _visible(each) for each in value)
    return [as_on_page(each) for each in value] if isinstance(value, list) else value


def as_csv_text(value: str) -> str:
    """Escape what is hidden, and what a spreadsheet with semicolons or without would take for a formula."""
    message = "".join(map(_visible, value))
    parts = message.split(";")
    return ";".join(f"'{part}" if part.lstrip(" '\"")[:1] in _FORMULA_SIGNS else part for part in parts)


def _visible(character: str) -> str:
    # Control and formatting characters, line and paragraph separators, and what is for private use.
    is_private = character >= "\U000f0000"
    if is_private or unicodedata.category(character) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}:
        return character.encode("unicode_escape").decode("ascii")
    return character
