"""Anomalies: what should not be, as stretches of readings that show it, from ownership, lag and decisions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.interval_merge import FIRST_INDEX, LAST_INDEX
from evenlag.audit.lag_intervals import dead_member_lag, read_lag_stretches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from evenlag.audit.period import AuditedPeriod
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

OWNED_BY_NOBODY: Final = "OWNED_BY_NOBODY"
OWNED_BY_TWO: Final = "OWNED_BY_TWO"
MEMBER_IDLE: Final = "MEMBER_IDLE"
DEAD_MEMBER_LAG: Final = "DEAD_MEMBER_LAG"
STALLED: Final = "STALLED"
ASSIGNOR_NOT_POLICY: Final = "ASSIGNOR_NOT_POLICY"
KINDS: Final = (
    OWNED_BY_TWO,
    OWNED_BY_NOBODY,
    DEAD_MEMBER_LAG,
    STALLED,
    ASSIGNOR_NOT_POLICY,
    MEMBER_IDLE,
)

_BOUNDS: Final = (
    "first_snapshot_id",
    "first_seen_at",
    "last_snapshot_id",
    "last_seen_at",
    "previous_seen_at",
    "next_seen_at",
)


def find_anomalies(reader: LakeReader, period: AuditedPeriod) -> list[dict[str, Any]]:
    """Find what the readings of a period show that should not be.

    Returns
    -------
    list of dict
        By kind (in the order of ``KINDS``), group, topic, partition and time: ``kind, group_id, topic,
        topic_id, partition, member_id, detail, lag_records`` (the most), the stretch (``first_snapshot_id,
        first_seen_at, last_snapshot_id, last_seen_at, num_snapshots``) and its bounds (``previous_seen_at,
        next_seen_at``). A column that a kind does not have is null.
    """
    lag = read_lag_stretches(reader, period)
    found = [
        *_nobody(period),
        *_two(period),
        *(_from_lag(STALLED, row, "lag, records to read, and no commit moved") for row in lag["stalled"]),
        *(
            _from_lag(DEAD_MEMBER_LAG, row, f"its last holder {row['member_id']} is gone")
            for row in dead_member_lag(period, lag["unheld"])
        ),
        *_assignors(reader, period),
        *_idle(period),
    ]
    inside = [
        row for row in found if row["last_seen_at"] >= period.since and row["first_seen_at"] <= period.until
    ]
    rank = {kind: place for place, kind in enumerate(KINDS)}
    return sorted(
        inside,
        key=lambda row: (
            rank[row["kind"]],
            row["group_id"],
            row["topic"] or "",
            -1 if row["partition"] is None else row["partition"],
            row["member_id"] or "",
            row["first_seen_at"],
        ),
    )


def _row(kind: str, stretch: Mapping[str, Any], detail: str, **more: Any) -> dict[str, Any]:
    about = ("topic", "topic_id", "partition", "member_id")
    return {
        "kind": kind,
        "group_id": stretch["group_id"],
        **{name: stretch.get(name) for name in about},
        "detail": detail,
        "lag_records": stretch.get("lag_records"),
        "num_snapshots": stretch["num_snapshots"],
        **{name: stretch[name] for name in _BOUNDS},
        **more,
    }


def _from_lag(kind: str, row: Mapping[str, Any], detail: str) -> dict[str, Any]:
    return _row(kind, row, detail)


def _nobody(period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    ownership = period.ownership
    free = pc.and_(
        pc.equal(ownership["state"], "NOBODY"), pc.equal(ownership["reason"], "no member holds it")
    )
    for row in ownership.filter(free).to_pylist():
        yield _row(OWNED_BY_NOBODY, row, "members take the topic, and none holds the partition")


def _two(period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    import pyarrow.compute as pc

    together: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in period.ownership.filter(pc.greater(period.ownership["num_owners"], 1)).to_pylist():
        key = (row["group_id"], row["topic"], row["topic_id"], row["partition"])
        together[*key, row[FIRST_INDEX], row[LAST_INDEX]].append(row)
    for rows in together.values():
        names = ", ".join(sorted(row["member_id"] for row in rows))
        yield _row(OWNED_BY_TWO, rows[0], f"held by {names}", member_id=None)


def _idle(period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    """Members that hold nothing while another holds several partitions of a topic that they take too."""
    stretches: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for stretch in period.memberships.to_pylist():
        if not stretch["is_known"]:
            continue
        spare = _topics_to_spare(stretch["members"])
        for member in stretch["members"]:
            if not member["assignment"] and spare.intersection(member["subscription"] or ()):
                stretches[stretch["group_id"], member["member_id"]].append(stretch)
    for (_, member_id), found in stretches.items():
        for joined in _join(found):
            yield _row(MEMBER_IDLE, joined, "holds nothing while another holds several", member_id=member_id)


def _topics_to_spare(members: Iterable[Mapping[str, Any]]) -> set[str]:
    """Topics that a member holds partitions of, which holds more than one in all."""
    spare: set[str] = set()
    for member in members:
        held = [topic for topic in member["assignment"] or () if topic["partitions"]]
        if sum(len(topic["partitions"]) for topic in held) > 1:
            spare.update(topic["topic"] for topic in held)
    return spare


def _join(stretches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Join stretches, in the order of time, that follow on each other."""
    current: dict[str, Any] | None = None
    for stretch in stretches:
        if current is not None and stretch[FIRST_INDEX] == current[LAST_INDEX] + 1:
            tail = (LAST_INDEX, "last_snapshot_id", "last_seen_at", "next_seen_at")
            current |= {name: stretch[name] for name in tail}
            current["num_snapshots"] += stretch["num_snapshots"]
            continue
        if current is not None:
            yield current
        current = dict(stretch)
    if current is not None:
        yield current


def _assignors(reader: LakeReader, period: AuditedPeriod) -> Iterator[dict[str, Any]]:
    """Groups that may be hinted, by the policy of the reading, and have selected another assignor."""
    from evenlag.publishing.gates import EVENLAG_ASSIGNOR, HINTABLE_TYPES

    wanted = _may_be_hinted(reader, period)
    others: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for stretch in period.memberships.to_pylist():
        if stretch["assignor"] in {None, EVENLAG_ASSIGNOR} or stretch["group_type"] not in HINTABLE_TYPES:
            continue
        places = wanted.get(stretch["group_id"], frozenset())
        if any(place in places for place in range(stretch[FIRST_INDEX], stretch[LAST_INDEX] + 1)):
            others[stretch["group_id"]].append(stretch)
    for found in others.values():
        for joined in _join_alike(found):
            detail = f"the group has selected {joined['assignor']}, its policy hints {EVENLAG_ASSIGNOR}"
            yield _row(ASSIGNOR_NOT_POLICY, joined, detail)


def _join_alike(stretches: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    by_assignor: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for stretch in stretches:
        by_assignor[stretch["assignor"]].append(stretch)
    for found in by_assignor.values():
        yield from _join(found)


def _may_be_hinted(reader: LakeReader, period: AuditedPeriod) -> dict[str, frozenset[int]]:
    """The readings, by their place, at which the policy put a group into a mode that publishes hints."""
    import pyarrow.compute as pc

    from evenlag.lake.tables import DECISIONS

    filters: list[Filter] = [*period.slot_filters(), ("policy_mode", "in", ["approve", "auto"])]
    rows = reader.read(DECISIONS, columns=["group_id", "snapshot_id"], filters=filters)
    places = pc.index_in(rows["snapshot_id"], value_set=period.snapshot_ids())
    found: dict[str, set[int]] = defaultdict(set)
    for group_id, place in zip(rows["group_id"].to_pylist(), places.to_pylist(), strict=True):
        if place is not None:
            found[group_id].add(place)
    return {group_id: frozenset(of_group) for group_id, of_group in found.items()}
