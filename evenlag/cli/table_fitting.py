"""Fit a table into a terminal: a number is never cut, rather a column is left out, and that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Column, Table

# A text in fewer cells would be a tower of letters.
_LEAST_TEXT: Final = 9
# Of a column beside its text: padding on both sides and a line.
_AROUND: Final = 3


def fit(console: Console, shown: Table, optional: Sequence[str]) -> Table:
    """Make a filled table fit a console's width.

    Numbers (columns that do not wrap) keep their width, texts are folded, headings wrap between words.

    Parameters
    ----------
    shown
        A table of ``output.table``; it is changed.
    optional
        Headings of columns that may be left out, the first one first.

    Returns
    -------
    rich.table.Table
        The same one; its caption names what was left out.
    """
    if _total(_full_width(column) for column in shown.columns) <= console.width:
        return shown
    widths = [_least_width(column) for column in shown.columns]
    left_out = []
    for name in optional:
        if _total(widths) <= console.width:
            break
        place = next((i for i, each in enumerate(shown.columns) if str(each.header) == name), None)
        if place is not None:
            del shown.columns[place], widths[place]
            left_out.append(name)
    for column, width in zip(shown.columns, widths, strict=True):
        column.min_width = width
        if column.no_wrap:
            column.header = Text("\n".join(str(column.header).split()), justify="right")
        else:
            column.overflow = "fold"
    if left_out:
        told = f"A wider terminal or --json shows more: {', '.join(left_out)}"
        shown.caption = f"{shown.caption}. {told}" if shown.caption else told
    return shown


def _total(widths: Iterable[int]) -> int:
    return sum(width + _AROUND for width in widths) + 1


def _full_width(column: Column) -> int:
    return max(cell_len(str(text)) for text in (column.header, *column.cells))


def _least_width(column: Column) -> int:
    texts = [str(cell) for cell in column.cells]
    words = [word for text in texts for word in text.split()]
    heading = max((cell_len(word) for word in str(column.header).split()), default=0)
    if column.no_wrap:
        return max([heading, *map(cell_len, texts)])
    return max(heading, min(_LEAST_TEXT, max(map(cell_len, words), default=0)))
