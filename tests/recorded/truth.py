"""What really was, by the consumers' own journals: who held which partition, and when, by wall clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.recorded.period import journal, journal_file
from tests.support.journal_owners import Owned, owners

# What the recording's consumers had.
SESSION = timedelta(seconds=30)


def holders(group_id: str) -> dict[tuple[str, int], list[Owned]]:
    """Return who held each partition of a group, oldest first."""
    return owners(journal_file(group_id), SESSION)


def done(group_id: str, what: str) -> list[datetime]:
    """Return when something of the script was done."""
    return [
        datetime.fromtimestamp(event["wall_ms"] / 1000, tz=UTC)
        for event in journal(group_id)
        if event["event"] == "done" and event["what"] == what
    ]
