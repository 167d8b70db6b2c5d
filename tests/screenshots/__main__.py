"""Make the pictures of ``docs/images``: ``python -m tests.screenshots [NAME ...]``, all without a name.

The lakes are those of ``tests/truth/lakes``, which real cycles wrote. The overview comes from the product's
own server, Airflow's page from a real Airflow, ``lag --watch`` from a real broker with a skewed workload.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from sandbox.airflow.instance import Airflow
from sandbox.demo.run import prepare_folder
from sandbox.kafka.broker import Broker, quiet
from sandbox.workload.workload import Workload
from tests.screenshots.camera import Camera, last_frame
from tests.support.fixtures.browser import running_browser
from tests.support.pages.markdown import ROOT
from tests.support.waiting import wait_until
from tests.truth.recorded_lakes import RecordedLake, extract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_DESK: Final = (1280, 900)
_PHONE: Final = (390, 900)
"""How long a page may take until it shows its content."""


@dataclass(frozen=True)
class Studio:
    """What pictures are made of.

    camera: Takes them.
    folder: For everything that is needed meanwhile.
    """

    camera: Camera
    lake: RecordedLake
    policy: Path
    folder: Path


def show_report(studio: Studio) -> None:
    """The report of a group: all of it, its top, and on a phone."""
    page = studio.folder / "report.html"
    _evenlag("report", "billing", "--cluster", "north", "--file", str(page), "--config", str(studio.policy))
    studio.camera.take("report", page.as_uri(), (1050, 2700))
    studio.camera.take("report-top", page.as_uri(), (1050, 930))
    studio.camera.take("report-phone", page.as_uri(), (390, 1240), "dark")


def show_overview(studio: Studio) -> None:
    """The overview of all groups, on a desk and on a phone."""
    with _served(studio) as url:
        studio.camera.take("overview", f"{url}/overview", _DESK)
        studio.camera.take("overview-phone", f"{url}/overview", _PHONE, "dark")


def show_airflow(studio: Studio) -> None:
    """The report on Airflow's page, which the overview leads to."""
    paused = {"AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True"}
    with Airflow.start(studio.folder / "airflow", policy=studio.policy, environment=paused) as airflow:
        browser = studio.camera.browser
        browser.open(f"{airflow.url}/api/v2/version")
        token = airflow.rest.log_in()
        browser.driver.add_cookie({"name": "_token", "value": token})
        views = [
            view for plugin in airflow.rest.get("plugins")["plugins"] for view in plugin["external_views"]
        ]
        (route,) = (view["url_route"] for view in views if view["name"] == "evenlag")
        browser.open(f"{airflow.url}/plugin/{route}")
        frame = wait_until(lambda: browser.driver.find_elements("css selector", "iframe"))[0]
        browser.driver.switch_to.frame(frame)
        wait_until(lambda: browser.driver.find_elements("link text", "billing"))[0].click()
        wait_until(lambda: "All times are UTC" in _text(browser))
        browser.driver.switch_to.default_content()
        studio.camera.keep("report-airflow", (1280, 860))


def show_site(studio: Studio) -> None:
    """The documentation site."""
    target = studio.folder / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", target],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    studio.camera.take("site", (target / "how-to" / "migrate-a-group.html").as_uri(), _DESK)


def show_lag(studio: Studio) -> None:
    """``evenlag lag --watch`` on a broker with a group that is behind unevenly."""
    folder = prepare_folder(studio.folder / "broker")
    with quiet("kafka"), Broker.start(folder / "kafka") as broker:
        client = {"bootstrap_servers": broker.bootstrap_servers}
        workload = Workload(
            client,
            folder / "workload",
            topic="orders",
            num_partitions=12,
            group_id="billing",
            consumer={"records_per_s": 120},
        )
        with workload:
            workload.start_consumers(4)
            owned = workload.wait_until_owned()
            hot = sorted(next(iter(owned.values())))
            workload.fill({partition: 9000 - 2500 * number for number, partition in enumerate(hot)})
            workload.start_traffic(records_per_s=300, skew=0.4)
            command = [sys.executable, "-m", "evenlag", "lag", "--watch", "--reset-policy", "earliest"]
            frame = last_frame([*command, "-b", broker.bootstrap_servers], columns=120, seconds=30)
            workload.stop()
    studio.camera.take_terminal(
        "lag-watch", frame.replace(broker.bootstrap_servers, "kafka-1:9092"), studio.folder
    )


SHOWS: Final[dict[str, Callable[[Studio], None]]] = {
    "report": show_report,
    "overview": show_overview,
    "airflow": show_airflow,
    "site": show_site,
    "lag": show_lag,
}
"""What each name makes pictures of."""


def main(argv: Sequence[str] | None = None) -> int:
    """Make pictures.

    argv: Arguments; those of this process when None.
    """
    parser = argparse.ArgumentParser(
        prog="tests.screenshots", description="Make the pictures of docs/images."
    )
    parser.add_argument("names", nargs="*", choices=[*SHOWS, []], help="which; all without a name")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", help="the folder for them")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as made, running_browser(Path(made) / "browser") as browser:
        folder = Path(made)
        lake = extract("hints", folder / "recorded")
        studio = Studio(
            Camera(browser, arguments.out), lake, lake.write_policy(folder / "evenlag.yaml"), folder
        )
        for name in arguments.names or SHOWS:
            SHOWS[name](studio)
    return 0


def _evenlag(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "evenlag", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _served(studio: Studio) -> Iterator[str]:
    """Serve the overview as it was when the lake was recorded: its snapshots are not overdue."""
    import uvicorn

    from evenlag.overview.server import listen, make_app
    from evenlag.overview.views import ReportSource

    ended = max(int(step["wall_ms"]) for step in studio.lake.about["done"]) / 1000
    then = datetime.fromtimestamp(ended, UTC) + timedelta(seconds=5)

    class Then(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # of the class that it stands for
            return then.astimezone(tz)

    sources = {cluster: ReportSource("", cluster, str(studio.lake.root)) for cluster in studio.lake.clusters}
    opened = listen("127.0.0.1", 0)
    with mock.patch("evenlag.overview.views.datetime", Then):
        server = uvicorn.Server(uvicorn.Config(make_app(lambda: sources), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{opened.getsockname()[1]}"
        wait_until(lambda: server.started)
        with urllib.request.urlopen(f"{url}/healthz", timeout=60):  # noqa: S310  # our own server
            yield url
        server.should_exit = True
        thread.join(30)
    opened.close()


def _text(browser: Any) -> str:
    return str(browser.run("return document.body.innerText"))


if __name__ == "__main__":
    sys.exit(main())
