"""Schedules: whether Airflow takes a cron expression, and when it was last due.

Both answers come from croniter, the parser that Airflow uses. An expression has five fields or is one of
Airflow's presets, and is evaluated in UTC. croniter takes more than that: a sixth field for seconds, and
``R`` for a random value, which would be another one in each process. Those are errors here.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_PRESETS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
_NUM_FIELDS: Final = 5
_RANDOM: Final = re.compile(r"(?:^|,)[rh](?:\(|/|,|$)", re.IGNORECASE)


def check_expression(expression: str) -> None:
    """Check that Airflow takes a cron expression."""
    from croniter import CroniterError, croniter

    text = expression.strip()
    if text.startswith("@"):
        if text not in _PRESETS:
            raise ValueError(f"the presets are {', '.join(_PRESETS)}")
        return
    fields = text.split()
    if len(fields) != _NUM_FIELDS:
        raise ValueError(f"it has {len(fields)} of {_NUM_FIELDS} fields")
    if any(_RANDOM.search(field) for field in fields):
        raise ValueError("R and H are other values in each process")
    try:
        # An expression such as 30 February is well formed and never due.
        croniter(text, datetime(2026, 1, 1, tzinfo=UTC)).get_next(datetime)
    except CroniterError as error:
        raise ValueError(f"{error!s:.80}") from None


def last_due(expression: str, now: datetime, count: int) -> list[datetime]:
    """Return the last times at which a schedule was due, up to `now`, newest first.

    expression: A cron expression, evaluated in UTC.

    Examples
    --------
    >>> [f"{due:%a %H:%M}" for due in last_due("*/20 9 * * mon-fri", datetime(2026, 11, 21, tzinfo=UTC), 2)]
    ['Fri 09:40', 'Fri 09:20']
    """
    from croniter import croniter

    check_expression(expression)
    text = expression.strip()
    # The moment itself counts, and croniter looks before its start.
    times = croniter(_PRESETS.get(text, text), now.astimezone(UTC) + timedelta(microseconds=1))
    return [times.get_prev(datetime) for _ in range(count)]
