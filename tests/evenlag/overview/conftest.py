"""The product's own server, on a free port, with the groups that a test gives it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette

from evenlag.overview.server import listen, make_app, make_server
from evenlag.overview.views import OverviewView, ReportSource
from tests.support.overview.rows import overview_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.overview.model import GroupRow, Overview


@dataclass
class Site:
    """A server of the overview.

    groups: What it shows; None: the policy is broken.
    is_being_read: Whether the cluster is being read again.
    """

    url: str = ""
    groups: tuple[GroupRow, ...] | None = field(default=())
    is_being_read: bool = False

    def sources(self) -> dict[str, ReportSource]:
        """Return one cluster: its name stands for all."""
        from evenlag.errors import PolicyError

        if self.groups is None:
            raise PolicyError("line 3")
        return {"orders": ReportSource("", "orders", "nowhere")}


Serving = Callable[[Starlette], AbstractContextManager[str]]
"""Serves an application on a free port, and gives its address."""


@contextmanager
def _serve(app: Starlette) -> Iterator[str]:
    opened = listen("127.0.0.1", 0)
    server = make_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield f"http://127.0.0.1:{opened.getsockname()[1]}"
    server.should_exit = True
    thread.join(600)
    opened.close()


@pytest.fixture
def serving() -> Serving:
    return _serve


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site()

    def read(_: OverviewView, __: list[ReportSource], ___: float | None = None) -> Overview:
        found = overview_of(*(made.groups or ()))
        states = tuple(replace(state, is_being_read=made.is_being_read) for state in found.clusters)
        return replace(found, clusters=states)

    monkeypatch.setattr(OverviewView, "read", read)
    with _serve(make_app(made.sources)) as made.url:
        yield made
