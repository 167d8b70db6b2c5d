"""Formatting of sums with unknown parts: as a lower bound, with the number of unknown parts."""

from __future__ import annotations

from evenlag.cli.console import NOTHING, duration, number


def at_least(value: float | None, num_unknown: int | None) -> str:
    """Format a number for a table: ``≥`` marks a lower bound, a dash an unknown number.

    Parameters
    ----------
    value
        Sum of the known parts; None if there are none.
    num_unknown
        Number of unknown parts; None if it was not recorded.

    Returns
    -------
    str
        The cell.

    Examples
    --------
    >>> at_least(4403, 10), at_least(4403, 0), at_least(None, 24)
    ('≥ 4,403', '4,403', '-')
    """
    return f"≥ {number(value)}" if num_unknown and value is not None else number(value)


def at_least_duration(milliseconds: float | None, num_unknown: int | None) -> str:
    """Format a duration for a table: ``≥`` marks a lower bound, a dash an unknown duration.

    Parameters
    ----------
    milliseconds
        Maximum of the known parts; None if there are none.
    num_unknown
        Number of unknown parts; None if it was not recorded.

    Returns
    -------
    str
        The cell.
    """
    told = duration(milliseconds)
    return f"≥ {told}" if num_unknown and milliseconds is not None else told


def at_least_of(value: float | None, num_unknown: int | None, num_partitions: int | None) -> str:
    """Format a number for text, with the number of unknown partitions.

    Parameters
    ----------
    value
        Sum of the known partitions; None if there are none.
    num_unknown, num_partitions
        Number of unknown partitions, and of all partitions; None if it was not recorded.

    Returns
    -------
    str
        The text.

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
    """Format a number without a lower bound (a skew, a mean): a dash if any partition is unknown.

    Parameters
    ----------
    value
        The number; None if it is unknown.
    num_unknown, num_partitions
        Number of unknown partitions, and of all partitions; None if it was not recorded.
    digits
        Number of decimals.

    Returns
    -------
    str
        The text.

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
