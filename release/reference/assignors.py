"""The table of assignors on their page, from the declarations and the first line of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from assignor_core.assignors import COOPERATIVE, assignor_classes
from release.project import ROOT
from release.reference.form import COMMAND, table

if TYPE_CHECKING:
    from assignor_core.assignors import Assignor

_BEGIN: Final = f"<!-- assignors: written by {COMMAND} -->"
_END: Final = "<!-- end of assignors -->"


def render_assignors() -> str:
    """Return the page of assignors with its table replaced."""
    return replace_table((ROOT / "docs" / "assignors.md").read_text(encoding="utf-8"))


def replace_table(text: str) -> str:
    """Return a page with the table between the two comments replaced; `ValueError` without the comments."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no table between {_BEGIN} and {_END}")
    rows = table(("name", "result", "parameters", "uses", "protocol"), map(_row, assignor_classes()))
    return f"{before}{_BEGIN}\n\n{rows}\n\n{_END}{after}"


def _row(assignor: type[Assignor]) -> tuple[str, ...]:
    summary = (assignor.__doc__ or "").strip().splitlines()[0].removesuffix(".")
    names = ", ".join(f"`{parameter.name}`" for parameter in assignor.parameters)
    uses = "load" if assignor.uses_load else "lag" if assignor.uses_lag else ""
    protocol = "cooperative" if COOPERATIVE in assignor.protocols else "eager"
    return f"`{assignor.name}`", summary, names, uses, protocol
