"""Pages, comments, docstrings, helps and table descriptions use no discouraged word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import typer

from evenlag.cli.app import app
from evenlag.lake.tables import TABLES
from tests.support.each import for_each
from tests.support.pages.language import (
    comment_findings,
    discouraged,
    found_in,
    page_findings,
    python_findings,
)
from tests.support.pages.markdown import ROOT, all_pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.pages.markdown import Page

# Pages that are generated from code: their words are checked in the code.
GENERATED = {"docs/tables.md", "docs/gates.md", "docs/reference/command.md", "docs/reference/policy.md"}
PAGES = [page for page in all_pages() if page.name not in GENERATED]
# Python files whose comments and docstrings are checked. Add a folder when it is clean.
PYTHON_FILES = [
    "assignor_core/**/*.py",
    "dags/**/*.py",
    "docker/**/*.py",
    "evenlag/**/*.py",
    "examples/**/*.py",
    "sandbox/**/*.py",
    "spark_jobs/**/*.py",
    "tests/*.py",
    "tests/assignor_core/**/*.py",
    "tests/bench/**/*.py",
    "tests/broker_plugin/**/*.py",
    "tests/chaos/**/*.py",
    "tests/dags/**/*.py",
    "tests/docker/**/*.py",
    "tests/docs/**/*.py",
    "tests/end_to_end/**/*.py",
    "tests/evenlag/**/*.py",
    "tests/java_client/**/*.py",
    "tests/recorded/**/*.py",
    "tests/sandbox/**/*.py",
    "tests/soak/**/*.py",
    "tests/spark_jobs/**/*.py",
    "tests/support/**/*.py",
    "tests/truth/**/*.py",
]
COMMAND: Any = typer.main.get_command(app)
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
        "jvm/*/src/**/*.java",
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
)


def python_files() -> list[Path]:
    """Return the Python files whose comments and docstrings are checked."""
    return sorted({path for pattern in PYTHON_FILES for path in ROOT.glob(pattern)})


def helps(command: Any) -> Iterator[str]:
    """Yield the texts of a command, its options and what is below it."""
    yield command.help or ""
    for parameter in command.params:
        yield getattr(parameter, "help", None) or ""
    for child in getattr(command, "commands", {}).values():
        yield from helps(child)


@for_each(PAGES, lambda page: page.name)
def test_pages_use_no_discouraged_word(page: Page) -> list[str]:
    return page_findings(page)


@for_each(python_files())
def test_comments_and_docstrings_use_no_discouraged_word(path: Path) -> list[str]:
    return python_findings(path)


@for_each(OTHER_FILES)
def test_comments_of_other_files_use_no_discouraged_word(path: Path) -> list[str]:
    return comment_findings(path)


@for_each(sorted(COMMAND.commands))
def test_helps_use_no_discouraged_word(name: str) -> list[str]:
    return [finding for text in helps(COMMAND.commands[name]) for finding in found_in(text)]


@for_each(sorted(TABLES))
def test_descriptions_of_tables_use_no_discouraged_word(name: str) -> list[str]:
    table = TABLES[name]
    texts = [table.doc, *(column.doc for column in table.columns)]
    return [finding for text in texts for finding in found_in(text)]


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
