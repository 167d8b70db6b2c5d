"""Evaluates cron expressions outside Airflow: when a schedule was last due.

It supports five fields with ``*``, numbers, names, ranges, lists and steps, and the presets of one word, in
UTC. As in cron, if both day of month and day of week are restricted, a day is due when either matches.
Airflow supports more (``L``, ``#``, six fields): those are an error here, never a guess.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_PRESETS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_NUM_FIELDS: Final = len(_FIELDS)
# In the worst case, 29 February occurs once in eight years.
_LOOK_BACK_DAYS: Final = 8 * 366


def last_due(expression: str, now: datetime, count: int) -> list[datetime]:
    """Return the last times at which a schedule was due, up to `now`, newest first.

    Parameters
    ----------
    expression
        A cron expression, evaluated in UTC.
    now
        The current time, with a time zone.
    count
        Number of times to return.

    Returns
    -------
    list of datetime.datetime
        In UTC; fewer than `count` if the schedule was due less often in eight years.

    Raises
    ------
    ValueError
        If the expression is not supported; the message names the field.

    Examples
    --------
    >>> [f"{due:%a %H:%M}" for due in last_due("*/20 9 * * mon-fri", datetime(2026, 11, 21, tzinfo=UTC), 2)]
    ['Fri 09:40', 'Fri 09:20']
    """
    found = []
    for due in _due(expression, now.astimezone(UTC)):
        found.append(due)
        if len(found) == count:
            break
    return found


def _due(expression: str, now: datetime) -> Iterator[datetime]:
    texts = _PRESETS.get(expression.strip().lower(), expression).split()
    if len(texts) != _NUM_FIELDS:
        raise ValueError(f"{expression!r} has {len(texts)} fields, a schedule has {_NUM_FIELDS}")
    minutes, hours, days, months, weekdays = (
        _values(text, *field) for text, field in zip(texts, _FIELDS, strict=True)
    )
    weekdays = {day % 7 for day in weekdays}
    either = texts[2] != "*" and texts[4] != "*"
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    for ago in range(_LOOK_BACK_DAYS):
        day = midnight - timedelta(days=ago)
        fits = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month not in months or not (any(fits) if either else all(fits)):
            continue
        for hour in sorted(hours, reverse=True):
            for minute in sorted(minutes, reverse=True):
                due = day.replace(hour=hour, minute=minute)
                if due <= now:
                    yield due


def _values(text: str, name: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            if span == "*":
                start, end = low, high
            else:
                start = _number(first, names)
                end = _number(last, names) if last else (high if step else start)
            width = int(step) if step else 1
        except ValueError:
            raise ValueError(f"{text!r} is no {name} that is understood here") from None
        if not (low <= start <= end <= high and width > 0):
            raise ValueError(f"{text!r} is no {name} from {low} to {high}")
        found.update(range(start, end + 1, width))
    return found


def _number(text: str, names: dict[str, int]) -> int:
    return names[text] if text in names else int(text)
