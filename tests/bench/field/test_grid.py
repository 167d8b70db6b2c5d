"""The grid's rule: the best setting of all, and of a scaler the best that is not too expensive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.bench.field import grid

if TYPE_CHECKING:
    import pytest


def figures(score: float, hours: float) -> dict[str, Any]:
    return {"settings": {"score": score}, "score": score, "hours": hours}


def test_of_a_scaler_only_cheap_settings_count_if_there_are_some() -> None:
    tried = [figures(1.0, 3.0), figures(2.0, 1.25), figures(2.0, 1.0), figures(3.0, 0.5)]
    assert grid.best_of(tried, is_scaler=False) is tried[0]
    assert grid.best_of(tried, is_scaler=True) is tried[1]
    assert grid.best_of(tried[:1], is_scaler=True) is tried[0]


def test_rounds_are_repeated_until_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a at 1, b is better at 2; with b at 2, a is better at 3: one round would miss it."""
    scores = {(1, 1): 5.0, (1, 2): 4.0, (3, 1): 6.0, (3, 2): 3.0}
    monkeypatch.setattr(grid, "GRID", {"x": {"a": (1, 3), "b": (1, 2)}})
    monkeypatch.setattr(
        grid, "evaluate", lambda _, of, __: {"settings": of, "score": scores[of["a"], of["b"]], "hours": 1}
    )
    chosen, tried = grid.choose("x", {}, (1000,))
    assert chosen == {"a": 3, "b": 2}
    assert len(tried) == len(scores)
