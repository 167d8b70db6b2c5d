"""Fixtures shared by all tests, a plugin module for each real part."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures_broker",
    "tests.fixtures_browser",
    "tests.fixtures_plugin",
    "tests.fixtures_spark",
]
