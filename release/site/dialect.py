"""Pages are written for GitHub's Markdown; this writes the same for Python-Markdown, which MkDocs uses.

Python-Markdown wants four spaces for what belongs to a list item, and a blank line before a list. GitHub
takes the width of the item's marker, and no blank line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FENCE: Final = re.compile(r"^\s*(`{3,}|~{3,})")
_ITEM: Final = re.compile(r"^( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
_LEVEL: Final = "    "


def to_python_markdown(text: str) -> str:
    """Rewrite the lists of a page.

    Returns the same page, its lists indented by four spaces a level, each after a blank line.
    text: A page in GitHub's Markdown, its lists indented by the width of their markers.
    """
    return "\n".join(_lines(text.splitlines())) + "\n"


def _lines(lines: Iterable[str]) -> Iterator[str]:
    # The columns at which the contents of the open items begin, the outermost first.
    columns: list[int] = []
    fence = ""
    previous = ""
    has_paragraphs = False
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            yield _indented(line, columns)
            fence = "" if found and found[1].startswith(fence) else fence
            previous = line
            continue
        if not line.strip():
            yield ""
            previous = ""
            has_paragraphs = True
            continue
        item = _ITEM.match(line)
        begins_list = item is not None and not columns
        if item and begins_list and previous and item[2][0].isdigit() and item[2][:-1] != "1":
            # A sentence whose line happens to begin with a number: only a 1 begins a list inside a paragraph.
            item = None
        indent = len(line) - len(line.lstrip())
        # A line that continues a paragraph needs no indent; an item, or a line after a blank one, does.
        if item or not previous or found:
            while columns and indent < columns[-1]:
                columns.pop()
        if item:
            # The next item after an item's second paragraph needs one, too.
            if previous and (begins_list or has_paragraphs):
                yield ""
            has_paragraphs = False
            yield _LEVEL * len(columns) + line.lstrip()
            columns.append(indent + len(item[2]) + len(item[3]))
        else:
            yield _indented(line, columns)
        if found:
            fence = found[1]
        previous = line


def _indented(line: str, columns: list[int]) -> str:
    """Move a line of the innermost open item to the depth that Python-Markdown expects."""
    if not columns or not line.strip():
        return line
    own = len(line) - len(line.lstrip())
    return _LEVEL * len(columns) + " " * max(own - columns[-1], 0) + line.lstrip()
