"""Charts as SVG text, with lines, marks and legends, whose colors are CSS variables of the page."""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from evenlag.html.markup import Html, text

# Matplotlib needs colors, the page needs variables: each placeholder color is replaced by a variable.
INK, FAINT, PAPER, SOFT = "#010101", "#020202", "#010203", "#020304"
BEFORE, PREDICTED, AFTER, ACCENT = "#030303", "#040404", "#050505", "#030405"
SERIES: Final = ("#060606", "#070707", "#080808", "#090909", "#0a0a0a", "#0b0b0b", "#0c0c0c", "#0d0d0d")
_VARIABLE_BY_COLOUR: Final = {
    INK: "--ink",
    FAINT: "--faint",
    PAPER: "--paper",
    SOFT: "--soft",
    BEFORE: "--before",
    PREDICTED: "--predicted",
    AFTER: "--after",
    ACCENT: "--accent",
    **{colour: f"--member-{number}" for number, colour in enumerate(SERIES)},
}
_DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (5, 2), (1.5, 1.5))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X", "p")
# Markers of a line are about so many; those of the lines are at different points.
_NUM_MARKERS: Final = 5
# Lines that are nowhere further apart, as a share of the largest value, cover each other.
_SAME_LINE: Final = 0.012
_DASH_LENGTH: Final = 6.0
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


class Size(NamedTuple):
    """Size of a chart in inches, and whether it is for wide pages; text has the same size on both."""

    width: float
    height: float
    is_wide: bool = False


def series_variable(number: int) -> str:
    """Return the CSS variable of the color of a series, for legends outside of a chart."""
    return f"--member-{number % len(SERIES)}"


def new_figure(size: Size) -> tuple[Any, Any]:
    """Create an empty figure without a background."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Texts stay texts: the browser has the glyphs that matplotlib's font lacks.
    warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
    # Keep text as text, and do not parse dollar signs as formulas.
    mpl.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "text.parse_math": False})
    figure = Figure(figsize=(size.width, size.height), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(FAINT)
    return figure, axes


def finish_axes(axes: Any) -> None:
    """Format the numbers of the y axis with separators, and color the labels."""
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    axes.yaxis.label.set_color(INK)
    axes.xaxis.label.set_color(INK)


def svg(figure: Any, name: str, label: str) -> str:
    """Render a figure as an SVG element: always the same text, whose ids have a prefix unique on the page."""
    import matplotlib as mpl

    # Makes the generated ids reproducible.
    mpl.rcParams["svg.hashsalt"] = name
    # Otherwise the layout is calculated, and everything drawn, twice.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    drawn = buffer.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    for colour, variable in _VARIABLE_BY_COLOUR.items():
        drawn = drawn.replace(colour, f"var({variable})")
    drawn = _own_ids(drawn, name)
    # Scale with the page, up to the size of the figure.
    drawn = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", drawn, count=1)
    drawn = re.sub(r'(<svg [^>]*?)width="[^"]*"', r'\1width="100%"', drawn, count=1)
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{text(label)}" ', 1)


def both_sizes(name: str, label: str, draw: Callable[[Size], Any], *, narrow: float, wide: float) -> str:
    """Render a chart for narrow and for wide pages, by its heights; CSS shows the one that fits."""
    sizes = {"on-phone": Size(4.3, narrow), "on-desk": Size(9.9, wide, is_wide=True)}
    return "".join(
        f'<div class="{kind}">{svg(draw(size), f"{name}-{kind}", label)}</div>'
        for kind, size in sizes.items()
    )


def _own_ids(drawn: str, name: str) -> str:
    """Keep only the ids that are referenced, and prefix them with the name of the chart."""
    used = set(re.findall(r'(?:href="#|url\(#)([\w-]+)', drawn))

    def keep(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    drawn = re.sub(r' id="([^"]*)"', keep, drawn)
    return re.sub(r'(href="#|url\(#)([\w-]+)', rf"\1{name}-\2", drawn)


class Line(NamedTuple):
    """Points of a line; None where it breaks."""

    at: Sequence[datetime | float]
    values: Sequence[float | None]


class LineStyle(NamedTuple):
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
            styles[place] = styles[place]._replace(dashes=(_DASH_LENGTH, gap), offset=-turn * _DASH_LENGTH)
    return styles


def plot_lines(axes: Any, lines: Sequence[Line], names: Sequence[str] = ()) -> None:
    """Draw lines in the colors of the series, with names for a legend, if there are any."""
    for number, (each, style) in enumerate(zip(lines, line_styles(lines), strict=True)):
        step = max(1, len(each.at) // _NUM_MARKERS)
        axes.plot(
            each.at,
            with_gaps(each.values),
            color=SERIES[number % len(SERIES)],
            linestyle=(style.offset, style.dashes) if style.dashes else "-",
            linewidth=1.5,
            marker=style.marker,
            markersize=4.5,
            markevery=(number * step // len(lines) % len(each.at), step),
            label=names[number] if names else None,
        )


def with_gaps(values: Sequence[float | None]) -> list[float]:
    """Return values for matplotlib, which draws no line where they are not known."""
    return [float("nan") if value is None else value for value in values]


def coinciding(lines: Sequence[Line]) -> list[list[int]]:
    """Find lines that cover each other."""
    largest = max((value for line in lines for value in line.values if value is not None), default=0)
    # By the place of the first line of each.
    groups: dict[int, list[int]] = {}
    for place, line in enumerate(lines):
        same = (first for first in groups if _coincide(lines[first], line, _SAME_LINE * largest))
        groups.setdefault(next(same, place), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def _coincide(one: Line, other: Line, tolerance: float) -> bool:
    return list(one.at) == list(other.at) and all(
        a is b is None or (a is not None and b is not None and abs(a - b) <= tolerance)
        for a, b in zip(one.values, other.values, strict=True)
    )


class ChartMark(NamedTuple):
    """An event at a place on the x axis, with matplotlib's name of the shape."""

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


def place_labels(places: Sequence[float], widths: Sequence[float], room: float) -> list[LabelPlace | None]:
    """Place the labels of marks, ascending, into lanes above a chart.

    A mark's line goes down from its label. No label covers another one or a line.
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
        for lane in range(MAX_LANES):
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


def draw_marks(figure: Any, axes: Any, marks: Sequence[ChartMark]) -> None:
    """Draw marks above the content of a chart, whose limits must be final, with labels where they fit."""
    if not marks:
        return
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
    for (mark, _, _), label, place in zip(joined, labels, places, strict=True):
        y = 1 - band if place is None else 1 - (place.lane + 0.5) * lane_share
        x = x_by_mark[mark]
        axes.axvline(x, ymax=y, color=ACCENT, linewidth=1.2)
        axes.plot(
            [x], [y], marker=mark.marker, markersize=_SHAPE, clip_on=False, color=ACCENT,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        if place is None:
            continue
        axes.annotate(
            label, (x, y), xycoords=axes.get_xaxis_transform(),
            xytext=(-_GAP if place.is_left else _GAP, 0), textcoords="offset points",
            ha="right" if place.is_left else "left", va="center", fontsize=_FONT_SIZE, color=INK,
        )  # fmt: skip


def _join(marks: Sequence[ChartMark], places: Sequence[float]) -> list[tuple[ChartMark, float, int]]:
    """Join marks of one kind at nearly one place; mark, place and number of each."""
    joined: list[tuple[ChartMark, float, int]] = []
    for mark, place in zip(marks, places, strict=True):
        if joined and joined[-1][0].label == mark.label and place - joined[-1][1] < _SAME_PLACE:
            joined[-1] = (joined[-1][0], joined[-1][1], joined[-1][2] + 1)
        else:
            joined.append((mark, place, 1))
    return joined


def patch(variable: str) -> Html:
    """Build the swatch of a bar."""
    return Html(f'<i style="--of:var({text(variable)})" aria-hidden="true"></i>')


def shape(variable: str, marker: str) -> Html:
    """Build the swatch of a mark."""
    place = f"translate({_HEIGHT / 2:g} {_HEIGHT / 2:g}) scale(1.3)"
    return _svg(
        _HEIGHT, Html(f'<path d="{_SHAPES[marker]}" transform="{place}" fill="var({text(variable)})"/>')
    )


def line(variable: str, *, width: float = 1.8, dashes: Sequence[float] = (), marker: str = "") -> Html:
    """Build the swatch of a line."""
    dashed = f' stroke-dasharray="{" ".join(f"{each * 1.5:g}" for each in dashes)}"' if dashes else ""
    middle = _HEIGHT / 2
    color = f"var({text(variable)})"
    drawn = f'<path d="M0 {middle:g}H{_WIDTH}" stroke="{color}" stroke-width="{width:g}"{dashed}/>'
    if marker:
        place = f"translate({_WIDTH / 2:g} {middle:g})"
        drawn += f'<path d="{_SHAPES[marker]}" transform="{place}" fill="{color}"/>'
    return _svg(_WIDTH, Html(drawn))


def legend(entries: Iterable[tuple[Html, str]]) -> Html:
    """Build a legend of swatches and names."""
    items = "".join(f"<li>{text(swatch)}{text(name)}</li>" for swatch, name in entries)
    return Html(f'<ul class="legend">{items}</ul>')


def _svg(width: int, drawn: Html) -> Html:
    box = f'width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}"'
    return Html(f'<svg aria-hidden="true" {box}>{text(drawn)}</svg>')
