"""How to write a sum of which some parts are not known: as a lower bound, with how many parts those are."""

from __future__ import annotations

from evenlag.cli.console import NOTHING, duration, number


def at_least(value: float | None, num_unknown: int | None) -> str:
    """Write a number for a column: ``≥`` marks a lower bound, a dash what is not known at all.

    Parameters
    ----------
    value
        The sum of what is known.
    num_unknown
        How many parts are not known; None: not recorded.

    Examples
    --------
    >>> at_least(4403, 10), at_least(4403, 0), at_least(None, 24)
    ('≥ 4,403', '4,403', '-')
    """
    return f"≥ {number(value)}" if num_unknown and value is not None else number(value)


def at_least_duration(milliseconds: float | None, num_unknown: int | None) -> str:
    """Write a duration likewise."""
    told = duration(milliseconds)
    return f"≥ {told}" if num_unknown and milliseconds is not None else told


def at_least_of(value: float | None, num_unknown: int | None, num_partitions: int | None) -> str:
    """Write a number in words, with how many partitions are not known.

    Examples
    --------
    >>> at_least_of(4403, 10, 24), at_least_of(4403, 0, 24), at_least_of(None, 24, 24)
    ('at least 4,403 (10 of 24 unknown)', '4,403', '- (24 of 24 unknown)')
    """
    if not num_unknown:
        return number(value)
    told = NOTHING if value is None else f"at least {number(value)}"
    return f"{told} ({_unknown(num_unknown, num_partitions)})"


def exact_of(
    value: float | None, num_unknown: int | None, num_partitions: int | None, *, digits: int = 0
) -> str:
    """Write what has no lower bound (a skew, a mean): a dash while any partition is not known.

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
