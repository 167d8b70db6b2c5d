"""The smallest form of the simulation: every contender on a short trace, and nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.bench.field.contenders import NAMES as CONTENDERS
from tests.bench.field.results import read_results
from tests.bench.field.simulate import DRAW, Wanted, contender_code, course, simulate
from tests.bench.field.traces import SIZES, make_trace

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SMALL = Wanted("smoke", ["walks"], [0.75], CONTENDERS, [0])


def report(step: str, done: int, total: int) -> None:
    """Show no progress."""


def test_every_contender_is_simulated_and_none_twice(tmp_path: Path) -> None:
    assert simulate(SMALL, report, processes=1, folder=tmp_path) == len(CONTENDERS)
    [file] = read_results(tmp_path)
    assert set(file.runs) == set(CONTENDERS)
    runs = {name: by_seed[0] for name, by_seed in file.runs.items()}
    assert all(None not in run.values() for run in runs.values())
    # No policy has less work in the system at any moment than one queue served by all.
    assert all(run["record_s"] >= runs["bound"]["record_s"] for run in runs.values())
    assert simulate(SMALL, report, processes=1, folder=tmp_path) == 0
    two = SMALL._replace(seeds=[0, 1], contenders=["uniform", "share"])
    assert simulate(two, report, processes=1, folder=tmp_path) == 2


def test_a_contender_is_known_by_its_code_and_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    before = contender_code(["uniform", "evenlag"])
    settings = {"evenlag": {"load": "lag"}}
    monkeypatch.setattr("tests.bench.field.simulate.chosen_settings", lambda: settings)
    after = contender_code(["uniform", "evenlag"])
    assert after["uniform"] == before["uniform"] != before["evenlag"] != after["evenlag"]


def test_a_course_is_the_mean_waiting_by_minute() -> None:
    found = course("walks", ["uniform", "bound"], seed=0, utilisation=0.75, size="quick")
    minutes, waiting_s = found["uniform"]
    assert minutes.tolist() == [0, 1]
    assert (waiting_s >= found["bound"][1] - 1e-6).all()
    assert np.isfinite(waiting_s).all()


def test_a_run_begins_with_the_owners_that_are_known_of_a_real_one(tmp_path: Path) -> None:
    """All partitions at one of the pods: it cannot keep up, whatever the assignor would have done."""
    wanted = SMALL._replace(contenders=["uniform"], seeds=[0, DRAW])
    simulate(wanted, report, processes=1, folder=tmp_path / "free")
    trace = make_trace("walks", 0, 0.75, SIZES["smoke"])
    owners = {("uniform", 0): (0,) * trace.num_partitions}
    simulate(wanted._replace(first_owners=owners), report, processes=1, folder=tmp_path / "known")
    free, known = (read_results(tmp_path / name)[0].runs["uniform"] for name in ("free", "known"))
    assert all(known[seed]["p99_s"] > 2 * free[seed]["p99_s"] for seed in (0, DRAW))
