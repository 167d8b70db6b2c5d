"""Markdown as the generated pages have it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

COMMAND: Final = "python -m release.reference"
"""What writes the pages."""


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table without a newline at its end."""
    heads = list(header)
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


def cell(text: str) -> str:
    """Return a text as a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def page(title: str, source: str, parts: Iterable[str]) -> str:
    """Join the parts of a page; it ends with a newline."""
    origin = f"*Generated from {source} by `{COMMAND}`.*"
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts), origin]) + "\n"
