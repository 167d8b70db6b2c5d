"""The code's structure stays within its limits; `tests.structure` prints the figures."""

from __future__ import annotations

from tests.structure import MAX_ARROWS, MAX_ROOMS, Structure, find_cycles, measure


def test_no_figure_is_over_its_limit() -> None:
    assert measure().excesses() == []


def test_each_limit_is_held() -> None:
    over = Structure(
        rooms=frozenset(map(str, range(MAX_ROOMS + 1))),
        arrows=frozenset(("a", str(number)) for number in range(MAX_ARROWS + 1)),
        cycles=find_cycles({"a": {"b"}, "b": {"a"}, "c": {"a"}}),
        modules={},
        lines={},
    )
    assert over.excesses() == [
        "spark_jobs: 16 rooms",
        "spark_jobs: 36 arrows",
        "import cycle: a → b → a",
    ]
