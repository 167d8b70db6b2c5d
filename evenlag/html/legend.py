"""Legends of charts, with the same colors, dashes and shapes as the charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.html.markup import Html, text
from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WIDTH, _HEIGHT = 30, 10
# By matplotlib's name: a path around (0, 0), of a size of 6.
_SHAPES: Final = {
    "o": "M3 0A3 3 0 1 1-3 0A3 3 0 1 1 3 0Z",
    "s": "M-3-3H3V3H-3Z",
    "^": "M0-3.4L3.4 3H-3.4Z",
    "v": "M0 3.4L3.4-3H-3.4Z",
    "D": "M0-4L4 0L0 4L-4 0Z",
    "P": "M-1.2-3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",
    "X": "M-3.4-1.8L-1.8-3.4L0-1.6L1.8-3.4L3.4-1.8L1.6 0L3.4 1.8L1.8 3.4L0 1.6L-1.8 3.4L-3.4 1.8L-1.6 0Z",
    "p": "M0-3.6L3.4-1.1L2.1 2.9H-2.1L-3.4-1.1Z",
}


def patch(variable: str) -> Html:
    """Build the swatch of a bar."""
    return Html(f'<i style="--of:var({page_text(variable)})" aria-hidden="true"></i>')


def shape(variable: str, marker: str) -> Html:
    """Build the swatch of a mark.

    marker: Matplotlib's name of the shape.
    """
    place = f"translate({_HEIGHT / 2:g} {_HEIGHT / 2:g}) scale(1.3)"
    return _svg(
        _HEIGHT, Html(f'<path d="{_SHAPES[marker]}" transform="{place}" fill="var({page_text(variable)})"/>')
    )


def line(variable: str, *, width: float = 1.8, dashes: Sequence[float] = (), marker: str = "") -> Html:
    """Build the swatch of a line.

    dashes: Lengths of dashes and gaps; empty: a solid line.
    marker: Matplotlib's name of the shape on it; none if empty.
    """
    dashed = f' stroke-dasharray="{" ".join(f"{each * 1.5:g}" for each in dashes)}"' if dashes else ""
    middle = _HEIGHT / 2
    color = f"var({page_text(variable)})"
    drawn = f'<path d="M0 {middle:g}H{_WIDTH}" stroke="{color}" stroke-width="{width:g}"{dashed}/>'
    if marker:
        place = f"translate({_WIDTH / 2:g} {middle:g})"
        drawn += f'<path d="{_SHAPES[marker]}" transform="{place}" fill="{color}"/>'
    return _svg(_WIDTH, Html(drawn))


def legend(entries: Iterable[tuple[Html, str]]) -> Html:
    """Build a legend.

    entries: Swatch and name, as plain text.
    """
    items = "".join(f"<li>{text(swatch)}{page_text(name)}</li>" for swatch, name in entries)
    return Html(f'<ul class="legend">{items}</ul>')


def _svg(width: int, drawn: Html) -> Html:
    box = f'width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}"'
    return Html(f'<svg aria-hidden="true" {box}>{text(drawn)}</svg>')
