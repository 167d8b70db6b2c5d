"""What has to hold of a lake and its hint topic whatever was killed, and whenever."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import (
    COMMITS,
    DECISIONS,
    GATE_RESULTS,
    LAG,
    MEMBERS,
    OFFSETS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
    SNAPSHOTS,
)
from evenlag.policy.gates import GATES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import Table

Rows = list[dict[str, Any]]


def find_violations(lake: LakeReader, hints: Mapping[str, tuple[str, int]]) -> list[str]:
    """Return what is half visible, duplicated or contradictory; empty if the lake is consistent.

    hints: (plan id, sequence) by group, as they are on the hint topic.
    """
    snapshots = lake.read(SNAPSHOTS).to_pylist()
    plans = lake.read(PLANS).to_pylist()
    events = lake.read_events().to_pylist()
    return [
        *_twice(lake, snapshots),
        *_of_snapshots(lake, snapshots),
        *_of_plans(lake, snapshots, plans),
        *_of_verdicts(lake, plans, events),
        *_of_hints(lake, hints),
    ]


def _twice(lake: LakeReader, snapshots: Rows) -> Iterator[str]:
    """No key twice: of what readers look at, which is what belongs to a finished snapshot."""
    visible = {row["snapshot_id"] for row in snapshots}
    planning = (DECISIONS, PLANS, PLAN_ASSIGNMENTS, GATE_RESULTS, PLAN_EVENTS, OUTCOMES, PLAN_EVALUATIONS)
    for table in (SNAPSHOTS, OFFSETS, COMMITS, MEMBERS, LAG, *planning):
        rows = [row for row in lake.read(table).to_pylist() if row["snapshot_id"] in visible]
        counts = Counter(tuple(row[name] for name in table.key) for row in rows)
        for key, count in counts.items():
            if count > 1:
                yield f"{table.name}: {key} is there {count} times"


def _of_snapshots(lake: LakeReader, snapshots: Rows) -> Iterator[str]:
    """A finished snapshot has all that was read, and its lag; decisions belong to a finished one."""
    offsets, lag = (_count_by_snapshot(lake, table) for table in (OFFSETS, LAG))
    expected_lag = _expected_lag(lake)
    for row in snapshots:
        name = row["snapshot_id"]
        if offsets[name] != row["num_partitions"]:
            yield f"snapshot {name}: {offsets[name]} of {row['num_partitions']} partitions are there"
        if lag[name] != expected_lag[name]:
            yield f"snapshot {name}: {lag[name]} of {expected_lag[name]} rows of lag are there"
    visible = {row["snapshot_id"] for row in snapshots}
    for table in (DECISIONS, PLANS, GATE_RESULTS, PLAN_EVENTS, OUTCOMES, PLAN_EVALUATIONS):
        for snapshot in _count_by_snapshot(lake, table).keys() - visible:
            yield f"{table.name}: rows of {snapshot}, which no marker has finished"


def _expected_lag(lake: LakeReader) -> Counter[str]:
    """Partitions that a group subscribes to or has a commit for, of those that exist, by snapshot."""
    places: dict[tuple[str, str], set[Any]] = defaultdict(set)
    for row in lake.read(OFFSETS).to_pylist():
        places[row["snapshot_id"], row["topic"]].add((row["topic_id"], row["partition"]))
    wanted = {
        (row["snapshot_id"], row["group_id"], topic, place)
        for row in lake.read(MEMBERS).to_pylist()
        for topic in row["subscription"] or ()
        for place in places[row["snapshot_id"], topic]
    }
    for row in lake.read(COMMITS).to_pylist():
        place = (row["topic_id"], row["partition"])
        if row["error"] is None and place in places[row["snapshot_id"], row["topic"]]:
            wanted.add((row["snapshot_id"], row["group_id"], row["topic"], place))
    return Counter(snapshot for snapshot, *_ in wanted)


def _of_plans(lake: LakeReader, snapshots: Rows, plans: Rows) -> Iterator[str]:
    """A plan with a head has all its rows."""
    visible = {row["snapshot_id"] for row in snapshots}
    rows: dict[str, Rows] = defaultdict(list)
    for row in lake.read(PLAN_ASSIGNMENTS).to_pylist():
        rows[row["plan_id"]].append(row)
    for plan in plans:
        own = rows[plan["plan_id"]]
        if plan["snapshot_id"] not in visible:
            yield f"plan {plan['plan_id']} is of a snapshot that no marker has finished"
        expected = plan["num_partitions"] if plan["mode"] != "shadow" else len(own)
        if len(own) != expected:
            yield f"plan {plan['plan_id']} has {len(own)} of {expected} rows"
        if sum(row["moved"] for row in own) != plan["moves"]:
            yield f"plan {plan['plan_id']} moves {plan['moves']} partitions, its rows tell otherwise"


def _of_verdicts(lake: LakeReader, plans: Rows, events: Rows) -> Iterator[str]:
    """Who was judged was judged by every gate; who was published was approved, and nobody was both."""
    heads = {row["plan_id"] for row in plans}
    gates: dict[str, set[str]] = defaultdict(set)
    for row in lake.read(GATE_RESULTS).to_pylist():
        gates[row["plan_id"]].add(row["gate"])
    found: dict[str, set[str]] = defaultdict(set)
    for event in events:
        found[event["plan_id"]].add(event["event"])
    for plan_id in (gates.keys() | found.keys()) - heads:
        yield f"plan {plan_id} has verdicts or events, and no head"
    for plan_id, names in gates.items():
        if len(names) != len(GATES):
            yield f"plan {plan_id} was judged by {len(names)} of {len(GATES)} gates"
    for plan_id, names in found.items():
        if {"APPROVED", "REJECTED"} <= names:
            yield f"plan {plan_id} is approved and rejected"
        if {"APPROVED", "REJECTED"} & names and plan_id not in gates:
            yield f"plan {plan_id} is decided upon, and no gate has judged it"
        if "PUBLISHED" in names and "APPROVED" not in names:
            yield f"plan {plan_id} is published, and nobody has approved it"


def _of_hints(lake: LakeReader, hints: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    """The newest hint of the events is on the topic, and no other."""
    newest: dict[str, tuple[str, int]] = {}
    for event in lake.read(PLAN_EVENTS).to_pylist():
        if event["event"] == "PUBLISHED":
            known = newest.get(event["group_id"])
            if known is None or event["sequence"] > known[1]:
                newest[event["group_id"]] = (event["plan_id"], event["sequence"])
    for group in sorted(newest.keys() | hints.keys()):
        if newest.get(group) != hints.get(group):
            yield f"group {group}: the topic has {hints.get(group)}, the events {newest.get(group)}"


def _count_by_snapshot(lake: LakeReader, table: Table) -> Counter[str]:
    return Counter(lake.read(table, columns=["snapshot_id"])["snapshot_id"].to_pylist())
