"""Generated forgeries: no plan is published that was not approved as it was shown, whatever the lake says.

For each table of a plan, and each of its columns: the value, the file's statistics, the row once more with
another value, also in another partition or behind false statistics, the row removed, its file in another
partition, no Parquet file or of other types, statistics that are none, and the same in a checkpoint. Each is
applied before the first opening of its table's log in a run, or before any later one, and stays, or is undone
before the next. Plans beside the forged ones are published.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from assignor_core.hint import decode_hint
from evenlag.enums import Channel
from evenlag.errors import LakeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import APPROVAL_REQUESTS, PLAN_EVENTS, PLANS
from evenlag.publishing import publish
from evenlag.publishing.answers.actors import Actor, NotAnApproverError
from evenlag.publishing.approval_page import ApprovalPage, build_page
from evenlag.publishing.approvals import NotWaitingError, record_answer, request_approval
from evenlag.publishing.hint_topic import TopicState
from evenlag.publishing.loads import LoadsReport
from evenlag.publishing.publish_checks import Checked, RefusedPlan
from tests.support.lakes.snapshots import NOW
from tests.support.sealing.forgeries import (
    Edit,
    Forgery,
    Reads,
    add_row,
    all_forgeries,
    linked,
    prepare,
    spread,
    write_checkpoint,
)
from tests.support.sealing.judged import alerts
from tests.support.sealing.sealed_lake import (
    POLICY,
    TABLES,
    observe,
    plan_ids,
    policy,
    seal_and_approve,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from evenlag.lake.tables import Table

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("key")]

AUTO = [f"auto-{number:02}" for number in range(14)]
ASKED = [f"asked-{number:02}" for number in range(9)]
WAITING = [f"asked-later-{number}" for number in range(5)]
# Nobody forges them.
CONTROLS = {AUTO[0], ASKED[0], WAITING[0]}
SLOT = NOW + timedelta(minutes=2)


class Lake(NamedTuple):
    """A lake of plans, and what is true of it."""

    root: Path
    plans: dict[str, str]
    payloads: dict[str, bytes]
    pages: dict[str, ApprovalPage]


class Outcome(NamedTuple):
    """What was published, by group, and which pages were shown, by plan."""

    values: dict[str, bytes]
    pages: dict[str, ApprovalPage]


@pytest.fixture(scope="module")
def sealed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sealed") / "lake"
    observe(spark, root, [*AUTO, *ASKED, *WAITING])
    seal_and_approve(spark, root, AUTO, ASKED, num_waiting=len(WAITING))
    return root


@pytest.fixture(scope="module")
def automatic(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of plans that the policy has approved."""
    return known(sealed, tmp_path_factory.mktemp("automatic") / "lake", AUTO)


@pytest.fixture(scope="module")
def answered(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of plans that a user has approved."""
    return known(sealed, tmp_path_factory.mktemp("answered") / "lake", ASKED)


@pytest.fixture(scope="module")
def waiting(sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of plans that wait for a user."""
    return known(sealed, tmp_path_factory.mktemp("waiting") / "lake", WAITING)


def known(source: Path, root: Path, groups: Sequence[str]) -> Lake:
    plans = {group: plan_id for group, plan_id in plan_ids(source).items() if group in groups}
    spread(source, root, list(plans.values()))
    rows = LakeReader(str(root)).read(PLANS, columns=["plan_id", "payload"]).to_pylist()
    return Lake(root, plans, {row["plan_id"]: row["payload"].encode() for row in rows}, {})


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The hint topic, and all else of Kafka: a dictionary."""
    written: dict[str, bytes] = {}

    @contextmanager
    def given(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(write=written.update, check_fence=lambda: None)

    def live(_loaded: Any, _cluster: str, plans: Any, _client: Any) -> Checked:
        """Every group is as it was planned: only what the lake says decides."""
        accepted = tuple(plan for plan in plans if plan["refusal"] is None)
        expired = tuple(RefusedPlan(plan, plan["refusal"], SLOT) for plan in plans if plan["refusal"])
        return Checked(accepted, expired)

    for name, value in {
        "admin_client": given,
        "hint_publisher": given,
        "kafka_cluster_id": lambda _client: "kafka-1",
        "ensure_hint_topic": lambda *_: None,
        "read_max_bytes": lambda *_: None,
        "read_hint_topic": lambda *_, **__: TopicState(True, {}, {}),
        "refresh_loads": lambda *_: LoadsReport(),
        "expire_stale": live,
        "_await_groups": lambda *_: {},
    }.items():
        monkeypatch.setattr(publish, name, value)
    return written


def run(root: Path, topic: dict[str, bytes], waiting: Sequence[str] = ()) -> Outcome:
    """Ask a user about plans that wait, who approves them, and publish."""
    loaded, pages = policy(root), dict[str, ApprovalPage]()
    topic.clear()
    for plan_id in waiting:
        try:
            asked = request_approval(loaded, "c", plan_id, run_id="ask", now=NOW, approvers=["ada"])
            pages[plan_id] = build_page(asked.plan, answer_by=asked.answer_by)
            record_answer(
                loaded, "c", plan_id, approve=True, actor=Actor("ada", Channel.PAGE), reason="fine",
                run_id="ask", now=NOW + timedelta(seconds=60),
            )  # fmt: skip
        except (NotWaitingError, NotAnApproverError):
            continue
        except LakeError:
            # A file is gone between the log and the data: the task is tried again.
            continue
    try:
        publish.publish_hints(loaded, "c", SLOT, "run")
    except LakeError:
        publish.publish_hints(loaded, "c", SLOT, "run")
    return Outcome(dict(topic), pages)


def check(lake: Lake, outcome: Outcome, forged: set[str], about: object) -> None:
    """Nothing is published that was not approved as shown; nothing is held back that nobody touched."""
    for group, value in outcome.values.items():
        plan_id = lake.plans[group]
        hint = decode_hint(value, group_id=group)
        assert (hint.plan_id, hint.payload.encode()) == (plan_id, lake.payloads[plan_id]), about
    for plan_id, page in outcome.pages.items():
        assert plan_id not in lake.pages or page == lake.pages[plan_id], about
    held = {group for group in lake.plans if group not in forged and group not in outcome.values}
    assert not held, (held, about)


class Case(NamedTuple):
    """A forgery, and when it is in the lake: from before an opening of its table's log on, or only for it."""

    forgery: Forgery
    start: int
    is_short: bool = False


def undo_all(undone: Sequence[Callable[[], None]]) -> None:
    for undo in undone:
        undo()


def attack(
    lake: Lake,
    folder: Path,
    cases: Sequence[Case],
    topic: dict[str, bytes],
    waiting: Sequence[str],
    patch: pytest.MonkeyPatch,
) -> tuple[Path, dict[str, tuple[Case, Edit]], Outcome]:
    """Run on a copy of a lake in which each group has another forgery."""
    groups = [group for group in lake.plans if group not in CONTROLS]
    edits = {
        group: (case, prepare(lake.root, case.forgery, lake.plans[group]))
        for group, case in zip(groups, cases, strict=False)
    }
    root = linked(lake.root, folder / "lake")
    reads = Reads()

    def act(table: Table, start: int) -> None:
        own = [
            (case, edit)
            for case, edit in edits.values()
            if (case.forgery.table, case.start) == (table, start)
        ]
        undone = [(case, edit.apply(root)) for case, edit in own]
        if any(case.forgery.kind == "checkpoint" for case, _ in own):
            write_checkpoint(root / table.name)
        short = [undo for case, undo in undone if case.is_short]
        reads.before.setdefault((table, start + 1), []).append(partial(undo_all, short))

    for table, start in {(case.forgery.table, case.start) for case, _ in edits.values()}:
        reads.before.setdefault((table, start), []).append(partial(act, table, start))
    with reads.counted(patch):
        outcome = run(root, topic, waiting)
    return root, edits, outcome


def num_openings(
    lake: Lake, folder: Path, topic: dict[str, bytes], waiting: Sequence[str]
) -> Mapping[Table, int]:
    """How often the log of each table is opened in a run on an untouched lake."""
    reads = Reads()
    with pytest.MonkeyPatch.context() as patch, reads.counted(patch):
        outcome = run(linked(lake.root, folder / "clean"), topic, waiting)
    lake.pages.update(outcome.pages)
    check(lake, outcome, set(), "untouched")
    assert set(outcome.values) == set(lake.plans)
    return reads.count


def is_reported(case: Case, edit: Edit, lake: Lake, group: str) -> bool:
    """Whether an alert has to report the plan, if it was not published."""
    kind, table, row, column = case.forgery
    # An approval of a user that is moved or removed is as if nobody had answered yet.
    is_gone = kind in ("other cluster", "removed row") or column in ("cluster", "plan_id")
    is_unseen = (table, row) == (PLAN_EVENTS, "APPROVED") and is_gone and edit.commit is not None
    is_answered = group.startswith("asked")
    return edit.is_read(lake.root, lake.plans[group]) and not (is_unseen and is_answered)


class Tally(NamedTuple):
    """What came of forgeries: how many there were, and those of which an alert is missing."""

    num_cases: Counter[str]
    unreported: list[str]


def forge(
    lake: Lake, cases: Sequence[Case], folder: Path, topic: dict[str, bytes], waiting: Sequence[str] = ()
) -> Tally:
    """Apply forgeries, as many at once as a lake has plans."""
    tally, size = Tally(Counter(), []), len(lake.plans) - len(CONTROLS & lake.plans.keys())
    for batch in batches(cases, size):
        with pytest.MonkeyPatch.context() as patch:
            root, edits, outcome = attack(lake, folder, batch, topic, waiting, patch)
        check(lake, outcome, set(edits), [str(case) for case in batch])
        tally.num_cases.update(case.forgery.kind for case in batch)
        reported = " ".join(alerts(root).values())
        for group, (case, edit) in edits.items():
            is_over = case.is_short or (case.start > 1 and group in outcome.values)
            is_missing = lake.plans[group][:12] not in reported
            if is_missing and not is_over and is_reported(case, edit, lake, group):
                tally.unreported.append(f"{case} {group}")
    return tally


def batches(cases: Sequence[Case], size: int) -> Iterator[Sequence[Case]]:
    """Cases that can be in one lake: a checkpoint ends the log that others edit."""
    by_kind: dict[int, list[Case]] = defaultdict(list)
    for case in cases:
        kind = case.forgery.kind
        by_kind[case.start if kind == "checkpoint" else 0].append(case)
    for own in by_kind.values():
        yield from (own[start : start + size] for start in range(0, len(own), size))


def every_time(forgeries: Sequence[Forgery], openings: Mapping[Table, int]) -> list[Case]:
    """Each forgery before each opening of its table's log, to stay and for one opening; checkpoints stay."""
    return [
        Case(forgery, start, is_short)
        for forgery in forgeries
        for start in range(1, openings[forgery.table] + 1)
        for is_short in (False, True)
        if not (is_short and forgery.kind == "checkpoint")
    ]


def at_some_time(
    forgeries: Sequence[Forgery], openings: Mapping[Table, int], chance: random.Random
) -> list[Case]:
    """Each forgery once, at a random time; checkpoints at the same one."""
    common = chance.randint(1, min(openings[forgery.table] for forgery in forgeries))
    return [
        Case(forgery, common)
        if forgery.kind == "checkpoint"
        else Case(forgery, chance.randint(1, openings[forgery.table]), chance.random() < 0.5)
        for forgery in forgeries
    ]


_PROGRESS = 500
APPROVED_EVENTS = ["PROPOSED", "APPROVED"]


@pytest.mark.parametrize("most", [13, pytest.param(None, marks=pytest.mark.extended)])
def test_plans_that_are_forged_after_their_approval_are_published_as_they_were_approved_or_not(
    automatic: Lake, answered: Lake, topic: dict[str, bytes], tmp_path: Path, most: int | None
) -> None:
    """Each column is forged in two ways, each row and file in all; `make soak` does all of it at any time.

    most: Forgeries drawn of each kind of plan and moment; None for all.
    """
    chance = random.Random(36)  # noqa: S311 - not a secret
    for lake, tables in ((automatic, TABLES[:-1]), (answered, (PLAN_EVENTS, APPROVAL_REQUESTS))):
        openings = num_openings(lake, tmp_path, topic, ())
        first = all_forgeries(tables, APPROVED_EVENTS, 0)
        later = all_forgeries(tables, APPROVED_EVENTS, 3)
        for cases in ([Case(forgery, 1) for forgery in first], at_some_time(later, openings, chance)):
            drawn = cases if most is None else chance.sample(cases, most)
            tally = forge(lake, drawn, tmp_path, topic)
            assert tally.unreported == []
            assert tally.num_cases.total() == len(drawn)


@pytest.mark.extended
def test_a_user_approves_what_the_page_showed_whatever_is_forged_meanwhile(
    waiting: Lake, topic: dict[str, bytes], tmp_path: Path
) -> None:
    ids, chance = list(waiting.plans.values()), random.Random(36)  # noqa: S311 - not a secret
    openings = num_openings(waiting, tmp_path, topic, ids)
    forgeries = chance.sample(all_forgeries(TABLES[:-1], ["PROPOSED"]), 32)
    tally = forge(waiting, at_some_time(forgeries, openings, chance), tmp_path, topic, ids)
    assert tally.num_cases.total() == len(forgeries)


def row_of(lake: Lake, table: Table, group: str, **is_equal: str) -> dict[str, Any]:
    filters = [("plan_id", "=", lake.plans[group]), *((name, "=", value) for name, value in is_equal.items())]
    (row,) = LakeReader(str(lake.root)).read(table, filters=filters).to_pylist()
    return dict(row)


@pytest.mark.parametrize("is_hidden", [pytest.param(False, marks=pytest.mark.extended), True])
@pytest.mark.parametrize(
    "change", [{}, {"group_id": AUTO[0]}, {"group_id": None}, {"plan_id": None}], ids=str
)
def test_an_approval_without_the_key_publishes_nothing_and_holds_back_no_other_plan(
    waiting: Lake, topic: dict[str, bytes], tmp_path: Path, is_hidden: bool, change: dict[str, str | None]
) -> None:
    """By statistics that name other plans, one read found the approval and the check of its seal did not."""
    root, forged = linked(waiting.root, tmp_path / "lake"), WAITING[1]
    event = row_of(waiting, PLAN_EVENTS, forged, event="PROPOSED")
    event |= {"event": "APPROVED", "actor": "ada", "channel": "page", "seal": None, "at": NOW} | change
    add_row(root, PLAN_EVENTS, event, is_hidden=is_hidden)
    outcome = run(root, topic, [waiting.plans[WAITING[0]]])
    assert set(outcome.values) == {WAITING[0]}
    if "plan_id" not in change:
        assert waiting.plans[forged][:12] in " ".join(alerts(root).values())


@pytest.mark.extended
def test_nobody_is_shown_another_head_or_approves_by_its_group(
    waiting: Lake, topic: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = POLICY.replace('match: "asked-*"', 'match: "asked-*", approvers: [ada]')
    rules = rules.replace("groups:\n", 'groups:\n  - {{match: "eve-*", mode: approve, approvers: [eve]}}\n')
    monkeypatch.setattr("tests.support.sealing.sealed_lake.POLICY", rules)
    root, forged = linked(waiting.root, tmp_path / "lake"), WAITING[1]
    plan_id, now = waiting.plans[forged], NOW + timedelta(seconds=60)
    head = row_of(waiting, PLANS, forged) | {"group_id": "eve-1", "moves": 0}
    # By its statistics another plan's: nobody reads it.
    add_row(root, PLANS, head, is_old=True, is_hidden=True)
    answer: dict[str, Any] = {"approve": True, "reason": "", "run_id": "ask", "now": now}
    with pytest.raises(NotAnApproverError):
        record_answer(policy(root), "c", plan_id, actor=Actor("eve", Channel.PAGE), **answer)
    pages = run(root, topic, [plan_id]).pages
    num_openings(waiting, tmp_path, topic, list(waiting.plans.values()))
    assert pages == {plan_id: waiting.pages[plan_id]}
    # Where it can be read, or the log names it, the plan is neither shown nor approved by anybody.
    for is_old in (False, True):
        root = linked(waiting.root, tmp_path / "lake")
        add_row(root, PLANS, head, is_old=is_old)
        assert run(root, topic, [plan_id]) == Outcome({}, {})
        assert plan_id[:12] in " ".join(alerts(root).values())


@pytest.mark.parametrize(
    "change",
    [
        {"at": None},
        {"event": "LATER"},
        {"event": None},
        {"reason": "x" * 20_000_000},
        {"sequence": -(2**63)},
        {"snapshot_id": "\x00"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_garbage_in_an_event_of_a_plan_is_that_plans_fault(
    answered: Lake, topic: dict[str, bytes], tmp_path: Path, change: dict[str, Any]
) -> None:
    root, forged = linked(answered.root, tmp_path / "lake"), ASKED[1]
    event = row_of(answered, PLAN_EVENTS, forged, event="APPROVED") | {"seal": None}
    add_row(root, PLAN_EVENTS, event | change)
    outcome = run(root, topic)
    check(answered, outcome, {forged}, change)
    assert forged not in outcome.values
    assert answered.plans[forged][:12] in " ".join(alerts(root).values())


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_every_forgery_before_every_read(
    automatic: Lake, answered: Lake, waiting: Lake, topic: dict[str, bytes], tmp_path: Path
) -> None:
    num_cases: Counter[str] = Counter()
    for lake, events, asked in (
        (automatic, APPROVED_EVENTS, ()),
        (answered, APPROVED_EVENTS, ()),
        (waiting, ["PROPOSED"], list(waiting.plans.values())),
    ):
        forgeries = all_forgeries(TABLES if lake is answered else TABLES[:-1], events)
        openings = num_openings(lake, tmp_path, topic, asked)
        cases = every_time(forgeries, openings)
        # In a random order: a run that is ended has seen all kinds and times.
        random.Random(36).shuffle(cases)  # noqa: S311 - not a secret
        for start in range(0, len(cases), _PROGRESS):
            tally = forge(lake, cases[start : start + _PROGRESS], tmp_path, topic, asked)
            assert lake is waiting or tally.unreported == []
            num_cases.update(tally.num_cases)
            print(f"{num_cases.total():,} cases, {start + _PROGRESS:,} of {len(cases):,}", flush=True)  # noqa: T201
    print(f"{num_cases.total():,} cases: {dict(num_cases)}")  # noqa: T201 - the figure of the note
