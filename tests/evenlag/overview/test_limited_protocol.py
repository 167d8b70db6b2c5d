"""Clients that begin a request and never end it: they lose their connections, and others are answered."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from evenlag.overview import server
from tests.evenlag.overview.test_server import ask
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from starlette.requests import Request

    from tests.evenlag.overview.conftest import Serving, Site

HALF = b"GET /overview HTTP/1.1\r\nHost: localhost\r\n"
NUM_HALF = 300


def connect(url: str, sent: bytes) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=600)
    opened.sendall(sent)
    return opened


def is_ended(opened: socket.socket) -> bool:
    """Wait for the end of a connection; whether it comes."""
    try:
        while opened.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def test_the_oldest_of_too_many_connections_are_ended_and_others_are_answered(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 20)
    # Only their number ends them.
    monkeypatch.setattr(server, "HEADER_S", 600.0)
    with ExitStack() as stack:
        half = [stack.enter_context(connect(site.url, HALF)) for _ in range(60)]
        assert ask(f"{site.url}/overview")[0] == 200
        assert all(is_ended(opened) for opened in half[:40])
        # What is left still counts as a client: it may end its request.
        half[-1].sendall(b"Connection: close\r\n\r\n")
        assert half[-1].recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_headers_have_a_time_limit_also_those_of_a_later_request(
    site: Site, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    monkeypatch.setattr(server, "HEADER_S", 0.5)
    with connect(site.url, before + HALF) as opened:
        assert is_ended(opened)


def test_an_answer_has_a_time_limit(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.5)
    done = threading.Event()

    def wait(_: Request) -> Response:
        done.wait(600)
        return PlainTextResponse("late")

    with (
        serving(Starlette(routes=[Route("/overview", wait)])) as url,
        connect(url, HALF + b"\r\n") as opened,
    ):
        try:
            assert is_ended(opened)
        finally:
            done.set()


@pytest.mark.extended
def test_300_half_sent_requests_do_not_take_down_a_server_that_may_open_256_files(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The command as its user starts it, with the limit that macOS has: others are answered meanwhile."""
    lake = extract("names", tmp_path_factory.mktemp("served"))
    process = subprocess.Popen(
        [sys.executable, "-m", "evenlag", "serve", "--lake", str(lake.root), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_")},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)),  # noqa: PLW1509  # no threads here
    )
    with process, ExitStack() as stack:
        try:
            assert process.stdout is not None
            url = re.match(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert url is not None
            for _ in range(NUM_HALF):
                stack.enter_context(connect(url[0], HALF))
            for _ in range(5):
                assert ask(f"{url[0]}overview")[0] == 200
        finally:
            process.send_signal(signal.SIGINT)
            _, log = process.communicate(timeout=600)
    assert "more than 64 connections" in log
    assert "Too many open files" not in log
