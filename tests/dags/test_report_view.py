"""Overview and reports in the sandbox's Airflow: in its navigation, for who is logged in, in a browser."""

from __future__ import annotations

import urllib.error
import urllib.request
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from evenlag.airflow_rest import AirflowRest
from evenlag.doctor.airflow_checks import check_page
from evenlag.doctor.model import Verdict
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from sandbox.airflow.instance import Airflow
    from tests.support.fixtures.browser import Browser
    from tests.support.live_plan import LiveGroup

pytestmark = [pytest.mark.extended, pytest.mark.airflow, pytest.mark.broker]


@pytest.fixture(scope="module")
def lag_records(live_group: LiveGroup) -> int:
    """Give the newest reading of the shared lake a lag to report."""
    newest = LakeReader(str(live_group.lake)).latest_snapshot(live_group.name)
    assert newest is not None
    head = {name: newest[name] for name in ("cluster", "day", "snapshot_id", "slot")}
    row = head | {"group_id": live_group.group_id, "topic_id": "A" * 22, "topic": "orders", "status": "OK"}
    live_group.write(
        LAG,
        [
            row | {"partition": number, "owner_member_id": f"m-{number}", "lag_records": 1000 * number}
            for number in range(3)
        ],
    )
    return 3000


def fetch(url: str, token: str | None = None) -> tuple[int, str, dict[str, str]]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the sandbox's own http address
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:  # noqa: S310  # the same
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def token_of(airflow: Airflow) -> str:
    return airflow.rest.log_in()


def check_strangers_see_nothing(url: str, group_id: str) -> None:
    status, text, _ = fetch(url)
    assert status == 401
    assert group_id not in text
    assert fetch(url, "made-up")[0] in {401, 403}


def test_the_report_is_for_who_is_logged_in(
    airflow: Airflow, live_group: LiveGroup, lag_records: int
) -> None:
    url = f"{airflow.url}/evenlag/report"
    check_strangers_see_nothing(url, live_group.group_id)
    status, text, headers = fetch(url, token_of(airflow))
    assert status == 200, text
    assert f"<h1>{live_group.group_id} on {live_group.name}</h1>" in text
    assert f"{lag_records:,}" in text
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert fetch(f"{url}?cluster=other", token_of(airflow))[0] == 403
    assert fetch(f"{url}?hours=nonsense", token_of(airflow))[0] == 422


def test_the_overview_is_for_who_is_logged_in(
    airflow: Airflow, live_group: LiveGroup, lag_records: int
) -> None:
    url = f"{airflow.url}/evenlag/overview"
    check_strangers_see_nothing(url, live_group.group_id)
    [found] = check_page(AirflowRest(airflow.url, token_of(airflow)))
    assert found.verdict is Verdict.OK
    status, text, headers = fetch(url, token_of(airflow))
    assert status == 200, text
    assert f">{live_group.group_id}</a>" in text
    assert f">{lag_records:,}</td>" in text
    assert "frame-ancestors 'self'" in headers["content-security-policy"]
    assert headers["etag"].startswith('W/"')


@pytest.mark.usefixtures("lag_records")
def test_airflow_s_navigation_leads_to_the_groups_and_their_reports(
    airflow: Airflow, live_group: LiveGroup, browser: Browser
) -> None:
    from selenium.webdriver.common.keys import Keys

    errors = airflow.rest.get("plugins/importErrors")["import_errors"]
    assert [error for error in errors if "evenlag" in error["source"]] == []
    providers = {row["package_name"]: row["version"] for row in airflow.rest.get("providers")["providers"]}
    assert providers["evenlag"] == version("evenlag")
    plugins = airflow.rest.get("plugins")["plugins"]
    views = {view["name"]: view for plugin in plugins for view in plugin["external_views"]}
    route = views["evenlag"]["url_route"]
    driver = browser.driver
    browser.open(f"{airflow.url}/api/v2/version")
    driver.add_cookie({"name": "_token", "value": token_of(airflow)})
    browser.open(f"{airflow.url}/plugin/{route}")

    def shown() -> str:
        return str(browser.run("return document.body.innerText"))

    def text_with(part: str) -> str:
        """Wait until the page shows a text, and return all of it."""
        return wait_until(lambda: text if part in (text := shown()) else "", what=shown)

    frames = wait_until(
        lambda: driver.find_elements("css selector", "iframe"), what=lambda: driver.page_source[:2000]
    )
    driver.switch_to.frame(frames[0])
    text_with(live_group.group_id)
    # Airflow's frame lets the page's script run: it has counted the groups, and it may filter them.
    driver.find_element("css selector", "[name=q]").send_keys("no such group")
    assert driver.find_element("css selector", "#count").text.startswith("0 of ")
    driver.find_element("css selector", "[name=q]").send_keys(Keys.CONTROL, "a", Keys.BACKSPACE)
    driver.find_element("link text", live_group.group_id).click()
    assert f"{live_group.group_id} on {live_group.name}" in text_with("All times are UTC")
    driver.find_element("link text", "all groups").click()
    text_with("Consumer groups")
    driver.switch_to.default_content()
    driver.delete_all_cookies()
