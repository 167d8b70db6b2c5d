"""Two groups for a day: their month is what was asked for, and evenlag leaves nobody worse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.bench.field.days import BASE, STEP_S, make_group, run_days
from tests.bench.field.field_table import OURS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_group_has_its_utilisation_and_a_deploy_each_day() -> None:
    trace = make_group(3, 2)
    sent = trace.counts.sum() / trace.duration_s
    assert trace.duration_s == 2 * 86_400 == STEP_S * len(trace.counts)
    np.testing.assert_allclose(sent, trace.utilisation * sum(pod.speed for pod in trace.pods), rtol=0.01)
    away = [second for second, running in trace.changes if len(running) < len(trace.pods)]
    assert len(away) == 2 * len(trace.pods)
    assert {second // 86_400 for second in away} == {0, 1}


def test_groups_add_up(tmp_path: Path) -> None:
    answer = run_days(2, 1, lambda *_: None, processes=1, results=tmp_path / "days.json")
    assert (answer["groups"], answer["days"], answer["worse"]) == (2, 1, 0)
    assert answer["contenders"][OURS]["record_s"] <= answer["contenders"][BASE]["record_s"]
