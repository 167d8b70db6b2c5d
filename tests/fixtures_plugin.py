"""The broker's plug-in, built once a session by the steps of `make plugin`, and a JVM that answers for it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from sandbox.broker_plugin import build_plugin
from tests.plugin.harness import Harness
from tests.plugin.node import Node, start_node

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def plugin_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the plug-in's jar."""
    if shutil.which("javac") is None:
        pytest.skip("there is no javac on the path")
    return build_plugin(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="session")
def harness(plugin_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Return the plug-in, ready for questions."""
    with Harness(plugin_jar, tmp_path_factory.mktemp("harness")) as running:
        yield running


@pytest.fixture(scope="session")
def node(plugin_jar: Path, harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Return a broker with the plug-in; leave it running, with the key that it had.

    Its hint topic is one for all tests, which name their groups and topics by `unique`.
    """
    started = start_node(tmp_path_factory.mktemp("plugin-broker"), plugin_jar, harness)
    yield started
    # As the session's other broker: nobody reads its folder again.
    started.broker.kill()
