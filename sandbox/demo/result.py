"""The result of the demo as its lake records it, and whether the promises were kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_ASSIGNMENTS, PLANS
from sandbox.processes import SandboxError
from sandbox.workload.evidence import Evidence


class DemoError(SandboxError):
    """Raised when the demo cannot continue; the message says what did not happen."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that the demo must show, and what was observed."""

    text: str
    kept: bool
    seen: str


@dataclass(frozen=True, slots=True)
class MemberLag:
    """A consumer's lag in records before, predicted, and after, with its partitions."""

    name: str
    before: int
    predicted: int
    after: int
    partitions_before: tuple[int, ...]
    partitions_after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The result in numbers, all of them from the lake.

    outcome: Its row of ``outcomes``; empty if there is none.
    elapsed_s: Seconds between the two snapshots.
    """

    plan_id: str
    moves: int
    sequence: int | None
    outcome: Mapping[str, Any]
    members: tuple[MemberLag, ...]
    elapsed_s: float

    @property
    def max_before(self) -> int:
        """Lag of the most loaded member when the plan was made."""
        return max(member.before for member in self.members)

    @property
    def max_predicted(self) -> int:
        """Lag of the most loaded member that the plan predicts."""
        return max(member.predicted for member in self.members)

    @property
    def max_after(self) -> int:
        """Lag of the most loaded member in the next run's snapshot."""
        return max(member.after for member in self.members)


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A published plan: its head, and its partitions by consumer name."""

    head: Mapping[str, Any]
    sequence: int | None
    owners: Mapping[str, set[int]]


class DemoLake:
    """Reads the demo's lake; members are identified by client id, which is the consumer's name."""

    def __init__(self, root: Path, cluster: str, group_id: str) -> None:
        self._reader = LakeReader(str(root))
        self._cluster, self._group_id = cluster, group_id

    def published_plan(self) -> PublishedPlan:
        """Return the one published plan of the group."""
        events = self._reader.read_events(filters=self._mine()).to_pylist()
        published = [event for event in events if event["event"] == "PUBLISHED"]
        if len(published) != 1:
            reasons = "; ".join(f"{event['event']}: {event['reason']}" for event in events)
            raise DemoError(
                f"{len(published)} plans of {self._group_id} were published ({reasons or 'no events'})"
            )
        plan_id = published[0]["plan_id"]
        [head] = self._reader.read(PLANS, filters=[*self._mine(), ("plan_id", "=", plan_id)]).to_pylist()
        names = self._names(head["snapshot_id"])
        owners: dict[str, set[int]] = {name: set() for name in names.values()}
        for row in self._assignments(head):
            owners[names[row["owner_after"]]].add(row["partition"])
        return PublishedPlan(head, published[0]["sequence"], owners)

    def result(self, plan: PublishedPlan) -> DemoResult:
        """Return the result of the plan, from the newest snapshot."""
        plan_id, first = plan.head["plan_id"], plan.head["snapshot_id"]
        newest = self._reader.latest_snapshot(self._cluster)
        last = newest["snapshot_id"] if newest else first
        before, after = self._lag_by_name(first), self._lag_by_name(last)
        names = self._names(first)
        predicted: dict[str, int] = dict.fromkeys(names.values(), 0)
        for row in self._assignments(plan.head):
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

    def _mine(self) -> list[tuple[str, str, Any]]:
        return [("cluster", "=", self._cluster), ("group_id", "=", self._group_id)]

    def _assignments(self, head: Mapping[str, Any]) -> list[dict[str, Any]]:
        of_plan = [(name, "=", head[name]) for name in ("cluster", "day", "plan_id")]
        rows: list[dict[str, Any]] = self._reader.read(PLAN_ASSIGNMENTS, filters=of_plan).to_pylist()
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


def listed(partitions: Sequence[int]) -> str:
    """Return the numbers of partitions as text."""
    return ", ".join(map(str, partitions))


def check_promises(
    result: DemoResult,
    plan: PublishedPlan,
    owners: Mapping[str, set[int]],
    evidence: Evidence,
    *,
    records_per_s: float,
) -> tuple[Promise, ...]:
    """Compare the result with what the demo promises.

    owners: Partitions by consumer at the end, from the consumers' own journals.
    records_per_s: Processing rate of a consumer: without a plan, the largest lag could fall by no more than
        this.
    """
    outcome, adherence = result.outcome.get("outcome"), result.outcome.get("adherence")
    worked_off = records_per_s * result.elapsed_s
    has_fallen = result.max_before - result.max_after > 1.2 * worked_off
    is_lower = result.max_predicted < result.max_before and has_fallen
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
