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


def test_groups_that_have_run_do_not_run_again(tmp_path: Path) -> None:
    seen: list[int] = []
    first = run_days(1, 1, lambda *_: None, processes=1, folder=tmp_path)
    kept = dict(first.runs[OURS][0])
    both = run_days(2, 1, lambda _, __, total: seen.append(total), processes=1, folder=tmp_path)
    assert seen == [1, 1]
    assert (set(both.runs), set(both.runs[OURS]), both.runs[OURS][0]) == ({BASE, OURS}, {0, 1}, kept)
    assert all(both.runs[OURS][group]["record_s"] <= both.runs[BASE][group]["record_s"] for group in (0, 1))
    assert both.read().runs == both.runs
