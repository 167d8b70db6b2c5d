"""The session's one browser: Debian's Chromium without a window, driven by Selenium."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# It shall ask nobody for anything by itself, or what a page asks for could not be told from it.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """What tests ask of a browser: a page at a width and in a scheme, and what it did.

    Attributes
    ----------
    driver
        Selenium's own.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str, *, width: int = 1280, scheme: str = "light") -> None:
        """Load a page and forget what the one before did."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.complaints()
        self.requests()
        self.driver.get(url)

    def run(self, script: str) -> Any:
        """Return what a script returns in the page."""
        return self.driver.execute_script(script)

    def complaints(self) -> list[str]:
        """What the console was told since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address asked for since the last time."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def accessible(self) -> list[tuple[str, str]]:
        """(role, name) of everything that a screen reader comes upon, in its order."""
        nodes = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"] and "role" in node
        ]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return the browser; without one a test is skipped, and fails where ``CI`` is set."""
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        why = "Debian's chromium and chromium-driver are not installed: .ci/browser does that"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(found[0])
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        driver = Chrome(options, Service(str(found[1])))
        try:
            yield Browser(driver)
        finally:
            driver.quit()
