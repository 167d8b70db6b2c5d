"""The lake of these tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def lake(command_lake: Path) -> Path:
    """Return the command's lake, which nobody changes."""
    return command_lake
