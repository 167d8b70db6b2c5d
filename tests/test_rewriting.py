"""Test modules are rewritten once, before the processes begin, and pytest takes what is written."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.fixtures.rewriting import rewritten, write_rewritten

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pytest_takes_what_is_written_and_explains_a_failure_by_it(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    module, broken = tmp_path / "test_one.py", tmp_path / "test_broken.py"
    module.write_text("def test_it():\n    value = 3\n    assert value == 4\n", encoding="utf-8")
    broken.write_text("def test_it(:\n", encoding="utf-8")
    write_rewritten(pytestconfig, [broken, module])
    written = rewritten(module)
    assert not rewritten(broken).exists()
    before = written.stat()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert "assert 3 == 4" in done.stdout
    # A file that is written again replaces the one before.
    assert (written.stat().st_ino, written.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nothing_is_written_where_python_writes_no_bytecode(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = tmp_path / "test_one.py"
    module.write_text("def test_it():\n    assert 1 == 1\n", encoding="utf-8")
    write_rewritten(pytestconfig, [module])
    assert not rewritten(module).exists()
