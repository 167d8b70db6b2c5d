"""What the demo's lake says happened, and whether that is what was promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, PLANS, SNAPSHOTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sandbox.workload.evidence import Evidence


class DemoError(RuntimeError):
    """The demo cannot go on; the message says what did not happen."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that the demo must show, and what was seen."""

    text: str
    kept: bool
    seen: str


@dataclass(frozen=True, slots=True)
class MemberLag:
    """A consumer's lag in records before, by the plan, and after, with the partitions that it held."""

    name: str
    before: int
    predicted: int
    after: int
    partitions_before: tuple[int, ...]
    partitions_after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The story in numbers, all of them from the lake.

    Attributes
    ----------
    plan_id, moves, sequence
        The plan that was published.
    outcome
        The row of ``outcomes``, empty when there is none.
    members
        By name.
    elapsed_s
        Between the two readings.
    """

    plan_id: str
    moves: int
    sequence: int | None
    outcome: Mapping[str, Any]
    members: tuple[MemberLag, ...]
    elapsed_s: float

    @property
    def max_before(self) -> int:
        """Lag of the most loaded member when it was planned."""
        return max(member.before for member in self.members)

    @property
    def max_predicted(self) -> int:
        """The same, by the plan."""
        return max(member.predicted for member in self.members)

    @property
    def max_after(self) -> int:
        """The same, when the next run looked."""
        return max(member.after for member in self.members)


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A plan that was published: its head, and who shall hold which partition, by the consumers' names."""

    head: Mapping[str, Any]
    sequence: int | None
    owners: Mapping[str, set[int]]


class DemoLake:
    """Reads the demo's lake; members are told by their client ids, which are the consumers' names."""

    def __init__(self, root: Path, cluster: str, group_id: str) -> None:
        self._reader = LakeReader(str(root))
        self._cluster, self._group_id = cluster, group_id

    def published_plan(self) -> PublishedPlan:
        """The one plan of the group that was published.

        Raises
        ------
        DemoError
            When there is none, with what became of the plans instead.
        """
        events = self._reader.read_events(filters=self._mine()).to_pylist()
        published = [event for event in events if event["event"] == "PUBLISHED"]
        if len(published) != 1:
            told = "; ".join(f"{event['event']}: {event['reason']}" for event in events)
            raise DemoError(
                f"{len(published)} plans of {self._group_id} were published ({told or 'no events'})"
            )
        plan_id = published[0]["plan_id"]
        [head] = self._reader.read(PLANS, filters=[*self._mine(), ("plan_id", "=", plan_id)]).to_pylist()
        names = self._names(head["snapshot_id"])
        owners: dict[str, set[int]] = {name: set() for name in names.values()}
        for row in self._assignments(plan_id):
            owners[names[row["owner_after"]]].add(row["partition"])
        return PublishedPlan(head, published[0]["sequence"], owners)

    def result(self, plan: PublishedPlan) -> DemoResult:
        """The whole story of the plan, by the newest snapshot."""
        plan_id, first = plan.head["plan_id"], plan.head["snapshot_id"]
        newest = self._reader.latest_snapshot(self._cluster)
        last = newest["snapshot_id"] if newest else first
        before, after = self._lag_by_name(first), self._lag_by_name(last)
        names = self._names(first)
        predicted: dict[str, int] = dict.fromkeys(names.values(), 0)
        for row in self._assignments(plan_id):
            predicted[names[row["owner_after"]]] += row["lag_records"] or 0
        outcomes = self._reader.read(OUTCOMES, filters=[*self._mine(), ("plan_id", "=", plan_id)]).to_pylist()
        members = tuple(
            MemberLag(
                name=name,
                before=sum(before.get(name, {}).values()),
                predicted=predicted[name],
                after=sum(after.get(name, {}).values()),
                partitions_before=tuple(sorted(before.get(name, {}))),
                partitions_after=tuple(sorted(after.get(name, {}))),
            )
            for name in sorted(names.values())
        )
        return DemoResult(
            plan_id=plan_id,
            moves=plan.head["moves"],
            sequence=plan.sequence,
            outcome=outcomes[0] if outcomes else {},
            members=members,
            elapsed_s=(newest["slot"] - plan.head["slot"]).total_seconds() if newest else 0.0,
        )

    def num_snapshots(self) -> int:
        """How many readings of the cluster are finished."""
        return int(self._reader.read(SNAPSHOTS, filters=[("cluster", "=", self._cluster)]).num_rows)

    def _mine(self) -> list[tuple[str, str, Any]]:
        return [("cluster", "=", self._cluster), ("group_id", "=", self._group_id)]

    def _assignments(self, plan_id: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._reader.read(
            PLAN_ASSIGNMENTS, filters=[*self._mine(), ("plan_id", "=", plan_id)]
        ).to_pylist()
        return rows

    def _names(self, snapshot_id: str) -> dict[str, str]:
        rows = self._reader.read(MEMBERS, filters=[*self._mine(), ("snapshot_id", "=", snapshot_id)])
        return {row["member_id"]: row["client_id"] for row in rows.to_pylist() if row["member_id"]}

    def _lag_by_name(self, snapshot_id: str) -> dict[str, dict[int, int]]:
        names = self._names(snapshot_id)
        lag: dict[str, dict[int, int]] = {}
        rows = self._reader.read(LAG, filters=[*self._mine(), ("snapshot_id", "=", snapshot_id)])
        for row in rows.to_pylist():
            name = names.get(row["owner_member_id"])
            if name is not None:
                lag.setdefault(name, {})[row["partition"]] = row["lag_records"] or 0
        return lag


def check_promises(
    result: DemoResult,
    plan: PublishedPlan,
    owners: Mapping[str, set[int]],
    evidence: Evidence,
    *,
    records_per_s: float,
) -> tuple[Promise, ...]:
    """Hold what happened against what the demo promises.

    Parameters
    ----------
    owners
        Partitions by consumer at the end, as the consumers' own journals say.
    evidence
        What those journals and the broker's offsets prove.
    records_per_s
        Speed of a consumer: by working alone the most loaded one could have got this much better, no more.
    """
    outcome, adherence = result.outcome.get("outcome"), result.outcome.get("adherence")
    worked_off = records_per_s * result.elapsed_s
    is_lower = (
        result.max_predicted < result.max_before and result.max_before - result.max_after > 1.2 * worked_off
    )
    lags = f"{result.max_before:,} before, {result.max_predicted:,} predicted, {result.max_after:,} after"
    processed = sum(evidence.num_processed.values())
    return (
        Promise(
            "the first run publishes a plan",
            result.sequence is not None,
            f"plan {result.plan_id[:12]}, {result.moves} moves, sequence {result.sequence}",
        ),
        Promise(
            "the second run sees it applied",
            outcome == "APPLIED",
            f"{outcome or 'no outcome'}, adherence {100 * (adherence or 0):.0f} %",
        ),
        Promise(
            f"all {len(plan.owners)} consumers hold what was hinted",
            dict(owners) == dict(plan.owners),
            _differences(plan.owners, owners),
        ),
        Promise("the largest lag falls by more than time alone could do", is_lower, lags),
        Promise(
            "no record is lost", not evidence.lost, f"{processed:,} processed, {_count(evidence.lost)} lost"
        ),
        Promise(
            "no record is processed twice",
            not evidence.repeated,
            f"{_count(evidence.repeated)} processed twice",
        ),
        Promise(
            "no partition has two owners at once",
            not evidence.overlaps,
            f"{len(evidence.ownerships)} ownerships, {len(evidence.overlaps)} overlap",
        ),
    )


def _differences(wanted: Mapping[str, set[int]], held: Mapping[str, set[int]]) -> str:
    wrong = [name for name in sorted({*wanted, *held}) if wanted.get(name) != held.get(name)]
    return "as hinted" if not wrong else f"not as hinted: {', '.join(wrong)}"


def _count(spans: Mapping[Any, Sequence[tuple[int, int]]]) -> int:
    return sum(last - first + 1 for parts in spans.values() for first, last in parts)
