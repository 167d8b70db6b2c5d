"""The server of `evenlag serve`: whom it answers, and the command itself on a recorded lake."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import JobError
from evenlag.overview.server import listen, make_app
from tests.support.overview.rows import groups_of_each_kind
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from pathlib import Path

    from tests.evenlag.overview.conftest import Serving, Site
    from tests.support.fixtures.command import Evenlag

TOKEN = "correct-horse-battery"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow nothing."""


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    shown = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, headers=shown, method=method)  # noqa: S310  # the test's own server
    try:
        with OPENER.open(request, timeout=600) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


def test_it_answers_for_this_machine_only(site: Site) -> None:
    site.groups = groups_of_each_kind()
    assert ask(f"{site.url}/overview")[0] == 200
    assert ask(f"{site.url}/overview", Host="localhost:1234")[0] == 200
    assert ask(f"{site.url}/overview", Host="[::1]:1234")[0] == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "[", ""):
        status, text, _ = ask(f"{site.url}/overview", Host=host)
        assert status == 421, host
        assert "payments" not in text


def test_the_first_page_is_the_overview_and_nothing_can_be_changed(site: Site) -> None:
    status, _, headers = ask(f"{site.url}/")
    assert (status, headers["location"]) == (307, "overview")
    assert ask(f"{site.url}/overview", "POST")[0] == 405
    assert ask(f"{site.url}/nothing")[0] == 404
    assert ask(f"{site.url}/healthz")[:2] == (200, "ok\n")


@pytest.mark.parametrize("hours", ["x", "0", "-1", "nan", "inf", "100000"])
def test_a_period_that_is_none_is_refused(site: Site, hours: str) -> None:
    assert ask(f"{site.url}/report?hours={hours}")[0] == 422


def test_with_a_token_each_request_needs_it(site: Site, serving: Serving) -> None:
    site.groups = groups_of_each_kind()
    with serving(make_app(site.sources, token=TOKEN)) as url:
        for headers in (
            {},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": basic("wrong")},
            {"Authorization": "Basic %%%"},
            {"Authorization": "Bearer"},
        ):
            status, text, answered = ask(f"{url}/overview", **headers)
            assert status == 401
            assert answered["www-authenticate"].startswith("Basic ")
            assert "payments" not in text
        for path in ("overview", "report", ""):
            assert ask(f"{url}/{path}")[0] == 401
        for given in (f"Bearer {TOKEN}", basic(TOKEN)):
            status, text, _ = ask(f"{url}/overview", Authorization=given, Host="groups.example")
            assert status == 200
            assert "payments" in text
        assert ask(f"{url}/healthz")[0] == 200


def test_an_address_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            JobError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*in use; name another"
        ) as taken:
            listen("127.0.0.1", port)
    assert taken.value.exit_code == 3


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (["--host", "192.0.2.1"], {}, "192.0.2.1 can be reached from other machines: put a token"),
        ([], {"EVENLAG_SERVE_TOKEN": "short"}, "EVENLAG_SERVE_TOKEN holds no token: it has at least 16"),
        ([], {"EVENLAG_SERVE_TOKEN_FILE": "/nowhere/token"}, "/nowhere/token"),
        (["--port", "70000"], {}, "'70000' lies outside 0 to 65,535"),
    ],
)
def test_a_mistake_is_one_line(
    evenlag: Evenlag, tmp_path: Path, options: list[str], environment: dict[str, str], message: str
) -> None:
    shown = evenlag("serve", "--lake", tmp_path, *options, **environment)
    assert (shown.exit_code, shown.stderr.count("\n")) == (2, 1)
    assert message in shown.stderr


def test_a_lake_without_a_snapshot_is_told_at_once(evenlag: Evenlag, tmp_path: Path) -> None:
    shown = evenlag("serve", "--lake", tmp_path)
    assert shown.exit_code == 4
    assert "has no snapshot yet: run a cycle first" in shown.stderr


def test_the_command_serves_a_lake_until_it_is_interrupted(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lake = extract("names", tmp_path_factory.mktemp("served"))
    arguments = [sys.executable, "-m", "evenlag", "serve", "--lake", str(lake.root), "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            url = re.match(r"http://127\.0\.0\.1:\d+/", line)
            assert url, line
            status, text, _ = ask(f"{url[0]}overview")
            assert status == 200
            assert text.count("<tr data-s=") == 17
            assert "<script>alert(1)" not in text
            link = re.search(r'href="(report\?cluster=names&amp;group=%5B%2Fx%5D)"', text)
            assert link is not None
            status, text, _ = ask(url[0] + link[1].replace("&amp;", "&"))
            assert status == 200
            assert "<h1>[/x] on names</h1>" in text
            assert 'href="overview"' in text
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(600) in {0, 130, -signal.SIGINT}
