"""Who held what when, from the audit's ownership, with the rebalances and hints between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.report.model import Mark, Stretch, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlag.report.read import Scope
    from evenlag.report.read_names import Names

MAX_PARTITIONS: Final = 40
_HINT_EVENTS: Final = {
    "PUBLISHED": "hint published",
    "APPLIED": "hint followed",
    "IGNORED": "hint not followed",
    "EXPIRED": "hint ran out",
    "WITHDRAWN": "hint withdrawn",
}
_NOT_OWNED: Final = {"NOBODY": "nobody held it", "UNKNOWN": "the group did not show it"}


def read_timeline(scope: Scope, events: Iterable[Mapping[str, Any]], names: Names) -> Timeline | None:
    """Read the stretches of the period; None when no reading of it has been audited."""
    from spark_jobs.tables import OWNERSHIP

    columns = [
        "topic", "partition", "state", "reason", "member_id", "first_seen_at", "last_seen_at",
        "previous_snapshot_id", "next_seen_at",
    ]  # fmt: skip
    rows = scope.reader.read(OWNERSHIP, columns=columns, filters=scope.filters())
    if rows.num_rows == 0:
        return None
    keys = ("topic", "partition", "first_seen_at")
    found = rows.sort_by([(key, "ascending") for key in keys]).to_pylist()
    stretches = [_stretch(row, names) for row in found]
    shown = _choose(stretches)
    kept = tuple(each for each in stretches if each.partition in shown)
    return Timeline(
        partitions=tuple(dict.fromkeys(each.partition for each in kept)),
        owners=tuple(
            dict.fromkeys(
                each.owner for each in sorted(kept, key=lambda each: each.start) if each.owner is not None
            )
        ),
        stretches=kept,
        marks=tuple(sorted([*_hints(events), *_rebalances(found, names)], key=lambda mark: mark.at)),
        num_left_out=len({each.partition for each in stretches}) - len(shown),
    )


def _stretch(row: Mapping[str, Any], names: Names) -> Stretch:
    is_owned = row["state"] == "OWNED"
    return Stretch(
        partition=f"{row['topic']}-{row['partition']}",
        owner=names.of(row["member_id"]) if is_owned else None,
        what="" if is_owned else row["reason"] or _NOT_OWNED.get(row["state"], row["state"]),
        start=row["first_seen_at"],
        end=row["next_seen_at"] or row["last_seen_at"],
    )


def _choose(stretches: Sequence[Stretch]) -> set[str]:
    """The partitions to show: all, or those that changed hands most often."""
    counts: dict[str, int] = {}
    for each in stretches:
        counts[each.partition] = counts.get(each.partition, 0) + 1
    return set(sorted(counts, key=lambda name: (-counts[name], name))[:MAX_PARTITIONS])


def _rebalances(rows: Iterable[Mapping[str, Any]], names: Names) -> Iterable[Mark]:
    """A mark at each reading that showed partitions with another owner than the reading before."""
    taken: dict[Any, dict[str, int]] = {}
    for row in rows:
        if row["previous_snapshot_id"] is not None and row["state"] == "OWNED":
            counts = taken.setdefault(row["first_seen_at"], {})
            name = names.of(row["member_id"])
            counts[name] = counts.get(name, 0) + 1
    for at, counts in taken.items():
        total = sum(counts.values())
        whom = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        yield Mark(at, "rebalance", f"{total} partition{'s' if total != 1 else ''} newly held: {whom}")


def _hints(events: Iterable[Mapping[str, Any]]) -> Iterable[Mark]:
    for event in events:
        if (what := _HINT_EVENTS.get(event["event"])) and event["at"] is not None:
            because = f": {event['reason']}" if event["reason"] else ""
            yield Mark(event["at"], "hint", f"{what}, plan {event['plan_id'][:12]}{because}")
