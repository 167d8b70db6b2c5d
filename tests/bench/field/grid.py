"""Chooses the free settings of contenders: ``python -m tests.bench.field.grid [--only NAME ...]``.

Each setting in turn takes the value of its grid that is best while the others are as chosen before, from the
first values on, until a round changes nothing. A value that is better by less than `NO_DIFFERENCE` is not
taken. Best is the least mean of ``log10(1 + p99 in seconds)`` over the traces at a utilisation of 75 % and
the tuning seeds, as in the size ``simulation`` but for 40 minutes after the warm-up. Of a scaler, only values
count with which consumers run at most `MAX_HOURS` times as long as those of the trace, if there are some. It
writes ``docs/bench/field/grid.json``: the settings in effect, each with its source, and all that was tried.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.bench.field.contenders import SETTINGS, make_contender
from tests.bench.field.simulator import run
from tests.bench.field.traces import NAMES, SIZES, make_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.field.traces import Trace

SEEDS: Final = tuple(range(1000, 1010))
TUNING_TRACES: Final = tuple(name for name in NAMES if name != "drawn")
UTILISATION: Final = 0.75
SIZE: Final = SIZES["simulation"]._replace(name="tuning", duration_s=2_580)
MAX_HOURS: Final = 1.3
NO_DIFFERENCE: Final = 0.001
CHOSEN: Final = "chosen from the grid"
# The first value is the starting point: the default where there is one.
GRID: Final[Mapping[str, Mapping[str, Sequence[Any]]]] = {
    "evenlag": {
        "load": ("lag", "rate", "mix", "time"),
        "count_slack": (None, 0, 2, 8),
        "cooldown_s": (None, 600, 60),
        "horizon_s": (1_800, 600, 300),
        "min_gain": (0.05, 0.1, 0.2),
        "max_moves": (1_000, 12, 6),
    },
    "evenlag-watch": {"every_s": (60, 30, 15)},
    "keda-hpa": {
        "lag_threshold": (10, 100, 1_000, 3_000, 10_000),
        "min_share": (0.0, 0.5, 1.0),
        "even_distribution": (False, True),
    },
    "landau-mwf": {"fill": (0.75, 0.6, 0.85, 0.95)},
}
_LIKE_EVENLAG: Final = ("evenlag-watch", "evenlag-kip848", "evenlag-loads", "evenlag-capacities")
_LIMITS: Final = ("max_moves", "count_slack")
_SCALERS: Final = frozenset({"keda-hpa", "landau-mwf"})


@cache
def tuning_traces(name: str, seeds: tuple[int, ...]) -> list[Trace]:
    """Return the traces of a name."""
    return [make_trace(name, seed, UTILISATION, SIZE) for seed in seeds]


def evaluate(contender: str, settings: Mapping[str, Any], seeds: tuple[int, ...]) -> dict[str, Any]:
    """Return the score of settings, how long consumers ran beside the trace's, and the p99 by trace."""
    logs, hours, by_trace = [], [], {}
    for name in TUNING_TRACES:
        traces = tuning_traces(name, seeds)
        outcomes = run(traces, [make_contender(contender, trace, **settings) for trace in traces])
        figures = [outcome.figures() for outcome in outcomes]
        p99_s = np.array([each["p99_s"] for each in figures])
        logs.append(np.log10(1 + p99_s).mean())
        fixed = [len(trace.changes[0][1]) * (trace.duration_s - trace.warm_up_s) / 3600 for trace in traces]
        hours.append(np.mean([each["consumer_hours"] for each in figures]) / np.mean(fixed))
        by_trace[name] = round(float(p99_s.mean()), 2)
    return {
        "settings": dict(settings),
        "score": round(float(np.mean(logs)), 4),
        "hours": round(float(np.mean(hours)), 3),
        "p99_s": by_trace,
    }


def best_of(tried: Sequence[Mapping[str, Any]], *, is_scaler: bool) -> Mapping[str, Any]:
    """Return the best one by the rule of this module; of equal ones the first."""
    cheap = [each for each in tried if each["hours"] <= MAX_HOURS]
    if is_scaler and not cheap:
        return min(tried, key=lambda each: each["hours"])
    return min(cheap if is_scaler else tried, key=lambda each: each["score"])


def _known_or_new(
    contender: str, settings: dict[str, Any], seeds: tuple[int, ...], tried: list[dict[str, Any]]
) -> dict[str, Any]:
    known = next((each for each in tried if each["settings"] == settings), None)
    if known is None:
        tried.append(known := evaluate(contender, settings, seeds))
        sys.stderr.write(f"{contender} {json.dumps(known)}\n")
    return known


def choose(
    contender: str, fixed: Mapping[str, Any], seeds: tuple[int, ...]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the chosen settings of a contender, and all that was tried; `fixed` ones are of another."""
    grid = GRID[contender]
    chosen = {**fixed, **{name: values[0] for name, values in grid.items()}}
    tried: list[dict[str, Any]] = []
    before: dict[str, Any] | None = None
    while chosen != before:
        before = chosen
        for name, values in grid.items():
            found = [_known_or_new(contender, {**chosen, name: value}, seeds, tried) for value in values]
            best = best_of(found, is_scaler=contender in _SCALERS)
            now = _known_or_new(contender, chosen, seeds, tried)
            if contender in _SCALERS or best["score"] < now["score"] - NO_DIFFERENCE:
                chosen = dict(best["settings"])
    return chosen, tried


def main(argv: list[str]) -> int:
    """Choose, and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.field.grid", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=GRID, default=list(GRID))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--results", type=Path, default=SETTINGS)
    arguments = parser.parse_args(argv)
    path = arguments.results
    written = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    settings, tried = written.get("settings", {}), written.get("tried", {})
    for contender in arguments.only:
        policy = {name: entry["value"] for name, entry in settings.get("evenlag", {}).items()}
        fixed = policy if contender == "evenlag-watch" else {}
        chosen, tried[contender] = choose(contender, fixed, tuple(arguments.seeds))
        settings[contender] = {
            name: {"value": value, "source": "as evenlag" if name in fixed else CHOSEN}
            for name, value in chosen.items()
        }
        for other in _LIKE_EVENLAG if contender == "evenlag" else ():
            entries = {name: {"value": value, "source": "as evenlag"} for name, value in chosen.items()}
            settings[other] = {**settings.get(other, {}), **entries}
        settings["oracle"] = {
            name: {"value": settings["evenlag"][name]["value"], "source": "as evenlag"} for name in _LIMITS
        }
        result = {
            "command": "python -m tests.bench.field.grid",
            "seeds": arguments.seeds,
            "utilisation": UTILISATION,
            "max_hours": MAX_HOURS,
            "grid": GRID,
            "settings": settings,
            "tried": tried,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
