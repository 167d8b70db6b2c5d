"""Find the words of ``tests/docs/discouraged_words.txt`` in pages, comments and docstrings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from typing import TYPE_CHECKING, Final

from tests.support.pages.markdown import ROOT, Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_WORDS: Final = ROOT / "tests" / "docs" / "discouraged_words.txt"
# Names in backquotes and targets of links are not prose.
_NAME: Final = re.compile(r"``[^`]+``|`[^`]+`|\]\([^)]*\)|<[^>\s]+>|\bhttps?:\S+")
_COMMENT_LINE: Final = re.compile(r"^\s*(?:#(?!!)|//|/?\*+)\s?(.*)$|\s(?:#|//) (.*)$")


@cache
def discouraged() -> dict[str, str]:
    """Return each discouraged phrase with what to write instead."""
    lines = [line.partition(": ") for line in _WORDS.read_text(encoding="utf-8").splitlines()[1:]]
    return {phrase.strip().lower(): instead for phrases, _, instead in lines for phrase in phrases.split(",")}


@cache
def _pattern() -> re.Pattern[str]:
    phrases = sorted(discouraged(), key=len, reverse=True)
    return re.compile(
        r"\b(?:" + "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases) + r")\b",
        re.IGNORECASE,
    )


def found_in(text: str) -> list[str]:
    """Return the discouraged phrases of a text, each with what to write instead."""
    prose = _NAME.sub(" ` ", text)
    return [
        f"{phrase!r}: write {discouraged()[phrase]}"
        for phrase in (re.sub(r"\s+", " ", match.lower()) for match in _pattern().findall(prose))
    ]


def page_findings(page: Page) -> list[str]:
    """Return what a page has of them."""
    lines = [line for _, line, is_code in page.lines if not is_code]
    return _located(page.name, lines)


def comment_findings(path: Path) -> list[str]:
    """Return what the comments of a file that is not Python have of them: YAML, Java, shell, make, Docker."""
    matches = [_COMMENT_LINE.search(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return _located(_name(path), [(match[1] or match[2] or "") if match else "" for match in matches])


def python_findings(path: Path) -> list[str]:
    """Return what the comments and docstrings of a Python file have of them."""
    source = path.read_text(encoding="utf-8")
    found = [
        f"{_name(path)}:{line}: {finding}"
        for line, text in _docstrings(ast.parse(source))
        for finding in found_in(text)
    ]
    comments = [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    return found + [
        f"{_name(path)}:{line}: {finding}" for line, text in _joined(comments) for finding in found_in(text)
    ]


def _docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def _joined(comments: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Join comments of neighbouring lines, so that a phrase may go over two."""
    joined: list[tuple[int, str]] = []
    last = -1
    for line, text in comments:
        if line == last + 1:
            joined[-1] = (joined[-1][0], f"{joined[-1][1]} {text}")
        else:
            joined.append((line, text))
        last = line
    return joined


def _located(name: str, lines: list[str]) -> list[str]:
    """Look for the phrases in lines as one text; name the line on which each begins."""
    prose = "\n".join(_NAME.sub(" ` ", line) for line in lines)
    return [
        f"{name}: line {prose.count(chr(10), 0, match.start()) + 1} of its prose: {finding}"
        for match in _pattern().finditer(prose)
        for finding in found_in(match[0])
    ]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
