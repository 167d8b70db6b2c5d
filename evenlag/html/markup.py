"""Pieces of a page as text of HTML: the page itself, tables, figures; what is given as text is escaped."""

from __future__ import annotations

from datetime import UTC
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

_STYLE: Final = Path(__file__).with_name("page.css")
# The page may show what it brings itself and nothing else: a browser holds it to that.
CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


def page(title: str, body: str) -> str:
    """Lay out a whole page.

    Parameters
    ----------
    title
        Plain text.
    body
        HTML.
    """
    style = _STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(CONTENT_POLICY)}">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>\n{body}</body></html>\n"
    )


def text(value: object) -> Html:
    """Make HTML of any value; HTML stays as it is."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "") -> Html:
    """Lay out a table that scrolls within itself where the page is narrow.

    Parameters
    ----------
    columns
        Headings; one that ends in ``#`` heads numbers. The first column heads its rows.
    rows
        Cells, escaped unless they are :class:`Html`.
    caption
        What the table holds, for whoever hears the page; shown as well.
    """
    classes = [' class="n"' if name.endswith("#") else "" for name in columns]
    heads = "".join(
        f'<th scope="col"{style}>{escape(name.removesuffix("#"))}</th>'
        for name, style in zip(columns, classes, strict=True)
    )
    lines = "".join(f"<tr>{_cells(row, classes)}</tr>" for row in rows)
    told = f"<caption>{escape(caption)}</caption>" if caption else ""
    # Whoever has no mouse scrolls it by keys: so it can have the focus, and a name.
    label = escape(caption or ", ".join(name.removesuffix("#") for name in columns if name) or "table")
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{told}'
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _cells(row: Sequence[object], classes: Sequence[str]) -> str:
    pairs = list(zip(row, classes, strict=True))
    first = f'<th scope="row"{pairs[0][1]}>{text(pairs[0][0])}</th>' if pairs else ""
    return first + "".join(f"<td{style}>{text(cell)}</td>" for cell, style in pairs[1:])


def numbers(pairs: Iterable[tuple[str, str]]) -> Html:
    """Show a few large numbers, each with what it counts."""
    items = "".join(f"<li><b>{escape(value)}</b>{escape(what)}</li>" for value, what in pairs)
    return Html(f'<ul class="numbers">{items}</ul>')


def figure(plot: str, caption: str) -> Html:
    """Put a picture (HTML) on the page with its caption (text)."""
    return Html(f"<figure>{plot}<figcaption>{escape(caption)}</figcaption></figure>")


def details(summary: str, body: str) -> Html:
    """Fold something (HTML) away under a line of text."""
    return Html(f"<details><summary>{escape(summary)}</summary>{body}</details>")


def when(value: datetime) -> Html:
    """Show a moment in UTC, in a form that a machine reads too."""
    utc = value.astimezone(UTC)
    return Html(f'<time datetime="{utc.isoformat()}">{utc:%Y-%m-%d %H:%M:%S}</time>')


def badge(word: str, kind: str) -> Html:
    """Show a word as ``good``, ``bad``, ``warn`` or ``plain``; the word itself tells, not its colour."""
    return Html(f'<span class="badge {kind}">{escape(word)}</span>')
