"""The code's structure stays within its limits; `tests.structure` prints the figures."""

from __future__ import annotations

from tests.structure import find_cycles, measure


def test_no_figure_is_over_its_limit() -> None:
    figures = measure()
    assert all(figure.number > 0 for figure in figures if figure.limit)
    assert [figure for figure in figures if figure.number > figure.limit] == []


def test_cycles_are_found() -> None:
    assert find_cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == (("a", "b", "a"),)
