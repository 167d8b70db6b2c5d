"""The page in a real browser: it asks for nothing, fits phone and desk, light and dark, eye and ear."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from tests.support.lakes.report_lake import HOSTILE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fixtures.browser import Browser

pytestmark = pytest.mark.extended

WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
READABLE = 4.5  # the contrast that WCAG 2 asks of text, at level AA

# What lies beside the window, unless something around it scrolls by itself.
BESIDE = """
return [...document.querySelectorAll('main *')].filter(each => {
  const box = each.getBoundingClientRect();
  return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1)
    && !each.closest('.scroll') && !each.closest('svg *');
}).map(each => each.outerHTML.slice(0, 120));
"""
COLOURS = """
const seen = each => each.getBoundingClientRect().width > 0;
const all = (what, name) => [...document.querySelectorAll(what)].filter(seen)
  .map(each => getComputedStyle(each)[name]);
return [getComputedStyle(document.body).backgroundColor,
        all('p, strong, th, td, li, a, summary, figcaption, h1, h2, h3', 'color'),
        all('svg text[style*="--ink"]', 'fill')];
"""

TEXTS_OF_PICTURES = """
return [...document.querySelectorAll('svg[role=img]')].filter(each => each.getBoundingClientRect().width > 0)
  .map(each => [...each.querySelectorAll('text')].map(text => {
    const {left, right, top, bottom} = text.getBoundingClientRect();
    return {text: text.textContent.trim(), left, right, top, bottom};
  }));
"""


def _luminance(colour: str) -> float:
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_fits_asks_for_nothing_and_can_be_read(
    browser: Browser, page_file: Path, width: int, scheme: str
) -> None:
    browser.open(page_file.as_uri(), width=width, scheme=scheme)
    assert browser.complaints() == []
    assert browser.requests() == [page_file.as_uri()]
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.run(BESIDE) == []

    paper, texts, drawn = browser.run(COLOURS)
    assert (_luminance(paper) < 0.1) == (scheme == "dark")
    assert drawn
    assert min(_contrast(paper, colour) for colour in {*texts, *drawn}) >= READABLE
    # Of each picture the one for this width is there, the other is not.
    shown = browser.run(
        "return [...document.querySelectorAll('svg[role=img]')].map("
        "each => [each.closest('.on-phone') !== null, each.getBoundingClientRect().width > 0])"
    )
    assert len(shown) == 6
    assert all(is_shown == (is_narrow == (width == 360)) for is_narrow, is_shown in shown)


@pytest.mark.parametrize("width", WIDTHS)
def test_marks_are_labelled_without_overlap_and_axes_have_a_scale(
    browser: Browser, page_file: Path, width: int
) -> None:
    browser.open(page_file.as_uri(), width=width)
    pictures = browser.run(TEXTS_OF_PICTURES)
    assert len(pictures) == 3
    _, timeline, lag = pictures
    for texts in (timeline, lag):
        labels = [each for each in texts if each["text"] in {"published", "followed"}]
        assert sorted(each["text"] for each in labels) == ["followed", "published"]
        one, other = labels
        apart = one["right"] <= other["left"] or other["right"] <= one["left"]
        assert apart or one["bottom"] <= other["top"] or other["bottom"] <= one["top"]
        # The period is two hours: round times from 12:00 to 13:55.
        assert sum(bool(re.fullmatch(r"1\d:\d\d", each["text"])) for each in texts) >= 4
    numbers = [each for each in lag if re.fullmatch(r"[\d,]+k?", each["text"])]
    assert len(numbers) >= 4


def test_the_first_line_is_the_verdict(browser: Browser, page_file: Path) -> None:
    browser.open(page_file.as_uri(), width=360)
    first = browser.run("return document.querySelector('h1').nextElementSibling.innerText")
    assert first.startswith("Plan followed at 12:50: the most loaded member went from 24,000 to ")
    # It is on the first screen of a phone.
    assert browser.run("return document.querySelector('.verdict').getBoundingClientRect().bottom < 640")


def test_names_from_the_lake_are_text(browser: Browser, page_file: Path) -> None:
    browser.open(page_file.as_uri())
    assert browser.run("return document.scripts.length") == 0
    assert HOSTILE in browser.run("return document.body.innerText")
    assert "$x_{1}$" in browser.run("return document.querySelector('.on-desk svg').textContent")


def test_a_screen_reader_finds_its_way(browser: Browser, page_file: Path) -> None:
    browser.open(page_file.as_uri())
    found = browser.accessible()
    roles = [role for role, _ in found]
    assert roles.count("main") == 1
    assert [name for role, name in found if role == "navigation"] == ["On this page"]
    assert [name for role, name in found if role == "region"][:3] == [
        "Lag of each member",
        "Partitions",
        "Partition ownership",
    ]
    pictures = [name for role, name in found if role in {"image", "img"}]
    assert len(pictures) == 3
    assert "Of the most loaded: before the plan 24,000" in pictures[0]
    assert "8 partitions" in pictures[1]
    assert pictures[2].startswith("Line chart of the group's lag over time")
    assert all(name for role, name in found if role in {"table", "link", "heading", "columnheader"})
    levels = browser.run("return [...document.querySelectorAll('h1,h2,h3')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_what_is_folded_opens_by_keys(browser: Browser, page_file: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(page_file.as_uri())
    summary = browser.driver.find_element("css selector", "details summary")
    summary.send_keys(Keys.ENTER)
    assert browser.run("return document.querySelector('details').open")
    assert "24,000" in browser.run("return document.querySelector('details table').innerText")
