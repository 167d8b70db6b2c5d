"""One group as a row of the overview's table."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from evenlag.enums import PlanEvent
from evenlag.formatting import NOTHING, at_least, bounded, bounded_duration, duration, number
from evenlag.html.markup import Html, badge, text
from evenlag.overview.choice import SORTS, states_of
from evenlag.overview.evaluation import evaluation_text
from evenlag.overview.model import ATTENTION, Drain, Sign
from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from evenlag.overview.model import GroupRow, LastPlan

SIGN_WORDS: Final = {
    Sign.WAITING: "waits for approval",
    Sign.NOT_FOLLOWED: "hint not followed",
    Sign.GATES: "failed gates",
    Sign.FAILED: "planning failed",
    Sign.HOT: "hot partition",
    Sign.STALLED: "stalled",
    Sign.UNKNOWN: "lag not known",
    Sign.GROWING: "growing",
    Sign.REBALANCING: "rebalancing",
    Sign.NO_MEMBERS: "no members",
}
_STATUS_KIND: Final[Mapping[str, str]] = {
    PlanEvent.APPLIED: "good",
    PlanEvent.PUBLISHED: "good",
    PlanEvent.REJECTED: "bad",
    PlanEvent.IGNORED: "warn",
    PlanEvent.EXPIRED: "warn",
}
_WIDTH, _HEIGHT = 72, 20


def row_html(row: GroupRow, *, is_shown: bool, has_clusters: bool) -> Html:
    """Build the row of a group."""
    cells: tuple[tuple[str, Html], ...] = (
        ("lag", text(bounded(row.lag_records, row.lag_bound))),
        ("trend", _trend(row)),
        ("behind", text(bounded_duration(row.time_lag_ms, row.time_lag_at_least_ms))),
        ("skew", text(number(row.lag_skew, digits=2))),
        ("drain", text(_drain(row))),
        ("mode", _mode(row)),
        ("plan", _plan(row)),
        ("signs", _signs(row)),
    )
    numbers = {"lag", "trend", "behind", "skew", "drain"}
    tds = "".join(
        f"<td{' class=n' if key in numbers else ''}{_value(key, row)}>{text(html)}</td>"
        for key, html in cells
    )
    hidden = "" if is_shown else " hidden"
    states = page_text(" ".join(states_of(row)))
    return Html(
        f'<tr data-s="{states}" data-c="{page_text(row.cluster)}"{hidden}>'
        f'<th scope="row">{_name(row, has_clusters=has_clusters)}</th>{tds}</tr>'
    )


def _value(key: str, row: GroupRow) -> Html:
    """Value that the script orders by; no attribute where there is none."""
    value = SORTS[key](row)
    return Html("" if value is None else f' data-v="{float(value):.10g}"')


def _name(row: GroupRow, *, has_clusters: bool) -> Html:
    link = urlencode({"cluster": row.cluster, "group": row.group_id})
    about = [
        *([page_text(row.cluster)] if has_clusters else ()),
        text(_count(row.num_members, "member")),
        text(_count(row.num_partitions, "partition")),
    ]
    return Html(
        f'<a href="report?{page_text(link)}">{page_text(row.group_id)}</a>'
        f'<span class="soft sub">{" · ".join(about)}</span>'
    )


def _count(value: int, noun: str) -> str:
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def _trend(row: GroupRow) -> Html:
    change = row.change_records
    if change is None:
        return text(NOTHING)
    kind = " class=up" if row.is_growing else ""
    return Html(f"{_sparkline(row.trend)}<span{kind}>{text(format(change, '+,'))}</span>")


def _sparkline(points: Sequence[int | None]) -> Html:
    """Lag over the last snapshots; the number beside it says the same to a screen reader."""
    known = [value for value in points if value is not None]
    top, step = max([1, *known]), _WIDTH / max(1, len(points) - 1)
    lines: list[list[str]] = [[]]
    for place, value in enumerate(points):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{place * step:.0f} {_HEIGHT - 1 - (_HEIGHT - 2) * value / top:.0f}")
    # A point between two gaps is a dash.
    path = "".join(f"M{'L'.join(line)}{'h2' if len(line) == 1 else ''}" for line in lines if line)
    return Html(
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true">'
        f'<path d="{text(path)}"/></svg>'
    )


def _drain(row: GroupRow) -> str:
    if row.drain is Drain.NEVER:
        return "not shrinking"
    if row.drain is Drain.UNKNOWN:
        return NOTHING
    return "caught up" if row.drain_time_ms == 0 else duration(row.drain_time_ms)


def _mode(row: GroupRow) -> Html:
    if row.mode is None:
        return text(NOTHING)
    by_policy = row.policy_mode if row.policy_mode not in {None, row.mode} else None
    policy_mode = f'<span class="soft sub">{page_text(by_policy)} by policy</span>' if by_policy else ""
    return Html(f"{page_text(row.mode)}{policy_mode}")


def _plan(row: GroupRow) -> Html:
    """Newest plan; and the newest settled hint, if it is another plan's."""
    parts: list[str] = []
    plan, hint = row.plan, row.hint
    is_same = plan is not None and hint is not None and plan.plan_id == hint.plan_id
    if plan is not None:
        actual = at_least(hint.actual_records, hint.num_unknown) if is_same and hint is not None else None
        parts.append(_plan_line(plan, actual))
        evaluated = evaluation_text(plan, hint) if is_same and hint is not None else None
        if evaluated is not None:
            parts.append(f'<span class="sub">{text(evaluated)}</span>')
    if hint is not None and not is_same:
        word = badge(hint.outcome, _STATUS_KIND.get(hint.outcome, "plain"))
        effect = f"{number(hint.before_records)} → {at_least(hint.actual_records, hint.num_unknown)}"
        parts.append(f'<span class="sub">hint {word} {_short(hint.settled_at)}: {effect}</span>')
    if not parts and row.decision_reason:
        parts.append(_clip(row.decision_reason))
    return Html("".join(parts) or NOTHING)


def _plan_line(plan: LastPlan, actual: str | None) -> Html:
    status = plan.status or "no event"
    kind = _STATUS_KIND.get(status, "plain")
    before = at_least(plan.before_records, plan.num_unknown)
    after = actual or at_least(plan.after_records, plan.num_unknown)
    expected = "" if actual else " planned"
    change = f"{before} → {after}{expected}, {_count(plan.moves, 'move')}"
    gates = f"failed: {page_text(', '.join(plan.failed_gates))}" if plan.failed_gates else ""
    failed_gates = f"<span class=sub>{gates}</span>" if gates else ""
    why = f' title="{page_text(plan.reason)}"' if plan.reason else ""
    return Html(
        f"<span{why}>{badge(status, kind)} {_short(plan.slot)}</span>{failed_gates}"
        f"<span class=sub>{text(change)}</span>"
    )


def _clip(reason: str | None) -> Html:
    """A reason on one line, cut by the page where there is no room; its title has all of it."""
    escaped = page_text(reason or "")
    return Html(f'<span class="soft clip" title="{escaped}">{escaped}</span>')


def _short(value: datetime) -> Html:
    utc = value.astimezone(UTC)
    return Html(f'<time datetime="{utc.isoformat()}">{utc:%m-%d %H:%M}</time>')


def _signs(row: GroupRow) -> Html:
    parts = []
    for sign in row.signs:
        kind = "plain" if sign not in ATTENTION else "bad" if sign in _BAD else "warn"
        parts.append(f"{badge(SIGN_WORDS[sign], kind)}{_detail(sign, row)}")
    return Html(" ".join(f"<span class=sign>{part}</span>" for part in parts))


_BAD: Final = frozenset({Sign.NOT_FOLLOWED, Sign.FAILED, Sign.STALLED})


def _detail(sign: Sign, row: GroupRow) -> Html:
    """What a sign is about, after its badge."""
    detail = ""
    match sign:
        case Sign.WAITING if row.approval_until is not None:
            return Html(f" until {_short(row.approval_until)}")
        case Sign.HOT:
            about, name = page_text(row.hot_message or ""), page_text(row.hot or "")
            return Html(f' <span title="{about}">{name}</span>')
        case Sign.STALLED:
            detail = _count(row.num_stalled, "partition")
        case Sign.UNKNOWN:
            count = f"{row.num_unknown:,} of {_count(row.num_partitions, 'partition')}"
            detail = f"{count}{': ' * bool(row.unknown_facts)}" if row.num_unknown else ""
            return Html(f" {page_text(detail)}{_clip(row.unknown_facts)}")
        case Sign.NOT_FOLLOWED if row.hint is not None:
            return Html(f" {_clip(row.hint.reason)}")
        case Sign.FAILED:
            return Html(f" {_clip(row.decision_reason)}")
    return Html(f" {page_text(detail)}" if detail else "")
