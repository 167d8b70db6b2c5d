"""The comparison of objectives, on a trace that has records waiting for longer than the target."""

from __future__ import annotations

import numpy as np

from tests.bench.field.contenders import chosen_settings
from tests.bench.field.objectives import above_target
from tests.bench.field.traces import SIZES, make_trace


def test_no_objective_beats_one_queue_for_all_after_an_outage() -> None:
    traces = [make_trace("backlog", seed, 0.75, SIZES["broker"]) for seed in range(3)]
    least = above_target("bound", traces)
    assert (least > 0).all()
    for load in ("time", "lag"):
        found = above_target("evenlag", traces, **{**chosen_settings()["evenlag"], "load": load})
        assert np.isfinite(found).all()
        assert (found > least).all()
