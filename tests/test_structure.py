"""The code's structure stays within its limits; `tests.structure` prints the figures."""

from __future__ import annotations

import re
from pathlib import Path

from tests.structure import find_cycles, measure

TESTS = Path(__file__).parent


def test_no_figure_is_over_its_limit() -> None:
    figures = measure()
    assert all(figure.number > 0 for figure in figures if figure.limit)
    assert [figure for figure in figures if figure.number > figure.limit] == []


def test_cycles_are_found() -> None:
    assert find_cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == (("a", "b", "a"),)


def test_no_test_replaces_the_clock_of_the_whole_process() -> None:
    # Consumers of session fixtures poll in threads of it: a test replaces `time` in one module.
    global_clock = re.compile(r"""setattr\(\s*(time\s*,|["']time\.|["'][\w.]+\.time\.)""")
    assert global_clock.search('monkeypatch.setattr("evenlag.lake.conflicts.time.sleep", pause)')
    files = [path for path in TESTS.rglob("*.py") if path != Path(__file__)]
    assert [path for path in files if global_clock.search(path.read_text(encoding="utf-8"))] == []
