"""The table of assignors on their page: ``python -m assignor_core.reference docs/assignors.md``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from assignor_core.assignors import COOPERATIVE, assignor_classes

if TYPE_CHECKING:
    from assignor_core.assignors import Assignor

__all__ = ["render_assignors", "replace_table"]

_BEGIN: Final = "<!-- assignors: written by python -m assignor_core.reference -->"
_END: Final = "<!-- end of assignors -->"
_HEAD: Final = """\
| name | result | parameters | uses | protocol |
| --- | --- | --- | --- | --- |
"""


def render_assignors() -> str:
    """Return the table of all assignors, from the declarations and the first line of each class.

    Returns
    -------
    str
        Markdown, with a newline at its end.
    """
    return _HEAD + "".join(_row(assignor) for assignor in assignor_classes())


def replace_table(page: str) -> str:
    """Return a page with its table of assignors replaced.

    Parameters
    ----------
    page
        Markdown with the two comments that mark the table.

    Raises
    ------
    ValueError
        If the page has no such comments.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no table between {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n\n{render_assignors()}\n{_END}{after}"


def _row(assignor: type[Assignor]) -> str:
    summary = (assignor.__doc__ or "").strip().splitlines()[0].removesuffix(".")
    names = ", ".join(f"`{parameter.name}`" for parameter in assignor.parameters)
    uses = "load" if assignor.uses_load else "lag" if assignor.uses_lag else ""
    protocol = "cooperative" if COOPERATIVE in assignor.protocols else "eager"
    cells = (f"`{assignor.name}`", summary, names, uses, protocol)
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(replace_table(path.read_text(encoding="utf-8")), encoding="utf-8")
