"""The session's real broker: one for all tests that ask for it, started at the first."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from sandbox.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Return a running broker with a plain and a SASL_SSL listener; leave it running.

    Tests share it, so they name their topics and groups by `unique`, and a test that stops a broker
    starts one of its own.
    """
    running = Broker.start(tmp_path_factory.mktemp("broker") / "node", sasl_ssl=True)
    yield running
    # Nobody reads its folder again, and to put it in order takes seconds.
    running.kill()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Return a function that makes a name nobody else in the session uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:8]}"
