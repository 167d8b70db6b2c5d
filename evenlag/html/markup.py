"""HTML of pages, tables and figures. Plain text arguments are escaped."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from evenlag.safe_text import page_text

_STYLE: Final = Path(__file__).with_name("page.css")
# The browser blocks everything that is not in the page itself.
CONTENT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


class Html(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


def page(title: str, body: str, *, policy: str = CONTENT_POLICY, style: str = "") -> str:
    """Build a complete page, with more CSS."""
    style = _STYLE.read_text(encoding="utf-8") + style
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{page_text(policy)}">'
        f"<title>{page_text(title)}</title><style>{style}</style></head>\n<body>\n{body}</body></html>\n"
    )


def text(value: object) -> Html:
    """Convert a value to escaped HTML; :class:`Html` is returned as it is."""
    return value if isinstance(value, Html) else Html(page_text(str(value)))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "", heads: str = ""
) -> Html:
    """Build a table that scrolls horizontally on narrow pages; columns of numbers end with ``#``.

    heads: HTML of the heading's cells, where they are more than names.
    """
    classes = [' class="n"' if name.endswith("#") else "" for name in columns]
    heads = heads or "".join(
        f'<th scope="col"{style}>{page_text(name.removesuffix("#"))}</th>'
        for name, style in zip(columns, classes, strict=True)
    )
    lines = "".join(f"<tr>{_cells(row, classes)}</tr>" for row in rows)
    caption_element = f"<caption>{page_text(caption)}</caption>" if caption else ""
    # A focusable region with a name can be scrolled with the keyboard.
    label = page_text(caption or ", ".join(name.removesuffix("#") for name in columns if name) or "table")
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{caption_element}'
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _cells(row: Sequence[object], classes: Sequence[str]) -> str:
    pairs = list(zip(row, classes, strict=True))
    first = f'<th scope="row"{pairs[0][1]}>{text(pairs[0][0])}</th>' if pairs else ""
    return first + "".join(f"<td{style}>{text(cell)}</td>" for cell, style in pairs[1:])


def numbers(pairs: Iterable[tuple[str, str]]) -> Html:
    """Build a list of large numbers with labels."""
    items = "".join(f"<li><b>{text(value)}</b>{text(what)}</li>" for value, what in pairs)
    return Html(f'<ul class="numbers">{items}</ul>')


def figure(plot: str, caption: str) -> Html:
    """Build a figure."""
    return Html(f"<figure>{plot}<figcaption>{page_text(caption)}</figcaption></figure>")


def details(summary: str, body: str) -> Html:
    """Build a collapsed section."""
    return Html(f"<details><summary>{page_text(summary)}</summary>{body}</details>")


def when(value: datetime) -> Html:
    """Build a machine-readable time in UTC."""
    utc = value.astimezone(UTC)
    return Html(f'<time datetime="{utc.isoformat()}">{utc:%Y-%m-%d %H:%M:%S}</time>')


def badge(word: str, kind: str) -> Html:
    """Build a badge in the color of ``good``, ``bad``, ``warn`` or ``plain``."""
    return Html(f'<span class="badge {kind}">{page_text(word)}</span>')
