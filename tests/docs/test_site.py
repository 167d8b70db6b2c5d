"""The documentation site: built strictly, whole without a network, and with the same content as on GitHub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pytest
from markdown import Markdown
from markdown_it import MarkdownIt

from release.site import PROJECT_PAGES, GitHubLists, rewrite_links
from tests.support.pages.markdown import ROOT, all_pages

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.browser import Browser

# What a browser loads by itself: attribute by element.
LOADED: Final = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "video": "src",
}
COUNTED: Final = ("h1", "h2", "h3", "h4", "li", "tr", "td", "pre", "img")


class Elements(HTMLParser):
    """Collects what a page has: elements with their attributes, of its article those that are counted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.counts: Counter[str] = Counter()
        self._is_article = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        self._is_article = self._is_article or tag == "article"
        if self._is_article and tag in COUNTED:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self._is_article = False


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a site that was built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Elements]:
    """Return what each page of the site has, by its path."""
    return {
        path.relative_to(site).as_posix(): Elements(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }


def test_every_page_is_built(pages: dict[str, Elements]) -> None:
    names = {page.name for page in all_pages()} - {"README.md"}
    assert {_html_of(name) for name in names} <= set(pages)


def test_pages_load_only_files_of_the_site(site: Path, pages: dict[str, Elements]) -> None:
    loaded = {
        (name, attributes[LOADED[tag]])
        for name, page in pages.items()
        for tag, attributes in page.found
        if tag in LOADED and LOADED[tag] in attributes and attributes.get("rel") != "canonical"
    }
    assert len({name for name, _ in loaded}) == len(pages)
    assert sorted(pair for pair in loaded if not _is_file(site, *pair)) == []


def test_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    texts = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert texts
    found = [
        url for text in texts for url in re.findall(r"url\(['\"]?([^)'\"]+)|@import ['\"]([^'\"]+)", text)
    ]
    assert [url for url in found if not "".join(url).startswith(("data:", "#"))] == []


def test_links_between_pages_lead_to_pages(site: Path, pages: dict[str, Elements]) -> None:
    broken = [
        (name, attributes["href"])
        for name, page in pages.items()
        for tag, attributes in page.found
        if tag == "a" and "href" in attributes and name != "404.html"
        if not urlsplit(attributes["href"]).scheme and not _is_file(site, name, attributes["href"])
    ]
    assert broken == []


def test_pages_have_the_same_parts_as_on_github(pages: dict[str, Elements]) -> None:
    """Another reader of Markdown, which follows GitHub's rules, finds the same headings, items and cells."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    differing = {}
    for page in all_pages():
        if page.name == "README.md":
            continue
        expected = Elements(
            f"<article>{reader.render(page.path.read_text(encoding='utf-8'))}</article>"
        ).counts
        found = pages[_html_of(page.name)].counts
        if expected != found:
            differing[page.name] = (expected - found, found - expected)
    assert differing == {}


def test_lists_are_nested_as_on_github() -> None:
    numbered = "1. a\n   - b\n     c\n\n   more\n\n2. d\n\n"
    html = Markdown(extensions=[GitHubLists(), "pymdownx.superfences"]).convert(
        f"{numbered}- e\n\n  ```\n  x:\n    y: 1\n  ```\n\n- f\n"
    )
    assert Elements(f"<article>{html}</article>").counts == Counter(li=5, pre=1)
    assert "x:\n  y: 1" in re.sub(r"<[^>]+>", "", html)


@pytest.mark.parametrize(
    ("source", "link", "there"),
    [
        ("docs/lag.md", "[a](tables.md#lag)", "[a](tables.md#lag)"),
        ("docs/lag.md", "[a](../docker/README.md#x)", "[a](project/containers.md#x)"),
        ("docs/how-to/kubernetes.md", "[a](../../SECURITY.md)", "[a](../project/security-policy.md)"),
        ("docker/README.md", "[`a` b](../docs/lag.md)", "[`a` b](../lag.md)"),
        ("CONTRIBUTING.md", "[a](docs/lag.md)", "[a](../lag.md)"),
        ("CONTRIBUTING.md", "![a](docs/images/site.png)", "![a](../images/site.png)"),
        ("CONTRIBUTING.md", "[a](evenlag/errors.py)", "a"),
        ("docs/lag.md", "`[a](../LICENSE)`", "`[a](../LICENSE)`"),
        ("docs/lag.md", "```\n[a](../LICENSE)\n```\n", "```\n[a](../LICENSE)\n```\n"),
        ("docs/lag.md", "[a](https://kafka.apache.org)", "[a](https://kafka.apache.org)"),
    ],
)
def test_links_lead_to_the_page_on_the_site(source: str, link: str, there: str) -> None:
    assert rewrite_links(link, source) == there


@pytest.mark.extended
def test_it_opens_from_a_folder_and_finds_a_setting_by_search(site: Path, browser: Browser) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.open((site / "index.html").as_uri())
    browser.driver.find_element("css selector", ".md-search__input").send_keys("cooldown_s")
    script = "return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"
    found = WebDriverWait(browser.driver, 60).until(lambda _: browser.run(script))
    assert any("gates.html" in address for address in found)
    assert any("reference/policy.html" in address for address in found)
    assert [address for address in browser.requests() if not address.startswith(("file:", "data:"))] == []
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def _html_of(name: str) -> str:
    page = PROJECT_PAGES.get(name, name.removeprefix("docs/"))
    return (
        f"{page.removesuffix('README.md')}index.html" if page.endswith("README.md") else f"{page[:-3]}.html"
    )


def _is_file(site: Path, name: str, address: str) -> bool:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return parts.scheme == "data"
    if not parts.path:
        return True
    # The page for unknown addresses names everything from the root.
    start = site if parts.path.startswith("/") else (site / name).parent
    path = (start / unquote(parts.path).lstrip("/")).resolve()
    return path.is_file() or (path / "index.html").is_file()
