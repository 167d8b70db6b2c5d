"""Parts that several sections of the report use: legends, notes, limits of tables."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from evenlag.html.markup import Html

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_ROWS: Final = 400
AUDIT, COMPARE = "evenlag audit build", "evenlag compare run"


def legend(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Build a legend.

    Parameters
    ----------
    entries
        Name, CSS variable of the color, and CSS class of the shape.

    Returns
    -------
    Html
        The legend.
    """
    items = "".join(
        f'<li><i class="{shape}" style="--of:var({variable})" aria-hidden="true"></i>{escape(name)}</li>'
        for name, variable, shape in entries
    )
    return Html(f'<ul class="legend">{items}</ul>')


def note(message: str, command: str = "") -> Html:
    """Build a note.

    Parameters
    ----------
    message
        Plain text.
    command
        Command to show after the message, as plain text; none if empty.

    Returns
    -------
    Html
        The note.
    """
    code = f"<code>{escape(command)}</code>" if command else ""
    return Html(f'<p class="note">{escape(message)}{code}</p>')


def first_rows(rows: Sequence[Sequence[object]]) -> Sequence[Sequence[object]]:
    """Return the first :data:`MAX_ROWS` rows of a table."""
    return rows[:MAX_ROWS]


def left_out(rows: Sequence[object]) -> str:
    """Build a note on the rows beyond :data:`MAX_ROWS`; empty if there are none."""
    rest = len(rows) - MAX_ROWS
    return f'<p class="soft">{rest:,} more rows are left out.</p>' if rest > 0 else ""
