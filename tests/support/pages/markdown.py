"""Markdown pages as tests look at them: code spans, code blocks, tables, headings and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]

_FENCE: Final = re.compile(r"^\s*```")
_SPAN: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_CELL_END: Final = re.compile(r"(?<!\\)\|")
_SEPARATOR: Final = re.compile(r"^\|(\s*:?-+:?\s*\|)+\s*$")


@dataclass(frozen=True)
class Page:
    """One page of the documentation."""

    path: Path

    @property
    def name(self) -> str:
        """The path below the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def lines(self) -> tuple[tuple[int, str, bool], ...]:
        """Number, text and whether it is in a code block, of each line but the fences."""
        found, is_code = [], False
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            if _FENCE.match(line):
                is_code = not is_code
                continue
            found.append((number, line, is_code))
        return tuple(found)

    @cached_property
    def prose(self) -> str:
        """The page without its code blocks; a line's end is a space, so that a phrase may go over two."""
        return " ".join(line for _, line, is_code in self.lines if not is_code)

    @cached_property
    def spans(self) -> tuple[str, ...]:
        """What is in single backquotes; one that goes over a line's end is joined."""
        return tuple(match.strip() for match in _SPAN.findall(self.prose))

    @cached_property
    def code_lines(self) -> tuple[str, ...]:
        """Lines of the code blocks; one that ends in a backslash is joined with the next."""
        text = "\n".join(line for _, line, is_code in self.lines if is_code)
        return tuple(text.replace("\\\n", " ").splitlines())

    def code_blocks(self, heading: str) -> list[str]:
        """Texts of the code blocks below a heading, up to the next one."""
        blocks: list[list[str]] = []
        is_below, last = False, 0
        for number, line, is_code in self.lines:
            title = None if is_code else _HEADING.match(line)
            if title is not None:
                is_below = title[1] == heading
            elif is_code and is_below:
                # The lines of one block follow each other; between two blocks there are fences.
                if number != last + 1:
                    blocks.append([])
                blocks[-1].append(line)
                last = number
        return ["".join(f"{line}\n" for line in block) for block in blocks]

    @cached_property
    def anchors(self) -> frozenset[str]:
        """What a link may name after ``#``, as GitHub makes it of the headings."""
        found: dict[str, int] = {}
        anchors = set()
        for _, line, is_code in self.lines:
            heading = None if is_code else _HEADING.match(line)
            if heading is None:
                continue
            text = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            number = found.get(text, 0)
            found[text] = number + 1
            anchors.add(f"{text}-{number}" if number else text)
        return frozenset(anchors)

    @cached_property
    def links(self) -> tuple[str, ...]:
        """Targets of the links, without those in code."""
        return tuple(_LINK.findall(_SPAN.sub("", self.prose)))

    @cached_property
    def tables(self) -> tuple[tuple[tuple[int, str], ...], ...]:
        """Runs of lines that begin with a bar: number and text of each line."""
        runs: list[list[tuple[int, str]]] = []
        last = -1
        for number, line, is_code in self.lines:
            if is_code or not line.startswith("|"):
                continue
            if number != last + 1:
                runs.append([])
            runs[-1].append((number, line))
            last = number
        return tuple(tuple(run) for run in runs)

    def broken_tables(self) -> list[str]:
        """What is wrong with the page's tables, a line each."""
        wrong = []
        for run in self.tables:
            number = run[0][0]
            if len(run) < 2 or not _SEPARATOR.match(run[1][1]):
                wrong.append(f"{self.name}:{number}: rows without a header and its line of dashes")
                continue
            wanted = len(cells(run[0][1]))
            wrong += [
                f"{self.name}:{at}: {len(cells(line))} cells under a header of {wanted}"
                for at, line in run
                if len(cells(line)) != wanted
            ]
        return wrong

    def broken_links(self) -> list[str]:
        """Links to files and headings that do not exist, a line each."""
        wrong = []
        for target in self.links:
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            path = (self.path.parent / file).resolve() if file else self.path
            if not path.exists():
                wrong.append(f"{self.name}: {target}: no such file")
            elif anchor and anchor not in Page(path).anchors:
                wrong.append(f"{self.name}: {target}: no such heading")
        return wrong


def cells(row: str) -> list[str]:
    """Split a row of a table into its cells."""
    return [cell.strip() for cell in _CELL_END.split(row.strip())[1:-1]]


def all_pages() -> list[Page]:
    """Every page of the repository, changes and history included."""
    folders = ("", "docs", "docs/how-to", "docs/reference", "docs/explanation", "docs/adr", "docker")
    return [Page(path) for folder in folders for path in sorted((ROOT / folder).glob("*.md"))]


def named_pages() -> list[Page]:
    """The pages whose names have to be those of the code: all but the list of changes."""
    return [page for page in all_pages() if page.name != "CHANGELOG.md"]
