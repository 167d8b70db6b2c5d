"""Anomalies: intervals of snapshots with a fault of a group, from ownership, lag and decisions."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignor_core.hint import member_key
from evenlag.audit.enums import AnomalyKind
from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX, same_key_as_next, sort_intervals
from evenlag.audit.period import AuditedPeriod
from evenlag.audit.rebalances import FREE_IN_A_LIVE_GROUP, PARTITION_KEY
from evenlag.enums import EVENLAG_ASSIGNOR, HINTABLE_TYPES, LagStatus, Mode, OwnershipState
from evenlag.lake.filters import Filter
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, LAG

_BOUNDS: Final = (
    "first_snapshot_id", "first_seen_at", "last_snapshot_id", "last_seen_at", "previous_seen_at",
    "next_seen_at",
)  # fmt: skip


def find_anomalies(reader: LakeReader, period: AuditedPeriod) -> list[dict[str, Any]]:
    """Find the anomalies of a period by kind, group, topic, partition and time, with their intervals.

    A column that does not apply to a kind is None.
    """
    lag = read_lag_intervals(reader, period)
    found = [
        *_nobody(period),
        *_two(period),
        *(
            _row(AnomalyKind.STALLED, row, "lag, records to read, and no commit moved")
            for row in lag["stalled"]
        ),
        *(_unheld(row) for row in last_holders(period, lag["unheld"])),
        *_assignors(reader, period),
        *_idle(period),
    ]
    inside = [
        row for row in found if row["last_seen_at"] >= period.since and row["first_seen_at"] <= period.until
    ]
    return sorted(
        inside,
        key=lambda row: (
            list(AnomalyKind).index(row["kind"]),
            row["group_id"],
            row["topic"] or "",
            -1 if row["partition"] is None else row["partition"],
            row["member_id"] or "",
            row["first_seen_at"],
        ),
    )


def _row(kind: AnomalyKind, interval: Mapping[str, Any], detail: str, **more: Any) -> dict[str, Any]:
    about = ("topic", "topic_id", "partition", "member_id")
    return {
        "kind": kind,
        "group_id": interval["group_id"],
        **{name: interval.get(name) for name in about},
        "detail": detail,
        "lag_records": interval.get("lag_records"),
        "num_snapshots": interval["num_snapshots"],
        **{name: interval[name] for name in _BOUNDS},
        **more,
    }


def _unheld(row: Mapping[str, Any]) -> dict[str, Any]:
    if row["is_alive"]:
        detail = f"its last holder {row['member_id']} is alive, and subscribes to the topic no longer"
        return _row(AnomalyKind.UNSUBSCRIBED_LAG, row, detail)
    return _row(AnomalyKind.DEAD_MEMBER_LAG, row, f"its last holder {row['member_id']} is gone")


def _nobody(period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    ownership = period.ownership
    free = pc.and_(
        pc.equal(ownership["state"], OwnershipState.NOBODY),
        pc.equal(ownership["reason"], FREE_IN_A_LIVE_GROUP),
    )
    for row in ownership.filter(free).to_pylist():
        yield _row(AnomalyKind.OWNED_BY_NOBODY, row, "members take the topic, and none holds the partition")


def _two(period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    together: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in period.ownership.filter(pc.greater(period.ownership["num_owners"], 1)).to_pylist():
        key = (row["group_id"], row["topic"], row["topic_id"], row["partition"])
        together[*key, row[FIRST_INDEX], row[LAST_INDEX]].append(row)
    for rows in together.values():
        names = ", ".join(sorted(row["member_id"] for row in rows))
        yield _row(AnomalyKind.OWNED_BY_TWO, rows[0], f"owned by {names}", member_id=None)


def _idle(period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    """Members that own nothing while another member owns several partitions of a topic they subscribe to."""
    intervals: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for interval in period.memberships.to_pylist():
        if not interval["is_known"]:
            continue
        spare = _topics_to_spare(interval["members"])
        for member in interval["members"]:
            if not member["assignment"] and spare.intersection(member["subscription"] or ()):
                intervals[interval["group_id"], member["member_id"]].append(interval)
    for (_, member_id), found in intervals.items():
        for joined in _join(found):
            detail = "holds nothing while another holds several"
            yield _row(AnomalyKind.MEMBER_IDLE, joined, detail, member_id=member_id)


def _topics_to_spare(members: Iterable[Mapping[str, Any]]) -> set[str]:
    """Topics of the members that own more than one partition in total."""
    spare: set[str] = set()
    for member in members:
        held = [topic for topic in member["assignment"] or () if topic["partitions"]]
        if sum(len(topic["partitions"]) for topic in held) > 1:
            spare.update(topic["topic"] for topic in held)
    return spare


def _join(intervals: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Merge adjacent intervals, given in time order."""
    current: dict[str, Any] | None = None
    for interval in intervals:
        if current is not None and interval[FIRST_INDEX] == current[LAST_INDEX] + 1:
            tail = (LAST_INDEX, "last_snapshot_id", "last_seen_at", "next_seen_at")
            current |= {name: interval[name] for name in tail}
            current["num_snapshots"] += interval["num_snapshots"]
            continue
        if current is not None:
            yield current
        current = dict(interval)
    if current is not None:
        yield current


def _assignors(reader: LakeReader, period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    """Groups that may receive hints by the policy of the snapshot, but selected another assignor."""
    wanted = _may_be_hinted(reader, period)
    others: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for interval in period.memberships.to_pylist():
        group_id, assignor = interval["group_id"], interval["assignor"]
        if assignor in {None, EVENLAG_ASSIGNOR} or interval["group_type"] not in HINTABLE_TYPES:
            continue
        if not wanted[group_id].isdisjoint(range(interval[FIRST_INDEX], interval[LAST_INDEX] + 1)):
            others[group_id, assignor].append(interval)
    for (_, assignor), found in others.items():
        for joined in _join(found):
            detail = f"the group has selected {assignor}, its policy hints {EVENLAG_ASSIGNOR}"
            yield _row(AnomalyKind.ASSIGNOR_NOT_POLICY, joined, detail)


def _may_be_hinted(reader: LakeReader, period: AuditedPeriod) -> defaultdict[str, set[int]]:
    """Snapshots (by position) for which the policy put a group into a mode that publishes hints, by group."""
    filters: list[Filter] = [*period.slot_filters(), ("policy_mode", "in", [Mode.APPROVE, Mode.AUTO])]
    rows = reader.read(DECISIONS, columns=["group_id", "snapshot_id"], filters=filters)
    places = pc.index_in(rows["snapshot_id"], value_set=period.snapshot_ids())
    found: defaultdict[str, set[int]] = defaultdict(set)
    for group_id, place in zip(rows["group_id"].to_pylist(), places.to_pylist(), strict=True):
        if place is not None:
            found[group_id].add(place)
    return found


_UNHELD_STATUSES: Final = (LagStatus.NO_MEMBERS, LagStatus.NOT_SUBSCRIBED)


def read_lag_intervals(reader: LakeReader, period: AuditedPeriod) -> dict[str, list[dict[str, Any]]]:
    """Read the intervals of partitions that stalled, and of those with lag that no member subscribes to."""
    columns = [*PARTITION_KEY, "owner_member_id", "snapshot_id", "read_at", "lag_records"]
    filters = period.slot_filters()
    stalled = reader.read(LAG, columns=columns, filters=[*filters, ("stalled", "=", True)])
    unheld = reader.read(
        LAG, columns=columns, filters=[*filters, ("status", "in", _UNHELD_STATUSES), ("lag_records", ">", 0)]
    )
    return {
        "stalled": _intervals(period, stalled, (*PARTITION_KEY, "owner_member_id")),
        "unheld": _intervals(period, unheld, PARTITION_KEY),
    }


def last_holders(period: AuditedPeriod, unheld: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Find the last owner of partitions that have lag but no owner, and whether it is alive.

    It is if the group has it, or its static member under another id, at the end of the interval. Rows without
    an earlier owner in the period are left out.
    """
    wanted = list(unheld)
    ownership = period.ownership
    groups = {row["group_id"] for row in wanted}
    is_owned = pc.equal(ownership["state"], OwnershipState.OWNED)
    held = ownership.filter(pc.and_(is_owned, pc.is_in(ownership["group_id"], _strings(groups))))
    columns = [held[name].to_pylist() for name in (*PARTITION_KEY, FIRST_INDEX, "member_id", "owner_key")]
    last: dict[tuple[Any, ...], list[tuple[int, str, str]]] = defaultdict(list)
    for *partition, first_index, member_id, key in zip(*columns, strict=True):
        last[tuple(partition)].append((first_index, member_id, key))
    alive = _member_keys(period, groups)
    for row in wanted:
        before = [
            holder
            for holder in last.get(tuple(row[name] for name in PARTITION_KEY), ())
            if holder[0] < row[FIRST_INDEX]
        ]
        if before:
            _, member_id, key = max(before)
            end = row[FIRST_INDEX] + row["num_snapshots"] - 1
            known = [keys for first_index, keys in alive.get(row["group_id"], ()) if first_index <= end]
            yield row | {"member_id": member_id, "is_alive": bool(known) and key in known[-1]}


def _member_keys(period: AuditedPeriod, groups: set[str]) -> dict[str, list[tuple[int, set[str]]]]:
    """First snapshot and members, as hints name them, of each known interval of some groups, oldest first."""
    rows = period.memberships
    rows = rows.filter(pc.and_(pc.is_in(rows["group_id"], _strings(groups)), rows["is_known"]))
    found: dict[str, list[tuple[int, set[str]]]] = defaultdict(list)
    for row in rows.sort_by(FIRST_INDEX).select(["group_id", FIRST_INDEX, "members"]).to_pylist():
        keys = {member_key(each["member_id"], each["group_instance_id"]) for each in row["members"]}
        found[row["group_id"]].append((row[FIRST_INDEX], keys))
    return found


def _strings(values: Iterable[str]) -> pa.Array:
    return pa.array(sorted(values), pa.string())


def _intervals(period: AuditedPeriod, rows: pa.Table, key: Sequence[str]) -> list[dict[str, Any]]:
    """Merge the rows of consecutive snapshots with the same key into intervals."""
    place = pc.index_in(rows["snapshot_id"], value_set=period.snapshot_ids()).cast(pa.int64())
    rows = rows.append_column(FIRST_INDEX, place).filter(pc.is_valid(place))
    if rows.num_rows == 0:
        return []
    rows = sort_intervals(rows, key)
    places = rows[FIRST_INDEX].to_numpy()
    goes_on = same_key_as_next(rows, key, np.flatnonzero(places[1:] == places[:-1] + 1))
    begins = np.ones(rows.num_rows, dtype=bool)
    begins[goes_on + 1] = False
    first = np.flatnonzero(begins)
    last = np.append(first[1:], rows.num_rows) - 1
    heads = rows.select([*key, FIRST_INDEX]).take(pa.array(first)).to_pylist()
    most = np.maximum.reduceat(rows["lag_records"].fill_null(0).to_numpy(), first).tolist()
    return [
        head
        | _moments(period, head[FIRST_INDEX], until)
        | {"lag_records": lag_records, "member_id": head.get("owner_member_id")}
        for head, until, lag_records in zip(heads, places[last].tolist(), most, strict=True)
    ]


def _moments(period: AuditedPeriod, first: int, last: int) -> dict[str, Any]:
    return {
        "first_snapshot_id": period.value_at(first, "snapshot_id"),
        "first_seen_at": period.value_at(first, "finished_at"),
        "last_snapshot_id": period.value_at(last, "snapshot_id"),
        "last_seen_at": period.value_at(last, "finished_at"),
        "previous_seen_at": period.value_at(first - 1, "started_at"),
        "next_seen_at": period.value_at(last + 1, "finished_at"),
        "num_snapshots": last - first + 1,
    }
