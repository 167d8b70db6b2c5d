"""A small lake of two slots, and a way to call the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from evenlag.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Evenlag = Callable[..., Result]


@pytest.fixture(scope="session")
def lake(command_lake: Path) -> Path:
    """Return the command's lake, which nobody changes."""
    return command_lake


@pytest.fixture
def evenlag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evenlag:
    """Call the command in an empty folder, without settings from outside."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("EVENLAG_")]:
        monkeypatch.delenv(name)
    runner = CliRunner()

    def call(*arguments: object, **environment: str) -> Result:
        return runner.invoke(app, [str(argument) for argument in arguments], env=environment)

    return call
