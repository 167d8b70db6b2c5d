"""The broker's plug-in, built once a session by the steps of `make plugin`, and a JVM that answers for it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from sandbox.broker_plugin import build_plugin
from tests.plugin.harness import Harness

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
