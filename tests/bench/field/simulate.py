"""Simulated runs of traces x contenders x seeds, of which only the missing ones are run."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tests.bench.field.contenders import chosen_settings, make_contender
from tests.bench.field.results import FOLDER, ROOT, ResultFile, code_hash, given_command, used_versions
from tests.bench.field.simulator import run
from tests.bench.field.traces import SIZES, make_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from evenlag.lag.arrays import Floats

    Report = Callable[[str, int, int], None]

DRAW: Final = 1_000_000
"""A seed of so many times a number and a seed is that seed's trace with other chance in the contenders."""
# So many seeds of all contenders share one array.
_SEEDS_AT_ONCE: Final = 2
_CODE: Final = ("tests.bench.field.simulator", "tests.bench.field.traces")
# What the measured costs of rebalances and cycles are read from.
_DATA: Final = tuple(
    ROOT / "docs" / "bench" / f"{name}.json" for name in ("airflow_cycle", "burst", "following")
)


class Wanted(NamedTuple):
    """Which runs are wanted.

    first_owners: See `Trace.first_owner`, by contender and seed.
    """

    size: str
    traces: Sequence[str]
    utilisations: Sequence[float]
    contenders: Sequence[str]
    seeds: Sequence[int]
    first_owners: Mapping[tuple[str, int], tuple[int, ...]] = MappingProxyType({})


class Block(NamedTuple):
    """Runs that advance together."""

    size: str
    trace: str
    utilisation: float
    seeds: tuple[int, ...]
    contenders: tuple[str, ...]
    first_owners: Mapping[tuple[str, int], tuple[int, ...]]


def run_block(block: Block) -> list[dict[str, Any]]:
    """Run all contenders on all seeds of a block; a row each."""
    size = SIZES[block.size]
    pairs = [(name, seed) for seed in block.seeds for name in block.contenders]
    of_seed = {
        seed: replace(make_trace(block.trace, seed % DRAW, block.utilisation, size), seed=seed)
        for seed in block.seeds
    }
    first = block.first_owners
    traces = [
        replace(of_seed[seed], first_owner=first[name, seed % DRAW])
        if (name, seed % DRAW) in first
        else of_seed[seed]
        for name, seed in pairs
    ]
    outcomes = run(
        traces, [make_contender(name, trace) for (name, _), trace in zip(pairs, traces, strict=True)]
    )
    return [
        {"contender": name, "seed": seed} | outcome.figures()
        for (name, seed), outcome in zip(pairs, outcomes, strict=True)
    ]


def contender_code(contenders: Sequence[str]) -> dict[str, str]:
    """Return a hash of the code, the settings and the measured costs that each contender runs with."""
    trace = make_trace("even", 0, 0.6, SIZES["smoke"])
    data = b"".join(path.read_bytes() for path in _DATA)
    found = {}
    for name in contenders:
        code = code_hash([*_CODE, type(make_contender(name, trace)).__module__])
        settings = json.dumps(chosen_settings().get(name), sort_keys=True)
        found[name] = sha256(f"{code} {settings} ".encode() + data).hexdigest()[:12]
    return found


def simulate(wanted: Wanted, report: Report, *, processes: int = 2, folder: Path = FOLDER) -> int:
    """Run what is missing, write each file as its blocks end, and return the number of new runs."""
    code = contender_code(wanted.contenders)
    files = {
        (trace, utilisation): ResultFile("simulation", wanted.size, trace, utilisation, folder).read()
        for trace in wanted.traces
        for utilisation in wanted.utilisations
    }
    blocks = [block for file in files.values() for block in _missing(file, wanted, code)]
    # The first seeds of all files come first: what is stopped has whole seeds.
    blocks.sort(key=lambda block: block.seeds)
    num_runs = 0
    report("simulating", 0, len(blocks))
    with ProcessPoolExecutor(processes) as pool:
        running = {pool.submit(run_block, block): block for block in blocks}
        for number, future in enumerate(as_completed(running), 1):
            block = running[future]
            file = files[block.trace, block.utilisation]
            file.command = given_command()
            file.versions = used_versions("numpy")
            rows = future.result()
            file.add(rows, code)
            file.write()
            num_runs += len(rows)
            report("simulating", number, len(blocks))
    return num_runs


def _missing(file: ResultFile, wanted: Wanted, code: Mapping[str, str]) -> Iterator[Block]:
    """Yield blocks of the seeds and contenders that a file does not have."""
    for first in range(0, len(wanted.seeds), _SEEDS_AT_ONCE):
        seeds = wanted.seeds[first : first + _SEEDS_AT_ONCE]
        by_seeds: dict[tuple[int, ...], list[str]] = {}
        for name in wanted.contenders:
            by_seeds.setdefault(tuple(file.missing(name, seeds, code[name])), []).append(name)
        for missing, names in by_seeds.items():
            if missing:
                place = file.size, file.trace, file.utilisation
                yield Block(*place, missing, tuple(names), dict(wanted.first_owners))


def course(
    name: str, contenders: Sequence[str], *, seed: int, utilisation: float, size: str
) -> dict[str, Floats]:
    """Return the mean waiting of the records in each minute of one run: [2, minutes], minutes and seconds.

    It is the minute's record-seconds by the records that are sent in it.
    """
    trace = make_trace(name, seed, utilisation, SIZES[size])
    outcomes = run([trace] * len(contenders), [make_contender(each, trace) for each in contenders])
    minutes = trace.duration_s // 60
    sent = trace.counts.sum(axis=1)[: 60 * minutes].reshape(minutes, 60).sum(axis=1)
    found = {}
    for contender, outcome in zip(contenders, outcomes, strict=True):
        lag = outcome.measures.lag
        record_s = ((lag[1:] + lag[:-1]) / 2)[: 60 * minutes].reshape(minutes, 60).sum(axis=1)
        found[contender] = np.array([np.arange(minutes), record_s / np.maximum(sent, 1)])
    return found
