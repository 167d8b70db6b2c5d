"""Charts as SVG text whose colors are CSS variables of the page, for light and dark styles."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.safe_text import page_text

if TYPE_CHECKING:
    from collections.abc import Callable

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


@dataclass(frozen=True, slots=True)
class Size:
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
    """Render a figure as SVG.

    Returns the SVG element. The same figure always gives the same text.
    name: Prefix of its element ids; unique on the page.
    """
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
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{page_text(label)}" ', 1)


def both_sizes(name: str, label: str, draw: Callable[[Size], Any], *, narrow: Size, wide: Size) -> str:
    """Render a chart for narrow and for wide pages; CSS shows the one that fits.

    name: Prefix of the element ids; unique on the page.
    """
    pictures = (
        (kind, svg(draw(size), f"{name}-{kind}", label))
        for kind, size in (("on-phone", narrow), ("on-desk", wide))
    )
    return "".join(f'<div class="{kind}">{drawn}</div>' for kind, drawn in pictures)


def _own_ids(drawn: str, name: str) -> str:
    """Keep only the ids that are referenced, and prefix them with the name of the chart."""
    used = set(re.findall(r'(?:href="#|url\(#)([\w-]+)', drawn))

    def keep(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in used else ""

    drawn = re.sub(r' id="([^"]*)"', keep, drawn)
    return re.sub(r'(href="#|url\(#)([\w-]+)', rf"\1{name}-\2", drawn)
