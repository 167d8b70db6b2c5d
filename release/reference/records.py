"""The index of the decision records, from the records."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from release.project import ROOT
from release.reference.form import page, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_INTRODUCTION: Final = """\
Each record is one decision that a newcomer would question: its context, what was decided, and what else was
considered. A record does not change; a later one replaces it
([ADR 1](0001-record-architecture-decisions.md))."""


def render_records(folder: Path = ROOT / "docs" / "adr") -> str:
    """Render the index.

    Returns Markdown: number, title and status of each record, the newest first.
    """
    header = ("number", "decision", "status")
    return page("Decision records", "the records", [_INTRODUCTION, table(header, _rows(folder))])


def _rows(folder: Path) -> Iterator[list[str]]:
    for path in sorted(folder.glob("[0-9]*.md"), reverse=True):
        text = path.read_text(encoding="utf-8")
        title = re.match(r"# (\d+)\. (.+)", text)
        status = re.search(r"^Status: (.+?)$\n\n", text, re.MULTILINE | re.DOTALL)
        if title is None or status is None:
            raise ValueError(f"{path.name}: a record begins with its number, title and status")
        yield [title[1], f"[{title[2]}]({path.name})", status[1]]
