"""A group's history in a few lines, and the audit's tables of it, computed snapshot by snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import AUDITED_SNAPSHOTS, MEMBERSHIPS, OWNERSHIP
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    import pyarrow as pa

    from evenlag.audit.period import AuditedPeriod
    from evenlag.lake.tables import Table

START = datetime(2026, 11, 21, 23, 30, tzinfo=UTC)
STEP = timedelta(minutes=5)
GROUP = "g"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
_EDGES = ("first", "last", "previous", "next")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one snapshot shows of the group ``g``, which subscribes to the topic ``t``.

    held: Member → partitions; a member ``a1@pod`` is static, ``a1`` and ``a2`` are of the same client.
        Empty: the group has no members. None: it rebalances and shows nothing.
    is_listed: False: the snapshot does not list the group.
    """

    held: Mapping[str, Sequence[int]] | None
    partitions: int = 4
    assignor: str = "evenlag"
    topic_id: str = TOPIC_ID
    is_listed: bool = True

    @property
    def state(self) -> str:
        """State of the group."""
        if self.held is None:
            return "PreparingRebalance"
        return "Stable" if self.held else "Empty"


def at(number: int) -> datetime:
    """When a snapshot was started."""
    return START + number * STEP


def snapshot_id(number: int) -> str:
    """Id of a snapshot."""
    return f"{at(number):%Y%m%dT%H%M%S}000Z-{number:08x}"


def member(name: str) -> dict[str, Any]:
    """A member by its name."""
    member_id, _, instance = name.partition("@")
    client = member_id.rstrip("0123456789")
    return {
        "member_id": member_id,
        "group_instance_id": instance or None,
        "client_id": client,
        "client_host": f"/{client}",
    }


def day_of(number: int) -> date:
    """The UTC day of a snapshot."""
    return at(number).date()


def audit_tables(history: Sequence[Seen], *, day: Callable[[int], date] = day_of) -> dict[Table, pa.Table]:
    """The audit's tables of a history, with separate intervals for each day."""
    import pyarrow as pa

    memberships = _stretches([_membership(seen) for seen in history], day)
    cells = [_cells(history, number, day) for number in range(len(history))]
    keys = sorted({key for found in cells for key in found}, key=str)
    ownership = [row for key in keys for row in _stretches([found.get(key) for found in cells], day)]
    head = {"cluster": "c", "group_id": GROUP}
    audited = [
        {
            "cluster": "c",
            "day": day(number),
            "snapshot_id": snapshot_id(number),
            "slot": at(number),
            "started_at": at(number),
            "finished_at": at(number),
            "input_hash": f"basis of {day(number)}",
        }
        for number in range(len(history))
    ]
    rows = {
        MEMBERSHIPS: [head | row for row in memberships],
        OWNERSHIP: [head | row for row in ownership],
        AUDITED_SNAPSHOTS: audited,
    }
    return {table: pa.Table.from_pylist(found, schema=arrow_schema(table)) for table, found in rows.items()}


def write_audit(lake: Path, history: Sequence[Seen]) -> None:
    """Write a history's tables into a lake."""
    for table, rows in audit_tables(history).items():
        write_rows(lake, table, rows)


def _membership(seen: Seen) -> dict[str, Any] | None:
    if not seen.is_listed:
        return None
    is_known = seen.held is not None
    members = [
        member(name)
        | {"subscription": ["t"], "assignment": [{"topic": "t", "partitions": list(held)}] if held else []}
        for name, held in sorted((seen.held or {}).items())
    ]
    return {
        "group_state": seen.state,
        "group_type": "classic",
        "assignor": seen.assignor if seen.held else None,
        "is_known": is_known,
        "num_members": len(members),
        "members": members,
        "topics": [{"topic": "t", "topic_id": seen.topic_id, "num_partitions": seen.partitions}]
        if seen.held
        else [],
    }


def _cells(
    history: Sequence[Seen], number: int, day: Callable[[int], date]
) -> dict[tuple[Any, ...], dict[str, Any]]:
    seen = history[number]
    if not seen.is_listed:
        return {}
    if not seen.held:
        same_day = [n for n in range(len(history)) if day(n) == day(number) and history[n].held]
        near = [*[n for n in same_day if n < number][-1:], *[n for n in same_day if n > number][:1]]
        keys = {(history[n].topic_id, partition) for n in near for partition in range(history[n].partitions)}
        content: dict[str, Any] = {
            "state": "UNKNOWN" if seen.held is None else "NOBODY",
            "reason": f"the group is {seen.state}",
        }
        return {(*key, None): _cell(key, content) for key in keys}
    found = {}
    for partition in range(seen.partitions):
        key = (seen.topic_id, partition)
        names = [name for name, held in seen.held.items() if partition in held]
        if not names:
            free: dict[str, Any] = {"state": "NOBODY", "reason": "no member holds it"}
            found[*key, None] = _cell(key, free)
        for name in names:
            who = member(name)
            instance = who["group_instance_id"]
            owner_key = f"i:{instance}" if instance else f"m:{who['member_id']}"
            content = {"state": "OWNED", "owner_key": owner_key, "num_owners": len(names)} | who
            found[*key, who["member_id"]] = _cell(key, content)
    return found


def _cell(key: tuple[str, int], content: dict[str, Any]) -> dict[str, Any]:
    return {"topic_id": key[0], "topic": "t", "partition": key[1], "num_owners": 0} | content


def _stretches(
    shown: Sequence[dict[str, Any] | None], day: Callable[[int], date]
) -> Iterable[dict[str, Any]]:
    first = 0
    for number in range(1, len(shown) + 1):
        is_edge = number == len(shown) or day(number) != day(first) or shown[number] != shown[first]
        if not is_edge:
            continue
        content = shown[first]
        if content is not None:
            yield content | _of_stretch(first, number - 1, len(shown), day)
        first = number


def _of_stretch(first: int, last: int, count: int, day: Callable[[int], date]) -> dict[str, Any]:
    places = dict(zip(_EDGES, (first, last, first - 1, last + 1), strict=True))
    row: dict[str, Any] = {
        "day": day(first),
        "input_hash": f"basis of {day(first)}",
        "num_snapshots": last - first + 1,
        "longest_gap_ms": STEP // timedelta(milliseconds=1) if last > first else 0,
    }
    for edge, place in places.items():
        is_there = 0 <= place < count and day(place) == day(first)
        row[f"{edge}_snapshot_id"] = snapshot_id(place) if is_there else None
        row[f"{edge}_seen_at"] = at(place) if is_there else None
    return row


def period_of(history: Sequence[Seen], *, day: Callable[[int], date] = day_of) -> AuditedPeriod:
    """Return the whole history as a period, without a lake."""
    from evenlag.audit.interval_merge import join_days
    from evenlag.audit.period import MEMBERSHIP_KEY, OWNERSHIP_KEY, AuditedPeriod

    tables = audit_tables(history, day=day)
    snapshots = tables[AUDITED_SNAPSHOTS]
    return AuditedPeriod(
        cluster="c",
        group_id=GROUP,
        since=at(0),
        until=at(len(history) - 1),
        snapshots=snapshots,
        memberships=join_days(tables[MEMBERSHIPS], snapshots, MEMBERSHIP_KEY),
        ownership=join_days(tables[OWNERSHIP], snapshots, OWNERSHIP_KEY),
        num_unaudited=0,
        max_gap_ms=3 * STEP / timedelta(milliseconds=1),
    )
