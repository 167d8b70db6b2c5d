"""The overview in a real browser: phone and desk, light and dark, by keys and by ear, while it changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException

from evenlag.overview.model import GroupRow
from tests.evenlag.report.test_in_browser import BESIDE, READABLE, _contrast, _luminance
from tests.support.names.hostile import kafka_names
from tests.support.overview.rows import HOSTILE, groups_of_each_kind, many_groups
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.evenlag.overview.conftest import Site
    from tests.support.fixtures.browser import Browser

pytestmark = pytest.mark.extended

COLOURS = """
const seen = each => each.getBoundingClientRect().width > 1;
const paper = each => { for (let at = each; at; at = at.parentElement) {
  const found = getComputedStyle(at).backgroundColor;
  if (found !== 'rgba(0, 0, 0, 0)') return found; } };
return [getComputedStyle(document.body).backgroundColor,
  [...document.querySelectorAll('h1, p, th, td, li, a, b, label, option, span, select, input, caption')]
    .filter(seen).map(each => [paper(each), getComputedStyle(each).color])];
"""
SHOWN = (
    "return [...document.querySelectorAll('.groups tbody tr:not([hidden]) th a')]"
    ".map(each => each.textContent)"
)
SEARCH = "[name=q]"


def wait_for(what: Callable[[], Any], wanted: Any) -> None:
    def now() -> Any:
        try:
            return what()
        # Between two pages an element is gone, or not there yet.
        except (NoSuchElementException, StaleElementReferenceException) as error:
            return error.msg

    wait_until(lambda: now() == wanted, what=now)


def count(browser: Browser) -> str:
    return str(browser.run("return document.querySelector('#count').innerText"))


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(320, "light"), (390, "dark"), (768, "light"), (1280, "dark"), (1400, "light"), (2000, "light")],
)
def test_it_fits_asks_for_nothing_and_can_be_read(
    browser: Browser, site: Site, width: int, scheme: str
) -> None:
    site.groups = groups_of_each_kind()
    browser.open(f"{site.url}/overview", width=width, scheme=scheme)
    assert [line for line in browser.complaints() if "favicon" not in line] == []
    asked = {url for url in browser.requests() if not url.endswith("/favicon.ico")}
    assert asked == {f"{site.url}/overview"}
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert browser.run(BESIDE) == []
    paper, texts = browser.run(COLOURS)
    assert (_luminance(paper) < 0.1) == (scheme == "dark")
    assert len(texts) > 50
    assert min(_contrast(*pair) for pair in {tuple(pair) for pair in texts}) >= READABLE


@pytest.mark.parametrize("width", [320, 768, 1400])
def test_a_long_name_is_cut_in_the_middle_and_takes_no_more_lines(
    browser: Browser, site: Site, width: int
) -> None:
    name = f"payments-{'reconciliation-' * 8}eu-west-1"
    first, *others = groups_of_each_kind()
    site.groups = (replace(first, group_id="short"), replace(first, group_id=name), *others)
    browser.open(f"{site.url}/overview", width=width)
    link = "[...document.querySelectorAll('a.long')].find(each => each.title.startsWith('payments-'))"
    assert browser.run(f"return {link}.textContent") == name
    start, end = f"{link}.firstChild", f"{link}.lastChild"
    assert browser.run(f"return {start}.scrollWidth > {start}.clientWidth")
    assert browser.run(f"return {end}.scrollWidth <= {end}.offsetWidth && {end}.textContent === '-eu-west-1'")
    heights = browser.run(
        "return [...document.querySelectorAll('.groups tbody th a')]"
        f".filter(each => ['short', {name!r}].includes(each.textContent)).map(each => each.offsetHeight)"
    )
    assert max(heights) < 2 * min(heights)
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_names_from_the_lake_are_text(browser: Browser, site: Site) -> None:
    names = kafka_names(120, seed=7)
    kinds = groups_of_each_kind()
    site.groups = tuple(
        replace(kinds[place % 7], group_id=name, hot=names[place - 1], decision_reason=names[place - 2])
        for place, name in enumerate(names)
    )
    browser.open(f"{site.url}/overview")
    assert browser.run("return document.querySelectorAll('.groups tbody tr').length") == len(names)
    assert browser.run("return document.scripts.length") == 1
    assert browser.run(
        "return [...document.querySelectorAll('.groups tbody *')].map(each => each.localName)"
        ".filter(name => !'a,b,path,span,svg,td,th,time,tr'.split(',').includes(name))"
    ) == []  # fmt: skip
    assert [line for line in browser.complaints() if "favicon" not in line] == []


def test_search_filters_and_order_work_by_keys_and_stay_in_the_address(browser: Browser, site: Site) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    site.groups = groups_of_each_kind()
    browser.open(f"{site.url}/overview")
    assert browser.run(SHOWN)[:2] == ["payments", "review"]
    driver = browser.driver
    driver.find_element("css selector", "body").send_keys("/")
    driver.switch_to.active_element.send_keys("EV")
    assert set(browser.run(SHOWN)) == {"review", HOSTILE}
    assert count(browser) == "2 of 7 groups"
    driver.switch_to.active_element.send_keys(Keys.BACKSPACE, Keys.BACKSPACE, "E")
    assert count(browser) == "7 of 7 groups"
    Select(driver.find_element("name", "cluster")).select_by_value("orders")
    Select(driver.find_element("name", "state")).select_by_value("attention")
    wait_for(lambda: browser.run(SHOWN), ["review", "deaf"])

    heading = driver.find_element("css selector", "[data-sort=group]")
    heading.send_keys(Keys.ENTER)
    assert browser.run(SHOWN) == ["deaf", "review"]
    order = "return document.querySelector('[data-sort=group]').parentElement.getAttribute('aria-sort')"
    assert browser.run(order) == "ascending"
    heading.send_keys(Keys.ENTER)
    assert browser.run(SHOWN) == ["review", "deaf"]
    assert browser.run(order) == "descending"
    address = browser.run("return location.search")
    assert address == "?q=E&cluster=orders&state=attention&sort=group&order=reversed"

    browser.open(f"{site.url}/overview{address}")
    assert browser.run(SHOWN) == ["review", "deaf"]
    driver.find_element("css selector", SEARCH).send_keys("nobody")
    assert browser.run(SHOWN) == []
    assert "No group matches" in browser.run("return document.querySelector('#none').innerText")

    for state, title in (("attention", "groups to look at"), ("waiting", "plans wait for approval")):
        browser.open(f"{site.url}/overview")
        link = driver.find_element("link text", title)
        expected = link.find_element("xpath", "..").text.split()[0]
        link.click()
        wait_for(lambda: browser.run("return location.search"), f"?state={state}")
        assert len(browser.run(SHOWN)) == int(expected) > 0


@pytest.mark.parametrize(
    "sort", ["group", "lag", "trend", "behind", "skew", "drain", "mode", "plan", "signs"]
)
@pytest.mark.parametrize("order", ["", "reversed"])
def test_the_script_orders_as_the_server_does(browser: Browser, site: Site, sort: str, order: str) -> None:
    site.groups = tuple(row for row in groups_of_each_kind() if row.group_id.isascii())
    browser.open(f"{site.url}/overview?sort={sort}&order={order}")
    by_server = browser.run(SHOWN)
    other = "skew" if sort != "skew" else "lag"
    browser.run(f"document.querySelector('[data-sort={other}]').click()")
    for _ in range(1 + (order == "reversed")):
        browser.run(f"document.querySelector('[data-sort={sort}]').click()")
    assert browser.run(SHOWN) == by_server


def test_it_works_without_scripts(browser: Browser, site: Site) -> None:
    site.groups = groups_of_each_kind()
    driver = browser.driver
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(f"{site.url}/overview")
        driver.find_element("css selector", SEARCH).send_keys("review")
        driver.find_element("css selector", "noscript button").click()
        wait_for(lambda: driver.find_element("css selector", "#count").text, "1 of 7 groups")
        driver.find_element("css selector", "[data-sort=skew]").click()
        wait_for(lambda: "sort=skew" in driver.current_url and "q=review" in driver.current_url, True)
        wait_for(lambda: driver.find_element("css selector", "#count").text, "1 of 7 groups")
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("width", [360, 1280])
def test_a_screen_reader_finds_its_way(browser: Browser, site: Site, width: int) -> None:
    site.groups = groups_of_each_kind()
    browser.open(f"{site.url}/overview", width=width)
    found = browser.accessible()
    roles = [role for role, _ in found]
    assert roles.count("main") == roles.count("search") == roles.count("status") == 1
    assert roles.count("table") == 1
    assert roles.count("row") == 8
    assert [name.partition(" ")[0] for role, name in found if role == "columnheader"][:2] == ["Group", "Lag"]
    links = [name for role, name in found if role == "link"]
    assert {"payments", "review", HOSTILE, "pay\\u202elor"} <= set(links)
    assert any(role == "rowheader" and name.startswith("payments") for role, name in found)
    assert all(
        name for role, name in found if role in {"link", "columnheader", "combobox", "searchbox", "checkbox"}
    )


def refresh(browser: Browser) -> None:
    """Let the page refresh now, as it does when it comes back from behind another one."""
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")


def refreshed(browser: Browser) -> str:
    return str(browser.run("return document.querySelector('#refreshed').innerText"))


def test_rows_that_are_being_read_follow_soon(browser: Browser, site: Site) -> None:
    site.groups, site.is_being_read = many_groups(3), True
    browser.open(f"{site.url}/overview")
    assert "being read again" in browser.run("return document.querySelector('#clusters').innerText")
    site.groups, site.is_being_read = many_groups(5), False
    wait_for(lambda: count(browser), "5 of 5 groups")
    state = browser.run("return document.querySelector('#clusters').outerHTML")
    assert "being read" not in state
    assert 'data-refresh="30"' in state


def test_it_refreshes_in_place_and_says_when_it_could_not(browser: Browser, site: Site) -> None:
    site.groups = groups_of_each_kind()
    browser.open(f"{site.url}/overview")
    driver = browser.driver
    driver.find_element("css selector", SEARCH).send_keys("e")
    browser.run("document.querySelector('.groups tbody tr:not([hidden]) a').focus()")
    new = GroupRow("orders", "newest", "Stable", 1, 1, lag_records=99_000, mode="auto")
    site.groups = (*site.groups, new)
    refresh(browser)
    wait_for(lambda: browser.run(SHOWN)[:2], ["newest", "payments"])
    assert count(browser) == "8 of 8 groups"
    assert "8" in browser.run("return document.querySelector('#totals').innerText")
    assert browser.run("return document.activeElement.innerText") == "payments"
    assert refreshed(browser).startswith("Refreshed at ")

    # What did not change is not sent again, and still counts as refreshed.
    browser.run("document.querySelector('#refreshed').textContent = ''")
    browser.run("window.before = document.querySelector('.groups tbody tr')")
    refresh(browser)
    wait_for(lambda: refreshed(browser).startswith("Refreshed at "), True)
    assert browser.run("return document.querySelector('.groups tbody tr') === window.before")

    site.groups = None
    refresh(browser)
    wait_for(lambda: "Not refreshed" in refreshed(browser) and "status 503" in refreshed(browser), True)
    assert browser.run(SHOWN)[:2] == ["newest", "payments"]
    browser.complaints()


def test_two_thousand_groups_are_all_there(browser: Browser, site: Site) -> None:
    site.groups = many_groups(2000)
    browser.open(f"{site.url}/overview")
    assert count(browser) == "2,000 of 2,000 groups"
    assert browser.run("return document.querySelector('.groups tbody').rows.length") == 2000
    assert browser.run(SHOWN)[0] == "team-39.consumer-1999"
    browser.driver.find_element("css selector", SEARCH).send_keys("team-07")
    assert count(browser) == "50 of 2,000 groups"
