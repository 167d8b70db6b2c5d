"""The pictures of ``docs/evidence.md``: narrow, so that a phone shows their text at its size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tests.bench.field.field_table import OURS
from tests.bench.field.page import JUDGED, SIMULATION
from tests.bench.field.traces import NAMES as TRACES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from evenlag.lag.arrays import Floats
    from tests.bench.field.page import Tables

_WIDTH_IN: Final = 5.4
_FONT: Final = 9
_GREY: Final = "#5f5f5f"
_RULE: Final = "#d9d9d9"
# Seconds as people write them.
_TICKS_S: Final = {
    0.01: "10 ms",
    0.1: "100 ms",
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
}


class Style(NamedTuple):
    """How a contender is drawn: colors that the color-blind tell apart, and a marker each."""

    color: str
    marker: str


STYLES: Final[Mapping[str, Style]] = {
    OURS: Style("#0072b2", "o"),
    "uniform": Style("#8c8c8c", "D"),
    "cooperative-sticky": Style("#404040", "s"),
    "kip-169": Style("#e69f00", "^"),
    "landau-mwf": Style("#cc79a7", "v"),
    "keda-hpa": Style("#d55e00", "P"),
    "share": Style("#56b4e9", "h"),
    "share-p1": Style("#f0e442", "H"),
    "oracle": Style("#009e73", "*"),
}
"""The contenders of the first picture; the second has all."""
_OTHER: Final = Style("#8c8c8c", ".")
COURSES: Final = ("cooperative-sticky", "kip-169", OURS, "oracle")
"""The contenders of the third one."""


def draw_all(tables: Tables, courses: Mapping[str, Floats], folder: Path) -> None:
    """Draw the three pictures, from the traces that have results."""
    draw_waiting(tables, folder / "waiting.svg")
    draw_consumers(tables, folder / "consumers.svg")
    draw_courses(courses, folder / "course.svg")


def draw_waiting(tables: Tables, path: Path) -> None:
    """Draw the 99th percentile of waiting by trace and contender, with its interval."""
    found = {
        trace: tables[*SIMULATION, trace, JUDGED]
        for trace in TRACES
        if (*SIMULATION, trace, JUDGED) in tables
    }
    figure, axes = _figure(1.3 + 0.95 * len(found))
    names = [name for name in STYLES if any(name in table.file.runs for table in found.values())]
    height = 0.72 / len(names)
    for place, table in enumerate(found.values()):
        for number, name in enumerate(names):
            if name in table.file.runs:
                value, low, high = (max(each, 1e-3) for each in table.interval(name, "p99_s"))
                at, style = place + height * (number - (len(names) - 1) / 2), STYLES[name]
                axes.plot([low, high], [at, at], color=style.color, linewidth=1.6)
                axes.plot(value, at, style.marker, color=style.color, ms=8 if name == OURS else 6, mew=1.6)
        if place:
            axes.axhline(place - 0.5, color=_RULE, linewidth=0.8)
    for name in names:
        axes.plot([], [], STYLES[name].marker, color=STYLES[name].color, ms=7, mew=1.6, label=name)
    axes.set_yticks(range(len(found)), list(found), fontsize=_FONT)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    _seconds_axis(axes, "x")
    axes.set_xlabel("99th percentile of waiting (median of the seeds, and its interval)", fontsize=_FONT)
    figure.legend(
        loc="upper left", bbox_to_anchor=(0.01, 0.995), ncols=3, fontsize=_FONT, frameon=False,
        handletextpad=0.2, columnspacing=1.0,
    )  # fmt: skip
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.8 / figure.get_figheight()))
    _save(figure, path)


def draw_consumers(tables: Tables, path: Path, *, trace: str = "walks") -> None:
    """Draw the 99th percentile of waiting against consumer-hours, as multiples of the trace's own."""
    table = tables[*SIMULATION, trace, JUDGED]
    hours = {
        name: table.interval(name, "consumer_hours").value for name in table.file.runs if name != "bound"
    }
    base = hours[OURS]
    figure, axes = _figure(5.2)
    points = {}
    for name in sorted(hours):
        style = STYLES.get(name, STYLES[OURS] if name.startswith(OURS) else _OTHER)
        value, low, high = (max(each, 1e-3) for each in table.interval(name, "p99_s"))
        many = hours[name] / base
        axes.plot([many, many], [low, high], color=style.color, linewidth=1.4)
        axes.plot(many, value, style.marker, color=style.color, ms=9 if name == OURS else 6, mew=1.6)
        points[name] = (many, value)
    _seconds_axis(axes, "y")
    # Room for the names above the highest point.
    axes.set_ylim(top=20 * max(value for _, value in points.values()))
    axes.set_xlim(
        min(many for many, _ in points.values()) - 0.08, max(many for many, _ in points.values()) + 0.45
    )
    axes.set_xlabel(f"consumer-hours, by those of {OURS}", fontsize=_FONT)
    axes.set_title(
        f"99th percentile of waiting, {trace}, {round(100 * JUDGED)} %", loc="left", fontsize=_FONT + 1
    )
    figure.tight_layout()
    _label_points(figure, axes, points)
    _save(figure, path)


def draw_courses(courses: Mapping[str, Floats], path: Path) -> None:
    """Draw the waiting of one run over time: [2, N] of each contender, minutes and seconds."""
    figure, axes = _figure(3.6)
    for name, (minutes, waiting_s) in courses.items():
        color = STYLES.get(name, _OTHER).color
        axes.plot(
            minutes,
            np.maximum(waiting_s, 1e-3),
            color=color,
            linewidth=2.0 if name == OURS else 1.3,
            label=name,
        )
    _seconds_axis(axes, "y")
    axes.set_xlabel("minute of the run", fontsize=_FONT)
    title = f"mean waiting by minute, walks, {round(100 * JUDGED)} %, the first seed"
    axes.set_title(title, loc="left", fontsize=_FONT + 1)
    axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.18), ncols=3, fontsize=_FONT, frameon=False)
    figure.tight_layout()
    _save(figure, path)


def _figure(height_in: float) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "evenlag", "text.color": "#222222"})
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(_WIDTH_IN, height_in))
    axes.tick_params(labelsize=_FONT, color=_GREY)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_GREY)
    return figure, axes


def _seconds_axis(axes: Any, which: str) -> None:
    """Make an axis logarithmic, with the ticks within it."""
    from matplotlib.ticker import NullFormatter, NullLocator

    getattr(axes, f"set_{which}scale")("log")
    low, high = getattr(axes, f"get_{which}lim")()
    ticks = {at: text for at, text in _TICKS_S.items() if low <= at <= high}
    axis = getattr(axes, f"{which}axis")
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    axis.set_ticks(list(ticks), list(ticks.values()))
    axes.grid(axis=which, color=_RULE, linewidth=0.8)
    axes.set_axisbelow(True)


def _label_points(figure: Any, axes: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write the names right of the points; names that overlap are pushed apart, with a line to the point."""
    figure.canvas.draw()
    pixels = {name: axes.transData.transform(point) for name, point in points.items()}
    step = 1.25 * _FONT * figure.dpi / 72
    placed: list[tuple[float, float, float]] = []
    for name in sorted(pixels, key=lambda name: float(pixels[name][1])):
        across, up_to = map(float, pixels[name])
        first, last = across + 1.4 * step, across + (1.4 + 0.55 * len(name)) * step
        for begin, end, up in placed:
            if begin < last and first < end and up_to < up + step:
                up_to = up + step
        placed.append((first, last, up_to))
        placed.sort(key=lambda place: place[2])
        at = axes.transData.inverted().transform((across + 1.4 * step, up_to))
        axes.annotate(
            name, points[name], at, fontsize=_FONT, va="center", annotation_clip=False,
            fontweight="bold" if name == OURS else "normal",
            arrowprops={"arrowstyle": "-", "color": _RULE, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 4},
        )  # fmt: skip


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    plt.close(figure)
