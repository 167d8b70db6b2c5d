"""Slots and snapshot ids: the time that a snapshot represents, and the name of an attempt to take it."""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime


def floor_to_ms(slot: datetime) -> datetime:
    """Round a slot down to the millisecond, in UTC.

    Tables and snapshot ids store slots to the millisecond: round a slot before comparing it to them.

    Examples
    --------
    >>> floor_to_ms(datetime(2026, 3, 1, 12, 0, 0, 123_999, UTC)).microsecond
    123000
    """
    utc = slot.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def new_snapshot_id(slot: datetime) -> str:
    """Return a new id for an attempt to take a snapshot: the slot in UTC, to sort by, then 32 random bits."""
    return f"{slot.astimezone(UTC):%Y%m%dT%H%M%S}{slot.microsecond // 1000:03d}Z-{secrets.token_hex(4)}"


def slot_day(snapshot_id: str) -> date:
    """Return the UTC day under which the rows of a snapshot are stored.

    Examples
    --------
    >>> slot_day("20260301T120000000Z-0badcafe")
    datetime.date(2026, 3, 1)
    """
    return datetime.strptime(snapshot_id[:8], "%Y%m%d").replace(tzinfo=UTC).date()


def id_prefix(moment: datetime) -> str:
    """Return the prefix of the ids of a second; ids before that second sort below it."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S}"
