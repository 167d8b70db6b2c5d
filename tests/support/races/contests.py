"""What races: each contest is a call of the product that must have its effect once, whoever comes first.

``act`` runs in each writer's process at the same time and returns what the product answered. ``check`` gets
these answers and the rows that an independent reader found, and fails unless one writer won, all know
the winner, and nothing is lost or doubled.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import find_marker
from evenlag.lake.tables import APPROVAL_REQUESTS, DECISIONS, GATE_RESULTS, PLAN_EVENTS, PLANS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.planning.decision_record import read_decision, record_decision
from evenlag.policy.loader import parse_policy
from evenlag.publishing import approvals
from evenlag.publishing.answers.actors import TIME_LIMIT_ACTOR, Actor
from evenlag.publishing.approvals import AlreadyDecidedError, NotWaitingError
from evenlag.publishing.event_log import append_plan_events
from tests.support.lakes.snapshots import arrow, marker

if TYPE_CHECKING:
    from evenlag.policy.loader import LoadedPolicy

WRITERS: Final = 3
CLUSTER: Final = "c"
Rows = list[dict[str, Any]]
_GROUPS: Final = 5


class Contest:
    """One kind of race on one lake.

    start: When the races began: slots and plans are of this time.
    """

    table = ""

    def __init__(self, root: str, start: datetime) -> None:
        self.root = root
        self.start = start
        self.reader = LakeReader(root)

    def prepare(self, count: int) -> None:
        """Write what the races need; called once, before them."""

    def act(self, race: int, writer: int) -> Any:
        """Do what only one writer may do; returns the answer that this one got."""
        raise NotImplementedError

    def check(self, race: int, answers: list[Any], rows: Rows) -> None:
        """Compare the writers' answers with the rows of the table."""
        raise NotImplementedError

    @property
    def loaded(self) -> LoadedPolicy:
        """A policy under which a person approves every plan."""
        return _policy(self.root)

    def head(self, race: int, name: str = "") -> dict[str, Any]:
        """Return the columns that identify a plan."""
        snapshot_id = f"{self.start:%Y%m%dT%H%M%S000Z}-{race:08x}"
        group = f"{type(self).__name__}-{race}"
        head = {"cluster": CLUSTER, "day": self.start.date(), "snapshot_id": snapshot_id}
        return head | {"group_id": group, "plan_id": f"{group}-{name}"}

    def write_plans(self, heads: Rows) -> None:
        """Write plans that wait for a person."""
        plans = [head | {"mode": "approve", "slot": self.start} for head in heads]
        append_once(self.root, PLANS, plans, None)
        verdicts = [head | {"gate": "gain", "passed": True, "message": "enough"} for head in heads]
        append_once(self.root, GATE_RESULTS, verdicts, None)
        events = [self.event(head, "PROPOSED", "planner") for head in heads]
        append_once(self.root, PLAN_EVENTS, events, None)

    def event(self, head: dict[str, Any], event: str, actor: str) -> dict[str, Any]:
        """Return an event of a plan."""
        return {**head, "event": event, "actor": actor, "at": self.start, "run_id": actor}


@cache
def _policy(root: str) -> LoadedPolicy:
    text = f"""
lake: {root}
clusters: {{{CLUSTER}: {{bootstrap_servers: "localhost:9092"}}}}
groups: [{{match: "*", mode: approve}}]
"""
    return parse_policy(text, environ={})


class Marker(Contest):
    """Attempts at one slot: the first marker counts, and all go on with its snapshot."""

    table = SNAPSHOTS.name

    def act(self, race: int, writer: int) -> str:
        slot = self.start + timedelta(minutes=race)
        row = marker(slot=slot, cluster=CLUSTER, day=slot.date(), snapshot_id=f"{race}-{writer}")
        of_slot = [("cluster", "=", CLUSTER), ("slot", "=", slot)]
        append_once(self.root, SNAPSHOTS, [row], of_slot)
        found = find_marker(self.reader, CLUSTER, slot)
        return "" if found is None else str(found["snapshot_id"])

    def check(self, race: int, answers: list[str], rows: Rows) -> None:
        winners = [row["snapshot_id"] for row in rows if row["snapshot_id"].split("-")[0] == str(race)]
        assert len(winners) == 1, winners
        assert answers == winners * WRITERS


class Answer(Contest):
    """Two people and the time limit answer for one plan: the first answer is final."""

    table = PLAN_EVENTS.name
    actors = ("ada", "grace", TIME_LIMIT_ACTOR)

    def prepare(self, count: int) -> None:
        self.write_plans([self.head(race) for race in range(count)])

    def act(self, race: int, writer: int) -> tuple[bool, str, str]:
        actor, is_yes = self.actors[writer], writer == 0
        plan_id = self.head(race)["plan_id"]
        given = {
            "approve": is_yes,
            "actor": Actor(actor),
            "reason": "raced",
            "run_id": actor,
            "now": self.start,
        }
        try:
            approvals.record_answer(self.loaded, CLUSTER, plan_id, **given)  # type: ignore[arg-type]  # of one call
        except AlreadyDecidedError as error:
            return False, error.event["event"], error.event["actor"]
        # The same run once more gets its own answer.
        approvals.record_answer(self.loaded, CLUSTER, plan_id, **given)  # type: ignore[arg-type]  # as above
        return True, "APPROVED" if is_yes else "REJECTED", actor

    def check(self, race: int, answers: list[tuple[bool, str, str]], rows: Rows) -> None:
        plan_id = self.head(race)["plan_id"]
        found = [
            (row["event"], row["actor"])
            for row in rows
            if row["plan_id"] == plan_id and row["event"] != "PROPOSED"
        ]
        assert len(found) == 1, found
        assert sorted(won for won, *_ in answers) == [False, False, True]
        assert {(event, actor) for _, event, actor in answers} == set(found)


class Question(Contest):
    """Runs ask for plans of one group: one question is open, the other plans stay in shadow because of it."""

    table = APPROVAL_REQUESTS.name

    def prepare(self, count: int) -> None:
        self.write_plans([self.head(race, str(w)) for race in range(count) for w in range(WRITERS)])

    def act(self, race: int, writer: int) -> tuple[bool, str]:
        plan_id = self.head(race, str(writer))["plan_id"]
        try:
            asked = approvals.request_approval(
                self.loaded, CLUSTER, plan_id, run_id=f"run {writer}", now=self.start
            )
        except NotWaitingError as error:
            return False, str(error)
        return True, asked.plan.head["plan_id"]

    def check(self, race: int, answers: list[tuple[bool, str]], rows: Rows) -> None:
        group = self.head(race)["group_id"]
        found = [(row["state"], row["plan_id"], row["reason"]) for row in rows if row["group_id"] == group]
        assert sorted(state for state, *_ in found) == ["ASKED", "SHADOWED", "SHADOWED"], found
        assert {plan_id for _, plan_id, _ in found} == {f"{group}-{writer}" for writer in range(WRITERS)}
        asked = [plan_id for state, plan_id, _ in found if state == "ASKED"]
        assert [plan_id for won, plan_id in answers if won] == asked
        shown = [reason for state, _, reason in found if state == "SHADOWED"]
        assert all(f"plan {asked[0][:12]} of the group waits" in reason for reason in shown)


class Decision(Contest):
    """Attempts decide on one snapshot under policies of their own: all go on with the plans of one."""

    table = DECISIONS.name

    def act(self, race: int, writer: int) -> tuple[bool, str]:
        head, policy = self.head(race), f"policy-{writer}"
        rows = [
            head | {"group_id": f"g-{n}", "plan_id": f"{policy}-{race}-{n}", "policy_hash": policy,
                    "mode": "auto", "decision": "PROPOSED", "run_id": policy}
            for n in range(_GROUPS)
        ]  # fmt: skip
        of_snapshot = [
            ("cluster", "=", CLUSTER),
            ("day", "=", head["day"]),
            ("snapshot_id", "=", head["snapshot_id"]),
        ]
        won = record_decision(self.root, of_snapshot, arrow(DECISIONS, rows))
        record = read_decision(self.reader, of_snapshot)
        assert record is not None
        plans = [head | {"group_id": plan.rpartition("-")[2], "plan_id": plan} for plan in record.modes]
        events = [self.event(plan, "PROPOSED", "planner") for plan in plans]
        append_plan_events(self.root, events, [*of_snapshot, ("event", "=", "PROPOSED")])
        return won, record.policy_hash

    def check(self, race: int, answers: list[tuple[bool, str]], rows: Rows) -> None:
        snapshot_id = self.head(race)["snapshot_id"]
        found = [row for row in rows if row["snapshot_id"] == snapshot_id]
        assert sorted(row["group_id"] for row in found) == [f"g-{n}" for n in range(_GROUPS)]
        (winner,) = {row["policy_hash"] for row in found}
        assert [policy for won, policy in answers if won] == [winner]
        assert {policy for _, policy in answers} == {winner}


class Publish(Contest):
    """Publishers record the plans that they found on the topic, each some of them: all are there once."""

    table = PLAN_EVENTS.name
    # By writer: the plans of a race that it has seen.
    seen = ((0, 1, 2), (1, 2, 3), (0, 1, 2, 3))

    def act(self, race: int, writer: int) -> int:
        plans = [self.head(race, str(number)) for number in self.seen[writer]]
        events = [self.event(plan, "PUBLISHED", f"publisher {writer}") for plan in plans]
        # What one of them judged expired is another event.
        events.append(self.event(self.head(race, "4"), "EXPIRED", f"publisher {writer}"))
        return append_plan_events(self.root, events)

    def check(self, race: int, answers: list[int], rows: Rows) -> None:
        group = self.head(race)["group_id"]
        found = Counter((row["plan_id"], row["event"]) for row in rows if row["group_id"] == group)
        published = [(f"{group}-{number}", "PUBLISHED") for number in range(4)]
        assert found == Counter([*published, (f"{group}-4", "EXPIRED")])
        assert sum(answers) == len(found)


CONTESTS: Final = {kind.__name__.lower(): kind for kind in (Marker, Answer, Question, Decision, Publish)}


def begin_now() -> datetime:
    """Return the time that a run of races begins at, in the tables' milliseconds."""
    return datetime.now(UTC).replace(microsecond=0)
