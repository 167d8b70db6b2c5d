"""Debian's Prometheus: where it is, a server of it for a test, and its answers."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from sandbox.processes import free_ports
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[3]
MONITORING: Final = ROOT / "examples" / "monitoring"
_INSTALLED: Final = ROOT / ".cache" / "prometheus" / "usr" / "bin"
# Names that Prometheus' expressions have besides metrics begin otherwise.
_METRIC: Final = re.compile(r"\bevenlag_\w+")


def program(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``; without it a test is skipped, and fails in CI."""
    found = shutil.which(name) or shutil.which(str(_INSTALLED / name))
    if found is None:
        why = f"{name} is not installed: .ci/prometheus does that"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


def promtool(*arguments: str, text: str | None = None) -> str:
    """Run promtool, which must succeed, and return what it prints."""
    done = subprocess.run(
        [program("promtool"), *arguments],
        check=False,
        input=text,
        capture_output=True,
        text=True,
        timeout=600,
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    return printed


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A running server."""

    url: str

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API."""
        shown = urllib.parse.urlencode(query)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/api/v1/{path}?{shown}", timeout=600) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        assert found["status"] == "success", (query, found)
        assert not found.get("warnings"), found
        return found["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def wait_for(self, expression: str) -> list[dict[str, Any]]:
        """Wait until an expression has samples, and return them."""
        return wait_until(lambda: self.query(expression), what=lambda: f"{expression}: {self.get('targets')}")


@contextlib.contextmanager
def running_prometheus(config: Path) -> Iterator[Prometheus]:
    """Run a server with a configuration, in the configuration's folder."""
    (port,) = free_ports(1)
    log = config.with_name("prometheus.log")
    command = [
        program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={config.with_name('data')}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with log.open("wb") as opened:
        process = subprocess.Popen(command, cwd=config.parent, stdout=opened, stderr=opened)
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            # Until it is ready, it answers with text and the status 503.
            with contextlib.suppress(urllib.error.URLError, ConnectionError, json.JSONDecodeError):
                server.get("status/runtimeinfo")
                return True
            return False

        wait_until(is_ready, what=log.read_text)
        yield server
    finally:
        process.terminate()
        process.wait(600)


def metrics_of(expression: str) -> set[str]:
    """Return evenlag's metrics in an expression."""
    return set(_METRIC.findall(expression))


def dashboard_expressions() -> dict[str, str]:
    """Return the expressions of the dashboard by panel and letter, for all clusters and groups."""
    found = {}
    for panel in json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = re.sub(r"\$(cluster|group)\b", ".*", target["expr"])
            assert "$" not in expression
            found[f"{panel['title']} ({target['refId']})"] = expression
    return found
