"""The report's first line and its time to drain, from the rows of each table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.expected.change import read_change
from tests.truth.oracle.forms import duration, number
from tests.truth.oracle.lake_rows import counted

if TYPE_CHECKING:
    from tests.truth.oracle.expected.change import Change
    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.report_period import Period

_NOT_KNOWN: Final = "not known"
_NEVER: Final = "never"
_PARTS: Final = ("before", "predicted", "after")
_LOST: Final = ("IGNORED", "EXPIRED", "WITHDRAWN")


@dataclass(frozen=True, slots=True)
class ExpectedVerdict:
    """Texts that the verdict contains, and its color."""

    parts: tuple[str, ...]
    kind: str


def expected_verdict(period: Period) -> ExpectedVerdict:
    """Return what the verdict of a period has to say."""
    change = read_change(period)
    if change is None or change.plan is None:
        return _without_plan(period)
    plan, status = change.plan, change.plan["status"]
    before, predicted, after = (_most(period, change, number_of) for number_of in range(3))
    if status == "APPLIED":
        evaluated, kind = _evaluated(period, change)
        effect = (
            f"went from {before} to {after} records of lag; predicted {predicted}." if after else "not known."
        )
        return ExpectedVerdict((f"Plan followed{_at(period, plan)}: the most", effect, evaluated), kind)
    would = "would have taken" if status in {*_LOST, "REJECTED"} else "would take"
    prospect = (
        f"it {would} the most loaded member from {before or 'an unknown number of'} to "
        f"{predicted or 'an unknown number of'} records of lag with {number(plan['moves'])} move"
    )
    return ExpectedVerdict((_what(period, plan) + _at(period, plan), prospect), _kind(status))


def drain_tile(period: Period) -> str | None:
    """Return the time to drain before and after the plan, as the headline shows it; None without one."""
    change = read_change(period)
    if change is None or change.plan is None:
        return None
    before = _drain(period, change.plan["snapshot_id"])
    outcome = period.rows.one("outcomes", plan_id=change.plan["plan_id"])
    if len(change.parts) < len(_PARTS) or outcome is None:
        return None if before == _NOT_KNOWN else before
    after = _drain(period, outcome["snapshot_id"])
    return None if before == after == _NOT_KNOWN else f"{before} → {after}"


def _drain(period: Period, snapshot_id: str) -> str:
    longest = 0
    is_known = True
    for row in period.rows.lag_of(snapshot_id, period.group_id):
        if row["status"] == "NOT_SUBSCRIBED" or row["lag_records"] == 0:
            continue
        if row["lag_records"] is None:
            is_known = False
        elif row["drain_time_ms"] is not None:
            longest = max(longest, row["drain_time_ms"])
        elif row["arrival_rate_records_per_s"] is None or row["consume_rate_records_per_s"] is None:
            is_known = False
        else:
            return _NEVER
    return duration(longest) if is_known else _NOT_KNOWN


def _most(period: Period, change: Change, part: int) -> str:
    """Lag of the most loaded member before, predicted or after; empty if it is not known."""
    if part >= len(change.parts):
        return ""
    known = [lag for lag, _ in change.parts[part].values() if lag is not None]
    if not known:
        return ""
    unknown = any(row["lag_records"] is None for row in _rows(period, change, part))
    return f"at least {number(max(known))}" if unknown else number(max(known))


def _rows(period: Period, change: Change, part: int) -> list[Row]:
    """Lag of the snapshot that a part of a change is from: of the plan, or of its outcome."""
    table = "outcomes" if part == len(_PARTS) - 1 else "plans"
    row = period.rows.one(table, plan_id=(change.plan or {})["plan_id"]) or {}
    return counted(period.rows.lag_of(row["snapshot_id"], period.group_id))


def _at(period: Period, plan: Row) -> str:
    """Time of the event that the status is: its date, too, if the plans are of several days."""
    events = [row for row in period.events if row["plan_id"] == plan["plan_id"]]
    last = [row["at"] for row in events if row["event"] == plan["status"]]
    if not last:
        return ""
    moments = [last[-1], period.snapshot(plan["snapshot_id"])["end_read_at"]]
    moments += [each["slot"] for each in period.plans]
    days = {each.astimezone(UTC).strftime("%Y-%m-%d") for each in moments}
    form = " at %H:%M" if len(days) == 1 else " on %Y-%m-%d %H:%M"
    return str(last[-1].astimezone(UTC).strftime(form))


def _what(period: Period, plan: Row) -> str:
    events = [row for row in period.events if row["plan_id"] == plan["plan_id"]]
    has_hint = any(row["event"] == "PUBLISHED" or row["sequence"] is not None for row in events)
    words = {
        "IGNORED": "Hint not followed" if has_hint else "Plan not followed",
        "EXPIRED": "Hint expired" if has_hint else "Plan expired before its hint was published",
        "WITHDRAWN": "Hint withdrawn" if has_hint else "Plan withdrawn before its hint was published",
        "REJECTED": "Plan rejected",
        "PUBLISHED": "Hint published and not followed yet",
        "APPROVED": "Plan approved and not published yet",
    }
    if plan["status"] == "PROPOSED" and plan["mode"] == "shadow":
        return "Plan in shadow mode, which publishes nothing"
    return words.get(plan["status"], "Plan proposed and not decided yet")


def _kind(status: str) -> str:
    return "warn" if status in _LOST else "plain"


def _evaluated(period: Period, change: Change) -> tuple[str, str]:
    evaluation = period.rows.one("plan_evaluations", plan_id=(change.plan or {})["plan_id"])
    if evaluation is None or evaluation["snapshot_id"] not in period.ids:
        return "Whether it was worth it is known at its horizon.", "plain"
    words, kind = {
        True: ("It was worth it", "good"),
        False: ("It was not worth it", "warn"),
        None: ("Whether it was worth it is open", "plain"),
    }[evaluation["paid_off"]]
    return f"{words}: {evaluation['reason']}.", kind


def _without_plan(period: Period) -> ExpectedVerdict:
    decisions = period.of_group("decisions")
    if not decisions:
        return ExpectedVerdict(("No plan was made in the period",), "plain")
    newest = max(row["slot"] for row in decisions)
    kinds = {row["decision"] for row in decisions if row["slot"] == newest}
    words = {"NO_CHANGE": "No plan was needed in the period", "BREACH": "No plan yet"}
    shown = {words.get(kind, "The group could not be planned") for kind in kinds}
    return ExpectedVerdict((min(shown),), "plain" if kinds <= set(words) else "warn")
