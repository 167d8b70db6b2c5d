"""Pages with hostile names in a real browser, under a content security policy that reports what it sees."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.html.markup import page
from tests.support.names.hostile import kafka_names
from tests.support.names.pages import approval_markdown, docs_html, report_html

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.browser import Browser

# Reported, not blocked: what a name could do, it would do, and the page's own policy must not hide it.
REPORTING = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; report-uri /reports"
)
OWN_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# Elements and attributes that load, run, send or redirect, and links that leave the site.
ALIVE = """
const found = [...document.querySelectorAll(
  'script, img, iframe, object, embed, form, base, link, video, audio, input, button, '
  + 'foreignObject, animate, set, image, meta[http-equiv]')].map(each => each.outerHTML.slice(0, 200));
for (const each of document.querySelectorAll('*'))
  for (const { name, value } of each.attributes)
    if (name.startsWith('on') || (/^(xlink:)?(href|src|action|srcset)$/.test(name)
        && !/^([?#]|[.][.]|runs.)/.test(value)))
      found.push(`${each.tagName} ${name}=${value.slice(0, 100)}`);
return found;
"""


class Site:
    """A web server with pages by path, and the reports that it received."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self._reports: list[dict[str, Any]] = []
        self._arrived = threading.Condition()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.pages.get(self.path.partition("?")[0], "").encode()
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Security-Policy-Report-Only", REPORTING)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["csp-report"]
                # The browser asks for its icon by itself.
                if not report["blocked-uri"].endswith("/favicon.ico"):
                    with site._arrived:
                        site._reports.append(report)
                        site._arrived.notify_all()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def reported(self, path: str, *, within_s: float = 600.0) -> set[str]:
        """Wait for a report on a page, and return the paths of all pages that had any."""

        def paths() -> set[str]:
            return {report["document-uri"].removeprefix(self.url) for report in self._reports}

        with self._arrived:
            assert self._arrived.wait_for(lambda: path in paths(), within_s)
            return paths()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def test_no_name_comes_alive_in_any_page(browser: Browser, site: Site) -> None:
    names = kafka_names(120, seed=7)
    pages = {f"/docs/{path}": html for path, html in docs_html(names).items()}
    pages |= {"/report": report_html(names), "/error": page(names[0], f"<p>{_told(names)}</p>")}
    pages["/approval"] = _as_airflow_shows(approval_markdown(names[:60])[1])
    site.pages = {path: OWN_POLICY.sub("", html) for path, html in pages.items()}
    for path in site.pages:
        browser.open(site.url + path)
        assert browser.run(ALIVE) == [], path
        assert set(browser.requests()) <= {site.url + name for name in (path, "/favicon.ico", "/reports")}
        assert not [line for line in browser.complaints() if "favicon" not in line]

    # What is not escaped is noticed: the same test of a page that prints its names as they are.
    site.pages["/naive"] = "<p>".join(["<!doctype html><title>t</title>", *names])
    browser.open(f"{site.url}/naive")
    assert len(browser.run(ALIVE)) > 10
    assert site.reported("/naive") == {"/naive"}


def _told(names: list[str]) -> str:
    from evenlag.html.markup import text

    return "<br>".join(map(text, names))


def _as_airflow_shows(markdown: str) -> str:
    """Return HTML by another implementation of GitHub's Markdown: tables, and links without any mark."""
    from markdown_it import MarkdownIt

    return f"<!doctype html><title>a</title>{MarkdownIt('gfm-like').render(markdown)}"
