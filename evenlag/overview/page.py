"""The overview as one HTML page: complete without scripts; a script filters, sorts and refreshes in place."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode

from evenlag.enums import Mode, Outcome, PlanEvent
from evenlag.formatting import (
    NOTHING,
    at_least,
    bounded,
    bounded_duration,
    count_of,
    duration,
    number,
    percent,
)
from evenlag.html.markup import Html, badge, numbers, page, text, when
from evenlag.overview.model import ClusterState, GroupRow, Overview, Sign
from evenlag.queries.advice import needed_text, target_text
from evenlag.safe_text import printable_lines

REFRESH_S: Final = 30
# While a cluster is being read again.
_REFRESH_SOON_S: Final = 3
_FOLDER: Final = Path(__file__).parent
_HEADINGS: Final = (
    ("group", "Group"),
    ("lag", "Lag"),
    ("trend", "Trend"),
    ("behind", "Behind by"),
    ("skew", "Skew"),
    ("drain", "Drains in"),
    ("mode", "Mode"),
    ("plan", "Last plan and hint"),
    ("signs", "To look at"),
)
_NUMBERS: Final = frozenset({"lag", "trend", "behind", "skew", "drain"})
SIGN_WORDS: Final = {
    Sign.WAITING: "waits for approval",
    Sign.NOT_FOLLOWED: "hint not followed",
    Sign.GATES: "failed gates",
    Sign.FAILED: "planning failed",
    Sign.HOT: "hot partition",
    Sign.TARGET: "target missed",
    Sign.STALLED: "stalled",
    Sign.UNKNOWN: "lag not known",
    Sign.GROWING: "growing",
    Sign.REBALANCING: "rebalancing",
    Sign.NO_MEMBERS: "no members",
}
# Longer names are cut in the middle, where there is no room: the last letters stay.
_LONG_NAME: Final = 28
_TAIL: Final = 10
_STATUS_KIND: Final[Mapping[str, str]] = {
    PlanEvent.APPLIED: "good",
    PlanEvent.PUBLISHED: "good",
    PlanEvent.REJECTED: "bad",
    PlanEvent.IGNORED: "warn",
    PlanEvent.EXPIRED: "warn",
}
_WIDTH, _HEIGHT = 72, 20
ATTENTION_STATE: Final = "attention"
# A group that never drains comes after every one that does.
_NEVER_MS: Final = 10**15
_MODES: Final = tuple(Mode)

# Columns that rows can be ordered by: the value of a row, None if it has none.
SORTS: Final[Mapping[str, Callable[[GroupRow], Any]]] = {
    "group": lambda row: (row.group_id.casefold(), row.cluster),
    "lag": lambda row: row.lag_records,
    "trend": lambda row: row.change_records,
    "behind": lambda row: row.time_lag_ms if row.time_lag_ms is not None else row.time_lag_at_least_ms,
    "skew": lambda row: row.lag_skew,
    "drain": lambda row: None if row.drain_time_ms is None else min(row.drain_time_ms, _NEVER_MS),
    "mode": lambda row: _MODES.index(row.mode) if row.mode in _MODES else None,
    "plan": lambda row: row.plan["slot"].timestamp() if row.plan else None,
    "signs": lambda row: len(row.signs) + 100 * bool(row.asking_signs),
}
DEFAULT_SORT: Final = "lag"
_ASCENDING: Final = frozenset({"group"})
MAX_SEARCH: Final = 300


@dataclass(frozen=True, slots=True)
class Choice:
    """Search, filters and order of the overview; the defaults show all groups, the largest lag first.

    search: Part of a group id as it is shown, in any case.
    state: ``attention``, one of :class:`~evenlag.overview.model.Sign`, or a mode; empty: all.
    """

    search: str = ""
    cluster: str = ""
    state: str = ""
    sort: str = DEFAULT_SORT
    is_reversed: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Self:
        """Read a choice from the query of a URL; values that do not exist are ignored."""
        sort, state = query.get("sort", ""), query.get("state", "")
        states = {ATTENTION_STATE, *Sign, *Mode}
        return cls(
            search=query.get("q", "")[:MAX_SEARCH],
            cluster=query.get("cluster", ""),
            state=state if state in states else "",
            sort=sort if sort in SORTS else DEFAULT_SORT,
            is_reversed=query.get("order") == "reversed",
        )

    @property
    def is_ascending(self) -> bool:
        """Whether the smallest value comes first."""
        return (self.sort in _ASCENDING) != self.is_reversed

    def matches(self, row: GroupRow) -> bool:
        """Return whether a group is shown."""
        return (
            (not self.cluster or row.cluster == self.cluster)
            # As it is shown: who searches sees the escapes.
            and self.search.casefold() in printable_lines(row.group_id).casefold()
            and (not self.state or self.state in states_of(row))
        )

    def ordered(self, rows: Iterable[GroupRow]) -> list[GroupRow]:
        """Order groups; those without a value come last, equal ones by name."""
        value = SORTS[self.sort]
        named = sorted(rows, key=lambda row: (row.group_id, row.cluster))
        known = [row for row in named if value(row) is not None]
        known.sort(key=value, reverse=not self.is_ascending)
        return known + [row for row in named if value(row) is None]

    def link(self, sort: str) -> str:
        """Return the URL that orders by a column, or turns its order round if it is in use."""
        order = "reversed" if sort == self.sort and not self.is_reversed else ""
        pairs = {"q": self.search, "cluster": self.cluster, "state": self.state, "sort": sort, "order": order}
        return f"?{urlencode({name: value for name, value in pairs.items() if value})}"


def states_of(row: GroupRow) -> list[str]:
    """Return the values of the filter by state that show a group."""
    states = [str(sign) for sign in row.signs]
    if row.mode:
        states.append(row.mode)
    return [*states, ATTENTION_STATE] if row.asking_signs else states


@cache
def asset(name: str) -> str:
    """Return the text of a file beside this module."""
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def content_policy() -> str:
    """Return the page's content security policy: its own script and styles, requests to its own server."""
    digest = base64.b64encode(hashlib.sha256(asset("overview.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'"
    )


def overview_page(overview: Overview, choice: Choice) -> str:
    """Build the page. It has all groups, so the script filters without a request, and no time of its own."""
    has_clusters = len(overview.clusters) > 1
    is_partial = any(each.is_being_read for each in overview.clusters)
    seconds = _REFRESH_SOON_S if is_partial else REFRESH_S
    reload = f'<noscript><meta http-equiv="refresh" content="{seconds}"></noscript>' if is_partial else ""
    shown = frozenset(id(row) for row in overview.groups if choice.matches(row))
    rows = choice.ordered(overview.groups)
    body = (
        f"<main><header><h1>Consumer groups</h1>"
        f'<div id="clusters" data-refresh="{seconds}">'
        f"{cluster_lines(overview.clusters)}{reload}</div></header>"
        f'<div id="totals">{_totals(overview.groups)}</div>'
        f"{_form(overview, choice)}"
        f'<p class="bar"><span id="count" role="status">{len(shown):,} of {len(rows):,} groups</span>'
        f'<span id="refreshed" class="soft"></span></p>'
        f"{_table(rows, shown, choice, has_clusters=has_clusters)}"
        f'<p id="none" class="note"{" hidden" if shown else ""}>{_nothing(overview)}</p></main>'
    )
    return page(
        "evenlag: consumer groups",
        f"{body}\n<script>{asset('overview.js')}</script>",
        policy=content_policy(),
        style=asset("overview.css"),
    )


def cluster_lines(clusters: Iterable[ClusterState]) -> Html:
    """One line per cluster: how old and how complete its last snapshot is, or why it has no rows."""
    lines = []
    for each in clusters:
        name = f"<b>{text(each.name)}</b>" + (f" {badge(*each.live)} last cycle" if each.live else "")
        if each.problem is not None or each.read_at is None:
            lines.append(f'<li class="bad">{name}: {text(each.problem or "no snapshot")}</li>')
            continue
        line = f"{name} read at {when(each.read_at)} UTC"
        if each.completeness is not None and each.completeness < 1:
            line += f', <span class="warn-text">{percent(each.completeness)} of its partitions</span>'
        if each.is_being_read:
            line += ", being read again"
        if each.is_stale:
            line += ', <span class="warn-text">no newer snapshot when one was due</span>'
        lines.append(f"<li>{line}</li>")
    return Html(f'<ul class="clusters soft">{"".join(lines)}</ul>')


def _totals(rows: Sequence[GroupRow]) -> Html:
    known = [row.lag_records for row in rows if row.lag_records is not None]
    total = sum(known) if known else None
    shown_by = Counter(state for row in rows for state in states_of(row))
    return numbers(
        (
            (number(len(rows)), "groups"),
            (at_least(total, sum(row.num_unknown_partitions for row in rows)), "records behind"),
            (number(shown_by[ATTENTION_STATE]), _filter_link(ATTENTION_STATE, "groups to look at")),
            (number(shown_by[Sign.WAITING]), _filter_link(Sign.WAITING, "plans wait for approval")),
        )
    )


def _filter_link(state: str, label: str) -> Html:
    return Html(f'<a href="?state={text(state)}">{text(label)}</a>')


def _form(overview: Overview, choice: Choice) -> Html:
    """Search and filters; the button applies them where scripts do not run."""
    clusters = [("", "all clusters"), *((each.name, each.name) for each in overview.clusters)]
    states = [
        ("", "all groups"),
        (ATTENTION_STATE, "to look at"),
        *((str(sign), SIGN_WORDS[sign]) for sign in Sign),
        *((str(mode), f"mode {mode}") for mode in Mode),
    ]
    chosen = _select("cluster", "Cluster", clusters, choice.cluster) if len(overview.clusters) > 1 else ""
    order = '<input type="hidden" name="order" value="reversed">' if choice.is_reversed else ""
    return Html(
        '<form method="get" role="search" aria-label="Groups">'
        '<label>Search <input type="search" name="q" autocomplete="off" spellcheck="false" '
        f'value="{text(choice.search)}" placeholder="part of a group id  ( / )"></label>'
        f"{chosen}{_select('state', 'State', states, choice.state)}"
        f'<span class="on-phone">{_select("sort", "Order by", _HEADINGS, choice.sort)}</span>{order}'
        '<noscript><button type="submit">Show</button></noscript>'
        '<label class="check" id="auto" hidden><input type="checkbox" id="refresh" checked> '
        f"Refresh every {REFRESH_S} s</label></form>"
    )


def _select(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> Html:
    items = "".join(
        f'<option value="{text(value)}"{" selected" if value == chosen else ""}>{text(word)}</option>'
        for value, word in options
    )
    return Html(f'<label>{text(label)} <select name="{text(name)}">{items}</select></label>')


def _table(rows: Iterable[GroupRow], shown: frozenset[int], choice: Choice, *, has_clusters: bool) -> Html:
    heads = "".join(
        f'<th scope="col"{" class=n" if key in _NUMBERS else ""}{_order(key, choice)}>'
        f'<a href="{text(choice.link(key))}" data-sort="{key}">{title}</a></th>'
        for key, title in _HEADINGS
    )
    body = "".join(text(row_html(row, is_shown=id(row) in shown, has_clusters=has_clusters)) for row in rows)
    return Html(
        '<div class="scroll" tabindex="0" role="region" aria-label="Groups, a row each">'
        '<table class="groups"><caption>Lag in records, and its trend over the last snapshots. '
        "A heading orders by its column.</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _order(key: str, choice: Choice) -> Html:
    if key not in SORTS or key != choice.sort:
        return Html("")
    return Html(f' aria-sort="{"ascending" if choice.is_ascending else "descending"}"')


def _nothing(overview: Overview) -> Html:
    if overview.groups:
        return text("No group matches the search and the filters.")
    return Html("There is no group yet: run a cycle first (<code>evenlag run</code>).")


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
    tds = "".join(
        f"<td{' class=n' if key in _NUMBERS else ''}{_value(key, row)}>{html}</td>" for key, html in cells
    )
    hidden = "" if is_shown else " hidden"
    states = text(" ".join(states_of(row)))
    return Html(
        f'<tr data-s="{states}" data-c="{text(row.cluster)}"{hidden}>'
        f'<th scope="row">{_name(row, has_clusters=has_clusters)}</th>{tds}</tr>'
    )


def _value(key: str, row: GroupRow) -> Html:
    """Value that the script orders by; no attribute where there is none."""
    value = SORTS[key](row)
    return Html("" if value is None else f' data-v="{float(value):.10g}"')


def _name(row: GroupRow, *, has_clusters: bool) -> Html:
    link = urlencode({"cluster": row.cluster, "group": row.group_id})
    needed = needed_text(row.advice)
    about = [
        *([text(row.cluster)] if has_clusters else ()),
        text(count_of(row.num_members, "member") + (f", {needed} needed" if needed else "")),
        text(count_of(row.num_partitions, "partition")),
        *([text(row.live_note)] if row.live_note else ()),
    ]
    return Html(
        f'<a href="{"overview" if row.live_note else "report"}?{text(link)}"{_shown_name(row.group_id)}</a>'
        f'<span class="soft sub">{" · ".join(about)}</span>'
    )


def _shown_name(name: str) -> Html:
    """Return the rest of a link's tag and the name; of a long one, the style sheet cuts the middle."""
    if len(name) <= _LONG_NAME:
        return Html(f">{text(name)}")
    whole, head, tail = text(name), text(name[:-_TAIL]), text(name[-_TAIL:])
    parts = f"<span>{head}</span><span>{tail}</span>"
    return Html(f' class="long" title="{whole}" aria-label="{whole}">{parts}')


def _trend(row: GroupRow) -> Html:
    change = row.change_records
    if change is None:
        return text(NOTHING)
    kind = " class=up" if row.is_growing else ""
    return Html(f"{_sparkline(row.trend)}<span{kind}>{text(format(change, '+,'))}</span>")


@cache
def _places(num_points: int) -> tuple[str, ...]:
    step = _WIDTH / max(1, num_points - 1)
    return tuple(f"{place * step:.0f}" for place in range(num_points))


def _sparkline(points: Sequence[int | None]) -> Html:
    """Lag over the last snapshots; the number beside it says the same to a screen reader."""
    top = max([1, *(value for value in points if value is not None)])
    lines: list[list[str]] = [[]]
    for place, value in zip(_places(len(points)), points, strict=True):
        if value is None:
            lines.append([])
        else:
            lines[-1].append(f"{place} {_HEIGHT - 1 - (_HEIGHT - 2) * value / top:.0f}")
    # A point between two gaps is a dash.
    path = "".join(f"M{'L'.join(line)}{'h2' if len(line) == 1 else ''}" for line in lines if line)
    return Html(
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true">'
        f'<path d="{text(path)}"/></svg>'
    )


def _drain(row: GroupRow) -> str:
    if row.drain_time_ms == inf:
        return "not shrinking"
    return "caught up" if row.drain_time_ms == 0 else duration(row.drain_time_ms)


def _mode(row: GroupRow) -> Html:
    if row.mode is None:
        return text(NOTHING)
    by_policy = row.policy_mode if row.policy_mode not in {None, row.mode} else None
    policy_mode = f'<span class="soft sub">{text(by_policy)} by policy</span>' if by_policy else ""
    return Html(f"{text(row.mode)}{policy_mode}")


def _plan(row: GroupRow) -> Html:
    """Newest plan; and the newest settled hint, if it is another plan's."""
    parts: list[str] = []
    plan, hint = row.plan, row.hint
    is_same = plan is not None and hint is not None and plan["plan_id"] == hint["plan_id"]
    if plan is not None:
        parts.append(_plan_line(plan, _actual(hint) if is_same and hint is not None else None))
        evaluated = evaluation_text(hint) if is_same and hint is not None else None
        if evaluated is not None:
            parts.append(f'<span class="sub">{text(evaluated)}</span>')
    if hint is not None and not is_same:
        word = badge(hint["outcome"], _STATUS_KIND.get(hint["outcome"], "plain"))
        effect = f"{number(hint['max_member_lag_before_records'])} → {_actual(hint)}"
        parts.append(f'<span class="sub">hint {word} {_short(hint["slot"])}: {effect}</span>')
    if not parts and row.decision_reason:
        parts.append(_clip(row.decision_reason))
    return Html("".join(parts) or NOTHING)


def _actual(hint: Mapping[str, Any]) -> str:
    return at_least(hint["max_member_lag_actual_records"], hint["num_unknown_partitions"])


def _plan_line(plan: Mapping[str, Any], actual: str | None) -> Html:
    status = plan["status"] or "no event"
    kind = _STATUS_KIND.get(status, "plain")
    before = at_least(plan["max_member_lag_before_records"], plan["num_unknown_lags"])
    after = actual or at_least(plan["max_member_lag_predicted_records"], plan["num_unknown_lags"])
    expected = "" if actual else " planned"
    change = f"{before} → {after}{expected}, {count_of(plan['moves'], 'move')}"
    gates = text(", ".join(plan["failed_gates"])) if status == PlanEvent.REJECTED else ""
    failed_gates = f"<span class=sub>failed: {gates}</span>" if gates else ""
    why = f' title="{text(plan["reason"])}"' if plan["reason"] else ""
    return Html(
        f"<span{why}>{badge(status, kind)} {_short(plan['slot'])}</span>{failed_gates}"
        f"<span class=sub>{text(change)}</span>"
    )


def _clip(reason: str | None) -> Html:
    """A reason on one line, cut by the page where there is no room; its title has all of it."""
    escaped = text(reason or "")
    return Html(f'<span class="soft clip" title="{escaped}">{escaped}</span>')


def _short(value: datetime) -> Html:
    utc = value.astimezone(UTC)
    return Html(f'<time datetime="{utc.isoformat()}">{utc:%m-%d %H:%M}</time>')


def _signs(row: GroupRow) -> Html:
    parts = []
    asking = row.asking_signs
    for sign in row.signs:
        kind = "plain" if sign not in asking else "bad" if sign in _BAD else "warn"
        parts.append(f"{badge(SIGN_WORDS[sign], kind)}{_detail(sign, row)}")
    return Html(" ".join(f"<span class=sign>{part}</span>" for part in parts))


_BAD: Final = frozenset({Sign.NOT_FOLLOWED, Sign.FAILED, Sign.STALLED})


def _detail(sign: Sign, row: GroupRow) -> Html:
    detail = ""
    match sign:
        case Sign.WAITING if row.approval_until is not None:
            return Html(f" until {_short(row.approval_until)}")
        case Sign.HOT:
            about, name = text(row.hot_message or ""), text(row.hot or "")
            return Html(f' <span title="{about}">{name}</span>')
        case Sign.TARGET:
            detail = target_text(row.advice).removeprefix("missed ")
        case Sign.STALLED:
            detail = count_of(row.num_stalled, "partition")
        case Sign.UNKNOWN:
            num_unknown = row.num_unknown_partitions
            count = f"{num_unknown:,} of {count_of(row.num_partitions, 'partition')}"
            detail = f"{count}{': ' * bool(row.unknown_facts)}" if num_unknown else ""
            return Html(f" {text(detail)}{_clip(row.unknown_facts)}")
        case Sign.NOT_FOLLOWED if row.hint is not None:
            return Html(f" {_clip(row.hint['reason'])}")
        case Sign.FAILED:
            return Html(f" {_clip(row.decision_reason)}")
    return Html(f" {text(detail)}" if detail else "")


def evaluation_text(hint: Mapping[str, Any]) -> str | None:
    """Return whether a followed plan was worth it, as its evaluation decided; None: it was not followed."""
    if hint["outcome"] != Outcome.APPLIED:
        return None
    if "paid_off" not in hint:
        return "whether it was worth it is known at its horizon"
    decided = {True: "worth it", False: "not worth it", None: "whether it was worth it is open"}
    return decided[hint["paid_off"]]
