"""Record-time above a target of 30 s that plans by time leave, beside plans by lag.

``python -m tests.bench.field.objectives [--seeds N]`` simulates ``evenlag`` by both objectives on the traces
that plans by lag serve badly, on the seeds of the committed results, and writes
``docs/bench/field/objectives.json``: the median of the seeds' ratios with an interval of 95 %, and that of
the reference ``bound``, one queue served by all, which no assignment can beat.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Final

import numpy as np

from tests.bench.field.contenders import chosen_settings, make_contender
from tests.bench.field.results import FOLDER
from tests.bench.field.simulator import run
from tests.bench.field.statistics import PairedBootstrap
from tests.bench.field.traces import SIZES, make_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lag.arrays import Floats
    from tests.bench.field.traces import Trace

TRACES: Final = ("seasons", "unequal", "backlog")
FIRST_SEED: Final = 705930
_UTILISATION: Final = 0.75


def above_target(contender: str, traces: Sequence[Trace], **settings: object) -> Floats:
    """Return the record-seconds that records wait beyond 30 s, by trace."""
    outcomes = run(traces, [make_contender(contender, trace, **settings) for trace in traces])
    figures = [outcome.figures() for outcome in outcomes]
    return np.array([each["above_30s"] * each["record_s"] for each in figures])


def compare(name: str, seeds: Sequence[int]) -> dict[str, float | list[float]]:
    """Compare the objectives on one trace."""
    traces = [make_trace(name, seed, _UTILISATION, SIZES["simulation"]) for seed in seeds]
    settings = chosen_settings()["evenlag"]
    by_time = above_target("evenlag", traces, **settings)
    by_lag = above_target("evenlag", traces, **{**settings, "load": "lag"})
    least = above_target("bound", traces)
    bootstrap = PairedBootstrap.of(len(seeds))
    ratio, possible = (bootstrap.ratio(each, by_lag) for each in (by_time, least))
    return {
        "record_s_by_time": round(float(np.median(by_time))),
        "record_s_by_lag": round(float(np.median(by_lag))),
        "ratio": round(ratio.value, 5),
        "interval": [round(ratio.low, 5), round(ratio.high, 5)],
        "ratio_of_bound": round(possible.value, 5),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate, and write the result."""
    parser = argparse.ArgumentParser(prog="tests.bench.field.objectives", description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    seeds = range(FIRST_SEED, FIRST_SEED + parser.parse_args(argv).seeds)
    found = {name: compare(name, seeds) for name in TRACES}
    text = json.dumps({"seeds": len(seeds), "utilisation": _UTILISATION, **found}, indent=1) + "\n"
    sys.stdout.write(text)
    (FOLDER / "objectives.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
