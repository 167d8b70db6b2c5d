"""Pages, comments, docstrings, helps and table descriptions use no word that the glossary discourages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer

from evenlag.cli.app import app
from evenlag.lake.tables import TABLES
from tests.support.language import comment_findings, discouraged, found_in, page_findings, python_findings
from tests.support.markdown import ROOT, all_pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.markdown import Page

# Pages that are generated from code: their words are held where they are written.
GENERATED = {"docs/tables.md", "docs/gates.md"}
PAGES = [page for page in all_pages() if page.name not in GENERATED]
# Folders whose Python files are held. Add a folder when it is clean.
PYTHON_FOLDERS = ["examples", "tests/docs"]
# Commands whose help is held, and tables whose descriptions are. Add to them in the same way.
COMMANDS: list[str] = []
TABLE_DESCRIPTIONS: list[str] = []
OTHER_FILES = sorted(
    path
    for pattern in (
        "Makefile",
        ".ci/*",
        "docker/*.yaml",
        "docker/*/Dockerfile",
        "docker/*.conf",
        "docker/*.properties",
        "docker/env.example",
        "broker_plugin/src/**/*.java",
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
)


def python_files() -> list[Path]:
    """Return the Python files whose comments and docstrings are held."""
    return sorted(path for folder in PYTHON_FOLDERS for path in (ROOT / folder).rglob("*.py"))


def helps(command: Any) -> Iterator[str]:
    """Yield the texts of a command, its options and what is below it."""
    yield command.help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    for child in getattr(command, "commands", {}).values():
        yield from helps(child)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_no_discouraged_word(page: Page) -> None:
    assert page_findings(page) == []


@pytest.mark.parametrize("path", python_files(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_comments_and_docstrings_use_no_discouraged_word(path: Path) -> None:
    assert python_findings(path) == []


@pytest.mark.parametrize("path", OTHER_FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_comments_of_other_files_use_no_discouraged_word(path: Path) -> None:
    assert comment_findings(path) == []


@pytest.mark.parametrize("name", COMMANDS)
def test_helps_use_no_discouraged_word(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]  # a group of commands
    assert [finding for text in helps(command) for finding in found_in(text)] == []


@pytest.mark.parametrize("name", TABLE_DESCRIPTIONS)
def test_descriptions_of_tables_use_no_discouraged_word(name: str) -> None:
    table = TABLES[name]
    texts = [table.doc, *(column.doc for column in table.columns)]
    assert [finding for text in texts for finding in found_in(text)] == []


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Begins anew.", ["anew"]),
        ("Let\nit go. Lets go\nof it.", ["lets go of"]),
        ("A reading, and `a reading`.", ["a reading"]),
        ("Manewal, by handle", []),
    ],
)
def test_a_discouraged_phrase_is_found(text: str, phrases: list[str]) -> None:
    assert found_in(text) == [f"{phrase!r}: write {discouraged()[phrase]}" for phrase in phrases]


def test_phrases_in_code_are_not_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text('"""Starts\nanew."""\n\nNAME = "by hand"  # set\n# down\n', encoding="utf-8")
    assert [finding.partition(": ")[2].partition(":")[0] for finding in python_findings(path)] == [
        "'anew'",
        "'set down'",
    ]
