"""The demo's pictures as SVG text, in colours that the page's style gives them, light or dark."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sandbox.demo_result import DemoResult
    from sandbox.demo_sampler import Samples

# Matplotlib wants colours, the page wants variables: each stands for one of the page's, and is replaced.
_INK, _FAINT = "#010101", "#020202"
_BEFORE, _PREDICTED, _AFTER = "#030303", "#040404", "#050505"
_MEMBERS: Final = ("#060606", "#070707", "#080808", "#090909")
_VARIABLE_BY_COLOUR: Final = {
    _INK: "--ink",
    _FAINT: "--faint",
    _BEFORE: "--before",
    _PREDICTED: "--predicted",
    _AFTER: "--after",
    **{colour: f"--member-{number}" for number, colour in enumerate(_MEMBERS)},
}
# Inches: at a phone's width the text is still of a readable size.
_WIDTH, _HEIGHT = 5.0, 3.1


def bars_svg(result: DemoResult) -> str:
    """Draw each consumer's lag before, as predicted, and after, side by side."""
    figure, axes = _figure("bars")
    bar = 0.27
    parts = (("before", _BEFORE), ("predicted", _PREDICTED), ("after", _AFTER))
    for offset, (name, colour) in enumerate(parts):
        values = [getattr(member, name) for member in result.members]
        places = [index + (offset - 1) * bar for index in range(len(values))]
        axes.bar(places, values, width=bar * 0.92, color=colour, label=name)
    axes.set_xticks(range(len(result.members)), [member.name for member in result.members])
    axes.set_ylabel("lag, records")
    axes.legend(frameon=False, labelcolor=_INK, ncols=3, loc="upper right", handlelength=1.0)
    axes.margins(y=0.16)
    label = (
        f"Lag of each consumer in records. The most loaded had {result.max_before:,} before, "
        f"{result.max_predicted:,} were predicted, {result.max_after:,} were seen after."
    )
    return _svg(figure, label)


def timeline_svg(samples: Samples) -> str:
    """Draw each consumer's lag over time, with marks where something happened."""
    figure, axes = _figure("timeline")
    for number, (name, points) in enumerate(sorted(samples.lag_by_name.items())):
        seconds = samples.at_s[: len(points)]
        values = [float("nan") if point is None else point for point in points]
        axes.plot(seconds, values, color=_MEMBERS[number % len(_MEMBERS)], linewidth=1.8, label=name)
    for number, (at_s, what) in enumerate(samples.marks):
        axes.axvline(at_s, color=_FAINT, linewidth=1, linestyle=(0, (4, 3)))
        # A hint is followed a moment before the second run begins: their names stand on either side.
        side = "right" if number % 2 else "left"
        axes.annotate(
            what, (at_s, 0.99), xycoords=("data", "axes fraction"), rotation=90, va="top", ha=side,
            fontsize=8, color=_INK,
        )  # fmt: skip
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("lag, records")
    if samples.lag_by_name:
        axes.legend(frameon=False, labelcolor=_INK, fontsize=8, loc="upper right")
    return _svg(figure, "Lag of each consumer over time, in records.")


def _figure(name: str) -> tuple[Any, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Text stays text; ids that differ between two pictures on one page, and are the same every time.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"})
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    axes.grid(axis="y", color=_FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=9, length=0)
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    axes.yaxis.label.set_color(_INK)
    axes.xaxis.label.set_color(_INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(_FAINT)
    return figure, axes


def _svg(figure: Any, label: str) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for colour, variable in _VARIABLE_BY_COLOUR.items():
        text = text.replace(colour, f"var({variable})")
    # As wide as the page allows, and no wider than it was drawn for.
    text = re.sub(r'(<svg [^>]*?)height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)width="[^"]*"', r'\1width="100%"', text, count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
