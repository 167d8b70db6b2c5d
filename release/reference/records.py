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
Each record is one decision that a newcomer would question: its context, what was decided, and what follows.
Records of decisions that no longer hold are deleted; git keeps them
([ADR 1](0001-record-architecture-decisions.md))."""


def render_records(folder: Path = ROOT / "docs" / "adr") -> str:
    """Return the index in Markdown: number and title of each record, the newest first."""
    return page(
        "Decision records", "the records", [_INTRODUCTION, table(("number", "decision"), _rows(folder))]
    )


def _rows(folder: Path) -> Iterator[list[str]]:
    for path in sorted(folder.glob("[0-9]*.md"), reverse=True):
        title = re.match(r"# (\d+)\. (.+)", path.read_text(encoding="utf-8"))
        if title is None:
            raise ValueError(f"{path.name}: a record begins with its number and title")
        yield [title[1], f"[{title[2]}]({path.name})"]
