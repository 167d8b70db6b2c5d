"""The pages are whole: no table is broken by a blank line or a bar, and links lead to what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.reference_pages import PAGES as GENERATED
from tests.support.each import for_each
from tests.support.pages.markdown import Page, all_pages

if TYPE_CHECKING:
    from pathlib import Path

PAGES = all_pages()
each_page = for_each(PAGES, lambda page: page.name)


@each_page
def test_its_tables_are_whole(page: Page) -> list[str]:
    return page.broken_tables()


@each_page
def test_its_links_lead_somewhere(page: Page) -> list[str]:
    return page.broken_links()


def test_pages_of_one_purpose_are_short() -> None:
    """A page that is generated is as long as what it lists."""
    folders = ("docs/how-to/", "docs/reference/", "docs/explanation/")
    written = [page for page in PAGES if page.name.startswith(folders) and page.name not in GENERATED]
    assert len(written) > len(folders)
    assert [page.name for page in written if len(page.path.read_bytes().splitlines()) > 200] == []


def test_the_first_page_is_one_screen() -> None:
    (page,) = (page for page in PAGES if page.name == "README.md")
    assert len(page.path.read_bytes().splitlines()) <= 40
    assert len(page.links) <= 15


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("| a | b |\n| --- | --- |\n| 1 | 2 |\n\n| 3 | 4 |\n", "5: rows without a header"),
        ("| a | b |\n| 1 | 2 |\n", "1: rows without a header"),
        ("| a | b |\n| --- | --- |\n| 1 | `x | y` |\n", "3: 3 cells under a header of 2"),
        ("| a | b |\n| --- | --- |\n| 1 | `x \\| y` |\n", None),
        ("```\n| no table\n```\n", None),
    ],
)
def test_a_broken_table_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str | None
) -> None:
    monkeypatch.setattr("tests.support.pages.markdown.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    found = Page(path).broken_tables()
    assert (found == []) if said is None else (len(found) == 1 and f"page.md:{said}" in found[0])


def test_a_link_to_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.pages.markdown.ROOT", tmp_path)
    path = tmp_path / "page.md"
    path.write_text("# A `b`: c\n\n[1](#a-b-c) [2](#a) [3](page.md#a-b-c) [4](other.md)\n", encoding="utf-8")
    assert Page(path).broken_links() == ["page.md: #a: no such heading", "page.md: other.md: no such file"]
