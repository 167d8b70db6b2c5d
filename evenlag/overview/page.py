"""The overview as one HTML page: complete without scripts; a script filters, sorts and refreshes in place."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.enums import Mode
from evenlag.formatting import at_least, number, percent
from evenlag.html import markup
from evenlag.html.markup import Html, numbers, text, when
from evenlag.overview.choice import ATTENTION_STATE, SORTS
from evenlag.overview.model import Sign
from evenlag.overview.table_row import SIGN_WORDS, row_html
from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlag.overview.choice import Choice
    from evenlag.overview.model import ClusterState, GroupRow, Overview

REFRESH_S: Final = 30
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


@cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def content_policy() -> str:
    """Return the page's content security policy: its own script and styles, requests to its own server."""
    digest = base64.b64encode(hashlib.sha256(_asset("overview.js").encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'"
    )


def overview_page(overview: Overview, choice: Choice) -> str:
    """Build the page.

    Returns the HTML document. It contains all groups: the script filters without a request. It does not
    depend on the time at which it is built.
    choice: What to show, and in which order.
    """
    has_clusters = len(overview.clusters) > 1
    shown = frozenset(id(row) for row in overview.groups if choice.matches(row))
    rows = choice.ordered(overview.groups)
    body = (
        f"<main><header><h1>Consumer groups</h1>"
        f'<div id="clusters">{_clusters(overview.clusters)}</div></header>'
        f'<div id="totals">{_totals(overview.groups)}</div>'
        f"{_form(overview, choice)}"
        f'<p class="bar"><span id="count" role="status">{len(shown):,} of {len(rows):,} groups</span>'
        f'<span id="refreshed" class="soft"></span></p>'
        f"{_table(rows, shown, choice, has_clusters=has_clusters)}"
        f'<p id="none" class="note"{" hidden" if shown else ""}>{_nothing(overview)}</p></main>'
    )
    style = (Path(markup.__file__).with_name("page.css")).read_text(encoding="utf-8") + _asset("overview.css")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{page_text(content_policy())}">'
        f"<title>evenlag: consumer groups</title><style>{style}</style></head>\n"
        f'<body data-refresh="{REFRESH_S}">\n{body}\n<script>{_asset("overview.js")}</script></body></html>\n'
    )


def _clusters(clusters: Iterable[ClusterState]) -> Html:
    """One line per cluster: how old and how complete its last snapshot is, or why it has no rows."""
    lines = []
    for each in clusters:
        name = f"<b>{page_text(each.name)}</b>"
        if each.problem is not None or each.read_at is None:
            lines.append(f'<li class="bad">{name}: {page_text(each.problem or "no snapshot")}</li>')
            continue
        line = f"{name} read at {when(each.read_at)} UTC"
        if each.completeness is not None and each.completeness < 1:
            line += f', <span class="warn-text">{percent(each.completeness)} of its partitions</span>'
        if each.is_stale:
            line += ', <span class="warn-text">no newer snapshot when one was due</span>'
        lines.append(f"<li>{line}</li>")
    return Html(f'<ul class="clusters soft">{"".join(lines)}</ul>')


def _totals(groups: Iterable[GroupRow]) -> Html:
    rows = list(groups)
    known = [row.lag_records for row in rows if row.lag_records is not None]
    total = sum(known) if known else None
    return numbers(
        (
            (number(len(rows)), "groups"),
            (at_least(total, sum(row.num_unknown for row in rows)), "records behind"),
            (number(sum(row.needs_attention for row in rows)), "groups to look at"),
            (number(sum(Sign.WAITING in row.signs for row in rows)), "plans wait for approval"),
        )
    )


def _form(overview: Overview, choice: Choice) -> Html:
    """Search and filters; the button applies them where scripts do not run."""
    clusters = [("", "all clusters"), *((each.name, each.name) for each in overview.clusters)]
    states = [
        ("", "all groups"),
        (ATTENTION_STATE, "to look at"),
        *((str(sign), SIGN_WORDS[sign]) for sign in Sign),
        *((str(mode), f"mode {mode}") for mode in Mode),
    ]
    sorts = list(_HEADINGS)
    chosen = _select("cluster", "Cluster", clusters, choice.cluster) if len(overview.clusters) > 1 else ""
    order = '<input type="hidden" name="order" value="reversed">' if choice.is_reversed else ""
    return Html(
        '<form method="get" role="search" aria-label="Groups">'
        '<label>Search <input type="search" name="q" autocomplete="off" spellcheck="false" '
        f'value="{page_text(choice.search)}" placeholder="part of a group id  ( / )"></label>'
        f"{chosen}{_select('state', 'State', states, choice.state)}"
        f'<span class="on-phone">{_select("sort", "Order by", sorts, choice.sort)}</span>{order}'
        '<noscript><button type="submit">Show</button></noscript>'
        '<label class="check" id="auto" hidden><input type="checkbox" id="refresh" checked> '
        f"Refresh every {REFRESH_S} s</label></form>"
    )


def _select(name: str, label: str, options: Iterable[tuple[str, str]], chosen: str) -> Html:
    items = "".join(
        f'<option value="{page_text(value)}"{" selected" if value == chosen else ""}>'
        f"{page_text(word)}</option>"
        for value, word in options
    )
    return Html(f'<label>{page_text(label)} <select name="{page_text(name)}">{items}</select></label>')


def _table(rows: Iterable[GroupRow], shown: frozenset[int], choice: Choice, *, has_clusters: bool) -> Html:
    heads = "".join(
        f'<th scope="col"{" class=n" if key in _NUMBERS else ""}{_order(key, choice)}>'
        f'<a href="{page_text(choice.link(key))}" data-sort="{key}">{title}</a></th>'
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
