"""Fixtures of the recorded lakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.truth.recorded_lakes import RecordedLake, extract

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def recorded_lake(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RecordedLake]:
    """Return a function from a lake's name to the lake, extracted once: nobody writes to it."""
    found: dict[str, RecordedLake] = {}

    def get(name: str) -> RecordedLake:
        if name not in found:
            found[name] = extract(name, tmp_path_factory.mktemp(name))
        return found[name]

    return get
