"""A month of many groups: days, weekends, bursts and deploys, in steps of a minute.

``python -m tests.bench.field days`` runs each group under cooperative-sticky and under evenlag, with a cycle
each five minutes. A group is a run of the trace ``month``, and its number the seed.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tests.bench.field.contenders import chosen_settings, make_contender
from tests.bench.field.field_table import OURS
from tests.bench.field.keys import numbered_keys
from tests.bench.field.results import FOLDER, ResultFile, code_hash, given_command, used_versions
from tests.bench.field.simulator import run
from tests.bench.field.traces import ZIPF, Pod, Trace

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.field.simulate import Report

BASE: Final = "cooperative-sticky"
STEP_S: Final = 60
TRACE: Final = "month"
MEAN_UTILISATION: Final = 0.6
"""What the results are kept as: the utilisation of a group is between 0.4 and 0.8."""
_DAY_S: Final = 86_400
_CYCLE_S: Final = 300
_WARM_UP_S: Final = 3_600
_SPEED: Final = 100.0
# At 10 o'clock each pod restarts, one after the other.
_DEPLOY_S: Final = 36_000
_RESTART_S: Final = 60


def make_group(number: int, num_days: int) -> Trace:
    """Return a group: its rates swing by the day and the week, with a burst on one key each day."""
    chance = np.random.default_rng([39, 30, number])
    num_partitions, utilisation = int(chance.choice((12, 24, 48))), float(chance.uniform(0.4, 0.8))
    num_pods, num_keys = num_partitions // 6, 10 * num_partitions
    steps = num_days * _DAY_S // STEP_S
    day = np.arange(steps)[:, None] * STEP_S / _DAY_S
    weights = np.arange(1, num_keys + 1) ** -ZIPF
    weights = chance.permutation(weights / weights.sum())
    rates = weights * (1 + chance.uniform(0.2, 0.5) * np.sin(2 * np.pi * (day - chance.random(num_keys) / 4)))
    rates *= np.where(day % 7 >= 5, 0.75, 1.0)  # weekends
    for _ in range(num_days):
        first, length = chance.integers(steps), chance.integers(10, 60)
        rates[first : first + length, chance.integers(num_keys)] += chance.uniform(0.03, 0.08)
    rates *= utilisation * num_pods * _SPEED / rates.sum(axis=1).mean()
    return Trace(
        name=TRACE, seed=number, utilisation=utilisation, duration_s=steps * STEP_S, warm_up_s=_WARM_UP_S,
        keys=numbered_keys(num_keys), counts=chance.poisson(rates * STEP_S), cost=np.ones(num_keys),
        pods=tuple(_pod(number) for number in range(num_pods)),
        changes=_deploys(num_pods, num_days), outages=(), num_partitions=num_partitions,
    )  # fmt: skip


def _pod(number: int) -> Pod:
    return Pod(f"pod-{number}", f"instance-{number}" if number % 2 else None, _SPEED)


def _deploys(num_pods: int, num_days: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    everybody = tuple(range(num_pods))
    changes = {0: everybody}
    for day in range(num_days):
        for pod in everybody:
            at_s = day * _DAY_S + _DEPLOY_S + 2 * pod * _RESTART_S
            changes[at_s] = tuple(other for other in everybody if other != pod)
            changes[at_s + _RESTART_S] = everybody
    return tuple(sorted(changes.items()))


def run_group(number: int, num_days: int) -> list[dict[str, Any]]:
    """Return the figures of a group, a row for each contender."""
    trace = make_group(number, num_days)
    settings = {**chosen_settings()[OURS], "every_s": _CYCLE_S}
    contenders = {BASE: make_contender(BASE, trace), OURS: make_contender(OURS, trace, **settings)}
    outcomes = run([trace] * len(contenders), list(contenders.values()), step_s=STEP_S)
    return [
        {"contender": name, "seed": number} | outcome.figures()
        for name, outcome in zip(contenders, outcomes, strict=True)
    ]


def run_days(
    num_groups: int, num_days: int, report: Report, *, processes: int = 2, folder: Path = FOLDER
) -> ResultFile:
    """Simulate the groups that are missing, and write the file as each of them ends."""
    code = dict.fromkeys((BASE, OURS), code_hash([__name__]))
    file = ResultFile("simulation", f"{num_days}-days", TRACE, MEAN_UTILISATION, folder).read()
    file.command, file.versions = given_command(), used_versions("numpy")
    groups = file.missing(OURS, range(num_groups), code[OURS])
    report("simulating groups", 0, len(groups))
    with ProcessPoolExecutor(processes) as pool:
        running = [pool.submit(partial(run_group, num_days=num_days), number) for number in groups]
        for done, future in enumerate(as_completed(running), 1):
            file.add(future.result(), code)
            file.write()
            report("simulating groups", done, len(groups))
    return file
