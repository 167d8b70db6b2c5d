"""Values as text for tables and messages: numbers, shares, durations, moments, and partly known sums."""

import difflib
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from evenlag.enums import Channel, LagBound

# Text for an unknown value.
NOTHING: Final = "-"


def number(value: float | None, *, digits: int = 0) -> str:
    """Format a number with thousands separators; a dash if it is not known or not finite.

    Examples
    --------
    >>> number(24000), number(2.416, digits=2), number(None)
    ('24,000', '2.42', '-')
    """
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def speed_text(records_per_s: float | None, is_bound: bool | None) -> str:
    """Format a member's speed, or a lower bound of it.

    Examples
    --------
    >>> speed_text(1234.56, False), speed_text(40.0, True), speed_text(None, None)
    ('1,234.6', '≥ 40.0', '-')
    """
    return ("≥ " if is_bound else "") + number(records_per_s, digits=1)


def percent(value: float | None) -> str:
    """Format a share, from 0 to 1, as a percentage; a dash if it is not known or not finite.

    Examples
    --------
    >>> percent(0.1234), percent(None)
    ('12.3 %', '-')
    """
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def duration(milliseconds: float | None) -> str:
    """Format a duration in its two largest units, rounded down; a dash if it is not known or not finite.

    Examples
    --------
    >>> duration(90_061_000), duration(59_999), duration(None)
    ('1 d 1 h', '59 s', '-')
    """
    if milliseconds is None or not math.isfinite(milliseconds):
        return NOTHING
    seconds = int(milliseconds // 1000)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for index, (name, size) in enumerate(units):
        if seconds >= size or name == "s":
            rest = seconds % size
            smaller = units[index + 1] if index + 1 < len(units) else None
            tail = f" {rest // smaller[1]} {smaller[0]}" if smaller and rest >= smaller[1] else ""
            return f"{seconds // size} {name}{tail}"
    raise AssertionError("the last unit fits everything")


def moment(value: datetime | None) -> str:
    """Format a moment in UTC, to the second, as ``2026-03-01 13:05:00Z``; a dash for None."""
    return NOTHING if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def answered_by(event: Mapping[str, Any]) -> str:
    """Format who answered about a plan, and over which channel.

    event: A row of ``plan_events``, or its columns ``actor, actor_name, channel, account``; all but the
        first may be missing, as in rows of earlier versions.

    Examples
    --------
    >>> answered_by({"actor": "7", "actor_name": "Ada", "channel": "page"})
    "7 (Ada), on Airflow's page"
    >>> answered_by({"actor": "account:ada", "channel": "command", "account": "ada@host"})
    'account:ada, by command on ada@host'
    >>> answered_by({"actor": "policy"})
    'policy'
    """
    actor, name, account = str(event["actor"]), event.get("actor_name"), event.get("account")
    shown = f"{actor} ({name})" if name else actor
    channel = event.get("channel")
    if channel is None:
        return shown
    where = f" on {account}" if account else ""
    channels = {
        Channel.PAGE: "on Airflow's page",
        Channel.API: "over Airflow's API",
        Channel.COMMAND: f"by command{where}",
    }
    return f"{shown}, {channels.get(channel, channel)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggest the most similar name, as the end of a message; empty if no name is similar.

    Examples
    --------
    >>> did_you_mean("ordrs", ["orders", "billing"])
    "; did you mean 'orders'?"
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def count_of(count: int, noun: str) -> str:
    """Format a number of things.

    Examples
    --------
    >>> count_of(1, "move"), count_of(1_200, "move")
    ('1 move', '1,200 moves')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def at_least(value: float | None, num_unknown: int | None) -> str:
    """Format the sum of the known parts for a column: ``≥`` marks a lower bound, a dash an unknown sum.

    Examples
    --------
    >>> at_least(4403, 10), at_least(4403, 0), at_least(None, 24)
    ('≥ 4,403', '4,403', '-')
    """
    return f"≥ {number(value)}" if num_unknown and value is not None else number(value)


def between(value: float | None, least: float | None, most: float | None) -> str:
    """Format a number for a column, with its bounds if they are known and differ.

    Examples
    --------
    >>> between(4403, 3900, 5100), between(4403, 4403.2, 4403.4), between(4403, None, None)
    ('4,403 (3,900 to 5,100)', '4,403', '4,403')
    """
    bounds = number(least), number(most)
    is_open = least is not None and most is not None and bounds[0] != bounds[1]
    return f"{number(value)} ({bounds[0]} to {bounds[1]})" if is_open else number(value)


def bounded(value: float | None, bound: str | None) -> str:
    """Return a lag as text, marked where it is a bound; a dash where none is known.

    Examples
    --------
    >>> bounded(4403, "LOWER"), bounded(4403, "UPPER"), bounded(4403, None), bounded(None, "LOWER")
    ('≥ 4,403', '≤ 4,403', '4,403', '-')
    """
    marks = {LagBound.LOWER.value: "≥ ", LagBound.UPPER.value: "≤ "}
    return number(value) if value is None or bound is None else f"{marks[bound]}{number(value)}"


def bounded_duration(milliseconds: float | None, at_least_ms: float | None) -> str:
    """Return a duration as text, or else the lower bound of one.

    Examples
    --------
    >>> bounded_duration(8_000, None), bounded_duration(None, 8_000), bounded_duration(None, None)
    ('8 s', '≥ 8 s', '-')
    """
    return duration(milliseconds) if at_least_ms is None else f"≥ {duration(at_least_ms)}"


def at_least_of(value: float | None, num_unknown: int | None, num_partitions: int | None) -> str:
    """Format a sum over the known partitions in words, with the number of unknown partitions.

    Examples
    --------
    >>> at_least_of(4403, 10, 24), at_least_of(4403, 0, 24), at_least_of(None, 24, 24)
    ('at least 4,403 (10 of 24 unknown)', '4,403', '- (24 of 24 unknown)')
    """
    if not num_unknown:
        return number(value)
    bound = NOTHING if value is None else f"at least {number(value)}"
    return f"{bound} ({_unknown(num_unknown, num_partitions)})"


def exact_of(
    value: float | None, num_unknown: int | None, num_partitions: int | None, *, digits: int = 0
) -> str:
    """Format a metric that has no lower bound (a skew, a mean): a dash while any partition is unknown.

    Examples
    --------
    >>> exact_of(2.42, 10, 24, digits=2), exact_of(2.42, 0, 24, digits=2)
    ('- (10 of 24 unknown)', '2.42')
    """
    if not num_unknown:
        return number(value, digits=digits)
    return f"{NOTHING} ({_unknown(num_unknown, num_partitions)})"


def _unknown(num_unknown: int, num_partitions: int | None) -> str:
    of_all = "" if num_partitions is None else f" of {number(num_partitions)}"
    return f"{number(num_unknown)}{of_all} unknown"


def middle_cut(name: str, size: int) -> str:
    """Cut a name of more than `size` characters in the middle: both ends tell names apart.

    Examples
    --------
    >>> middle_cut("payments-eu-west-1-reconciliation", 20), middle_cut("orders", 20)
    ('payments-e…ciliation', 'orders')
    """
    if len(name) <= size:
        return name
    end = (size - 1) // 2
    return f"{name[: size - 1 - end]}…{name[len(name) - end :]}"
