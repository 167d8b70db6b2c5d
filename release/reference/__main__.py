"""Writes the generated pages: ``python -m release.reference``; with ``--check`` it only compares them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from release.project import ROOT
from release.reference.command import render_command
from release.reference.pages import render_assignors, render_errors, render_records
from release.reference.policy import render_policy

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/assignors.md": render_assignors,
    "docs/reference/command.md": render_command,
    "docs/reference/policy.md": render_policy,
    "docs/reference/errors.md": render_errors,
    "docs/adr/README.md": render_records,
}
"""What renders each page."""


def outdated() -> list[str]:
    """Return the pages that differ from the code."""
    return [
        name
        for name, render in PAGES.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != render()
    ]


def main(argv: list[str] | None = None) -> int:
    """Write the pages that are outdated; with ``--check`` return 1 if there are any."""
    arguments = sys.argv[1:] if argv is None else argv
    names = outdated()
    for name in names:
        print(name)
        if "--check" not in arguments:
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main())
