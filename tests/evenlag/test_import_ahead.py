"""Imports beside other work: what is imported, what a missing module does, and the garbage collector."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest

from evenlag.import_ahead import collector_paused, import_in_thread

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that note in which order they are imported, and whether the collector is on."""
    for name in ("ahead_a", "ahead_b"):
        text = "import gc\nfrom ahead_order import order\norder.append((__name__, gc.isenabled()))\n"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "ahead_order.py").write_text("order = []\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ahead_a", "ahead_b", "ahead_order"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("modules")
def test_modules_are_imported_in_order_without_the_collector() -> None:
    called: list[bool] = []
    import_in_thread("ahead_b", "ahead_a", then=lambda: called.append(gc.isenabled())).join(60)
    assert sys.modules["ahead_order"].order == [("ahead_b", False), ("ahead_a", False)]
    assert called == [False]
    assert gc.isenabled()


@pytest.mark.usefixtures("modules")
def test_a_missing_module_is_left_to_whoever_needs_it(capsys: pytest.CaptureFixture[str]) -> None:
    called: list[str] = []
    import_in_thread("ahead_b", "no_such_module_at_all", "ahead_a", then=lambda: called.append("then")).join(
        60
    )
    assert [name for name, _ in sys.modules["ahead_order"].order] == ["ahead_b"]
    assert called == []
    assert capsys.readouterr().err == ""
    assert gc.isenabled()


def test_the_collector_stays_off_where_it_was_off() -> None:
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ValueError, match="broken"), collector_paused():
        raise ValueError("broken")
    assert gc.isenabled()
