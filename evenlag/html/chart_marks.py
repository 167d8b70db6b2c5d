"""Events of a chart over time: a line, a shape and a label each, such that no label covers anything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.html.svg_charts import ACCENT, INK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_POINTS_PER_INCH: Final = 72
_FONT_SIZE: Final = 8.0
_LANE: Final = 12.0
# Of a font of this size, a character is this wide on average, and browsers' fonts are narrower.
_CHARACTER: Final = 0.62 * _FONT_SIZE
_SHAPE: Final = 6.0
_GAP: Final = 5.0
MAX_LANES: Final = 4
# Nearer marks of one kind share a label.
_SAME_PLACE: Final = 3.0


@dataclass(frozen=True, slots=True)
class ChartMark:
    """An event at a place on the x axis.

    at: Moment, or number on the axis.
    label: What happened, in a word or two.
    marker: Matplotlib's name of the shape.
    """

    at: datetime | float
    label: str
    marker: str


class LabelPlace(NamedTuple):
    """Place of a label: its lane, from 0 at the top, and whether it is to the left of its line."""

    lane: int
    is_left: bool


class _Taken(NamedTuple):
    start: float
    end: float
    place: float
    lane: int


def place_labels(
    places: Sequence[float], widths: Sequence[float], room: float, *, max_lanes: int = MAX_LANES
) -> list[LabelPlace | None]:
    """Place the labels of marks into lanes above a chart.

    A mark's line goes down from its label. No label covers another one or a line.

    places: Position of each mark on the x axis, ascending.
    """
    found: list[LabelPlace | None] = [None] * len(places)
    is_left = [place + width > room for place, width in zip(places, widths, strict=True)]
    # Each next label is below the last one that it would touch, so its line starts below it.
    rightwards = [number for number in range(len(places)) if not is_left[number]]
    leftwards = [number for number in reversed(range(len(places))) if is_left[number]]
    taken: list[_Taken] = []
    for number in [*rightwards, *leftwards]:
        place, width = places[number], widths[number]
        start, end = (place - width, place) if is_left[number] else (place, place + width)
        if start < 0:
            continue
        for lane in range(max_lanes):
            new = _Taken(start, end, place, lane)
            if not any(_touches(new, other) or _touches(other, new) for other in taken):
                taken.append(new)
                found[number] = LabelPlace(lane, is_left[number])
                break
    return found


def _touches(label: _Taken, other: _Taken) -> bool:
    """Whether a label covers another one, or the line of its mark, which starts in the other's lane."""
    if label.lane == other.lane:
        return label.start < other.end and other.start < label.end
    return other.lane < label.lane and label.start <= other.place <= label.end


def draw_marks(figure: Any, axes: Any, marks: Sequence[ChartMark]) -> int:
    """Draw marks with labels above the content of a chart, whose limits must be final.

    Returns number of marks without a label, because there was no room.
    """
    if not marks:
        return 0
    figure.draw_without_rendering()
    box = axes.get_window_extent()
    width, height = (side * _POINTS_PER_INCH / figure.dpi for side in (box.width, box.height))
    left, right = axes.get_xlim()
    xs = [float(axes.xaxis.convert_units(mark.at)) for mark in marks]
    joined = _join(marks, [(x - left) / (right - left) * width for x in xs])
    x_by_mark = dict(zip(marks, xs, strict=True))
    labels = [mark.label if count == 1 else f"{count} {mark.label}" for mark, _, count in joined]
    widths = [_SHAPE + len(label) * _CHARACTER + _GAP for label in labels]
    places = place_labels([place for _, place, _ in joined], widths, width)
    num_lanes = 1 + max((place.lane for place in places if place is not None), default=0)
    band = (num_lanes * _LANE + 4) / (height + num_lanes * _LANE + 4)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom, bottom + (top - bottom) / (1 - band))
    lane_share = band / (num_lanes + 4 / _LANE)
    num_without = 0
    for (mark, _, count), label, place in zip(joined, labels, places, strict=True):
        y = 1 - band if place is None else 1 - (place.lane + 0.5) * lane_share
        x = x_by_mark[mark]
        axes.axvline(x, ymax=y, color=ACCENT, linewidth=1.2)
        axes.plot(
            [x], [y], marker=mark.marker, markersize=_SHAPE, clip_on=False, color=ACCENT,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        if place is None:
            num_without += count
            continue
        axes.annotate(
            label, (x, y), xycoords=axes.get_xaxis_transform(),
            xytext=(-_GAP if place.is_left else _GAP, 0), textcoords="offset points",
            ha="right" if place.is_left else "left", va="center", fontsize=_FONT_SIZE, color=INK,
        )  # fmt: skip
    return num_without


def _join(marks: Sequence[ChartMark], places: Sequence[float]) -> list[tuple[ChartMark, float, int]]:
    """Join marks of one kind at nearly one place; mark, place and number of each."""
    joined: list[tuple[ChartMark, float, int]] = []
    for mark, place in zip(marks, places, strict=True):
        if joined and joined[-1][0].label == mark.label and place - joined[-1][1] < _SAME_PLACE:
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + 1)
        else:
            joined.append((mark, place, 1))
    return joined
