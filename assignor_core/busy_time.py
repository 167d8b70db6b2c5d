"""The text of commit metadata in which a member reports how long it has processed records."""

import re
from typing import Any, Final, NamedTuple

# Both numbers have at most 13 digits: until the year 2286 in milliseconds.
_TEXT: Final = re.compile(r"evenlag:busy_ms=([0-9]{1,13}) since_ms=([0-9]{1,13})")


class BusyTime(NamedTuple):
    """How long a member has processed records, rather than waited for some, since it began to count.

    Attributes
    ----------
    busy_ms
        The time in milliseconds.
    since_ms
        When the member began to count, in milliseconds since 1970. It tells counters apart.

    Examples
    --------
    >>> read_busy_time(BusyTime(1_500, 1_764_000_000_000).text)
    BusyTime(busy_ms=1500, since_ms=1764000000000)
    """

    busy_ms: int
    since_ms: int

    @property
    def text(self) -> str:
        """The commit's metadata: at most 56 bytes."""
        return f"evenlag:busy_ms={self.busy_ms} since_ms={self.since_ms}"


def read_busy_time(metadata: Any) -> BusyTime | None:
    """Return what the metadata of a commit report; None for an application's own metadata.

    Parameters
    ----------
    metadata
        The text of the commit, or whatever is in its place.

    Returns
    -------
    BusyTime or None
        The report; None if the text is anything else.

    Examples
    --------
    >>> read_busy_time("evenlag:busy_ms=1"), read_busy_time(None)
    (None, None)
    """
    found = _TEXT.fullmatch(metadata) if isinstance(metadata, str) else None
    return None if found is None else BusyTime(int(found[1]), int(found[2]))
