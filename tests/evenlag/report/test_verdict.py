"""The first line of a report: one example of each fate of a plan, and of a period without one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenlag.report.model import DecisionSummary, LagChange, MemberLag, Verdict
from evenlag.report.verdict import build_verdict

AT = datetime(2026, 11, 23, 15, 47, tzinfo=UTC)
LATER = AT + timedelta(minutes=5)
NOW = {"lag_records": 60_000, "max_member_lag_records": 4_403, "num_unknown_partitions": 0}
# 58,743 of 60,000 records are at the first member; after the plan 4,403 of 16,000.
CHANGE = LagChange(
    members=(MemberLag("c-0", 58_743, 15_433, 4_403), MemberLag("c-1", 800, 15_000, 4_000)),
    before_at=AT,
    plan_id="p",
    status="APPLIED",
    moves=3,
    after_at=LATER,
    unknown_before=(0, 12),
    unknown_after=(0, 12),
)
WITHOUT_AFTER = replace(
    CHANGE,
    members=tuple(replace(member, after=None) for member in CHANGE.members),
    after_at=None,
)


def verdict_of(
    change: LagChange | None,
    *,
    evaluation: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    events: tuple[str, ...] = ("PROPOSED", "APPROVED", "PUBLISHED"),
    others: tuple[str | None, ...] = (),
    decisions: tuple[DecisionSummary, ...] = (),
    now: dict[str, Any] = NOW,
) -> Verdict:
    status = None if change is None else change.status
    head = {"plan_id": "p", "slot": AT, "mode": "auto", "status": status, "reason": None} | (plan or {})
    plans: list[dict[str, Any]] = [
        head,
        *({"plan_id": str(n), "slot": AT, "status": each} for n, each in enumerate(others)),
    ]
    names = [*events] if status is None or status in events else [*events, status]
    rows = [{"plan_id": "p", "event": name, "at": LATER, "sequence": None} for name in names]
    return build_verdict(change, plans, rows, evaluation, now=now, decisions=decisions)


def test_a_followed_plan_says_from_what_to_what_and_what_was_predicted() -> None:
    verdict = verdict_of(CHANGE)
    assert verdict.happened == (
        "Plan followed at 15:52: the most loaded member went from 58,743 to 4,403 records of lag; "
        "predicted 15,433."
    )
    assert verdict.evaluation == "Whether it was worth it is known at its horizon."
    assert (verdict.kind, verdict.others) == ("plain", "")
    assert verdict.text == f"{verdict.happened} {verdict.evaluation}"


def test_before_the_horizon_it_says_what_is_expected() -> None:
    verdict = verdict_of(CHANGE, plan={"record_s_saved": 9_000.0, "record_s_cost": 1_500.0})
    assert verdict.evaluation == (
        "Whether it was worth it is known at its horizon. It is expected to save 7,500 record-seconds."
    )


@pytest.mark.parametrize(
    ("paid_off", "kind", "words"),
    [
        (True, "good", "It was worth it: records waited."),
        (False, "warn", "It was not worth it: records waited."),
        (None, "plain", "Whether it was worth it is open: records waited."),
    ],
)
def test_at_its_horizon_the_evaluation_decides(paid_off: bool | None, kind: str, words: str) -> None:
    verdict = verdict_of(CHANGE, evaluation={"paid_off": paid_off, "reason": "records waited"})
    assert (verdict.kind, verdict.evaluation) == (kind, words)


def test_lag_that_is_not_known_is_a_bound() -> None:
    assert "to at least 4,403 records" in verdict_of(replace(CHANGE, unknown_after=(2, 12))).happened
    assert "the lag after is not known" in verdict_of(WITHOUT_AFTER).happened


@pytest.mark.parametrize(
    ("status", "events", "kind", "words"),
    [
        ("EXPIRED", ("PUBLISHED",), "warn", "Hint expired at 15:52 (because): it would have taken"),
        (
            "EXPIRED",
            (),
            "warn",
            "Plan expired before its hint was published at 15:52 (because): it would have",
        ),
        ("IGNORED", ("PUBLISHED",), "warn", "Hint not followed at 15:52 (because): it would have taken"),
        ("WITHDRAWN", ("PUBLISHED",), "warn", "Hint withdrawn at 15:52 (because): it would have taken"),
        ("REJECTED", (), "plain", "Plan rejected at 15:52 (because): it would have taken"),
        ("PUBLISHED", (), "plain", "Hint published and not followed yet at 15:52 (because): it would take"),
        ("APPROVED", (), "plain", "Plan approved and not published yet at 15:52 (because): it would take"),
        ("PROPOSED", (), "plain", "Plan proposed and not decided yet at 15:52 (because): it would take"),
    ],
)
def test_each_other_fate_has_its_words(status: str, events: tuple[str, ...], kind: str, words: str) -> None:
    verdict = verdict_of(replace(WITHOUT_AFTER, status=status), events=events, plan={"reason": "because"})
    assert verdict.happened.startswith(words)
    assert verdict.happened.endswith(
        "the most loaded member from 58,743 to 15,433 records of lag with 3 moves."
    )
    assert (verdict.kind, verdict.evaluation) == (kind, "")


def test_a_plan_in_shadow_mode_says_that_nothing_is_published() -> None:
    shadow = replace(WITHOUT_AFTER, status="PROPOSED", moves=1)
    verdict = verdict_of(shadow, plan={"mode": "shadow"}, events=())
    assert verdict.happened.startswith("Plan in shadow mode, which publishes nothing at 15:52: it would take")
    assert verdict.happened.endswith("with 1 move.")


def test_the_other_plans_are_counted_and_days_have_dates() -> None:
    verdict = verdict_of(CHANGE, others=("APPLIED", "REJECTED", None))
    assert verdict.others == "The period has 4 plans: 2 followed, 1 rejected, 1 without an event."
    assert (
        "Plan followed on 2026-11-23 15:52:"
        in verdict_of(replace(CHANGE, before_at=AT - timedelta(days=1))).happened
    )


@pytest.mark.parametrize(
    ("decision", "reason", "kind", "words"),
    [
        ("NO_CHANGE", "nothing would gain enough", "plain",
         "No plan was needed in the period: nothing would gain enough."),
        ("BREACH", "1 of 3 in a row", "plain", "No plan yet: 1 of 3 in a row."),
        ("NOT_PLANNED", "the group has no members", "warn",
         "The group could not be planned: the group has no members."),
        ("FAILED", None, "warn", "The group could not be planned."),
    ],
)  # fmt: skip
def test_without_a_plan_the_last_decision_says_why(
    decision: str, reason: str | None, kind: str, words: str
) -> None:
    older = DecisionSummary("NO_CHANGE", 9, AT, "older")
    verdict = verdict_of(None, decisions=(older, DecisionSummary(decision, 1, LATER, reason)))
    assert verdict.happened == (
        f"{words} The most loaded member has 4,403 of the group's 60,000 records of lag."
    )
    assert verdict.kind == kind
    bound = verdict_of(None, now=NOW | {"num_unknown_partitions": 3}).happened
    assert bound.startswith("No plan was made in the period, the group was only observed.")
    assert "has at least 4,403 of" in bound
