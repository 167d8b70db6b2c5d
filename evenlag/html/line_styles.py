"""Styles of the lines of a chart: distinguishable without colors, and where they cover each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (5, 2), (1.5, 1.5))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "p")
# Lines that are nowhere further apart, as a share of the largest value, cover each other.
_SAME_LINE: Final = 0.012
_DASH_LENGTH: Final = 6.0


class Line(NamedTuple):
    """Points of a line; None where it breaks."""

    at: Sequence[datetime | float]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How a line is drawn: lengths of dashes and gaps (empty: solid), where they begin, and its marker."""

    dashes: tuple[float, ...]
    offset: float
    marker: str


def line_styles(lines: Sequence[Line]) -> list[LineStyle]:
    """Choose how lines are drawn, so that each is visible: lines that coincide take turns."""
    styles = [
        LineStyle(_DASHES[number % len(_DASHES)], 0, _MARKERS[number % len(_MARKERS)])
        for number in range(len(lines))
    ]
    for places in coinciding(lines):
        gap = _DASH_LENGTH * (len(places) - 1)
        for turn, place in enumerate(places):
            styles[place] = replace(styles[place], dashes=(_DASH_LENGTH, gap), offset=-turn * _DASH_LENGTH)
    return styles


def coinciding(lines: Sequence[Line]) -> list[list[int]]:
    """Find lines that cover each other."""
    largest = max((value for line in lines for value in line.values if value is not None), default=0)
    groups: list[list[int]] = []
    for place, line in enumerate(lines):
        group = next((each for each in groups if _coincide(lines[each[0]], line, _SAME_LINE * largest)), None)
        if group is None:
            groups.append([place])
        else:
            group.append(place)
    return [group for group in groups if len(group) > 1]


def _coincide(one: Line, other: Line, tolerance: float) -> bool:
    return list(one.at) == list(other.at) and all(
        a is b is None or (a is not None and b is not None and abs(a - b) <= tolerance)
        for a, b in zip(one.values, other.values, strict=True)
    )
