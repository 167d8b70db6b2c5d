"""Compare evenlag with what else a user would pick: ``python -m tests.bench.field COMMAND``.

``simulate`` and ``broker`` run what has no result yet, or ran with other code; ``tune`` chooses free settings
on the tuning seeds; ``validate`` simulates what has run on the broker, from
the same first owners, with other chance in each of many draws; ``days`` simulates a month of many
groups; ``draw`` makes the pictures of ``docs/evidence.md``. Each writes the page's tables. ``--quick`` is a
smoke test, not evidence: every contender on one small trace, simulated and on a broker; it writes nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.cli.console import shown_progress
from tests.bench.field.contenders import NAMES as CONTENDERS
from tests.bench.field.days import run_days
from tests.bench.field.page import BROKER, DRAWS, JUDGED, PAGE, SIMULATED_AS, render, tables_of
from tests.bench.field.pictures import COURSES, draw_all
from tests.bench.field.results import FOLDER, ResultFile, first_owners, read_results
from tests.bench.field.simulate import DRAW, Wanted, course, simulate
from tests.bench.field.traces import FIRST_SEED, UTILISATIONS
from tests.bench.field.traces import NAMES as TRACES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.bench.field.page import Tables

_SEEDS: Final = 30


def run_simulate(argv: Sequence[str]) -> int:
    """Simulate what is missing."""
    parser = argparse.ArgumentParser(prog="tests.bench.field simulate")
    parser.add_argument("--traces", nargs="+", choices=TRACES, default=TRACES)
    parser.add_argument("--utilisations", nargs="+", type=float, default=UTILISATIONS)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS)
    parser.add_argument("--seeds", type=int, default=_SEEDS, help="how many, from --first-seed on")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--size", default="simulation")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(argv)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    wanted = Wanted(given.size, given.traces, given.utilisations, given.contenders, list(seeds))
    with shown_progress() as report:
        simulate(wanted, report, processes=given.processes)
    write_tables()
    return 0


def run_broker(argv: Sequence[str]) -> int:
    """Run what is missing on a real broker."""
    from tests.bench.field.broker import command

    status = command.main(argv)
    write_tables()
    return status


def run_tune(argv: Sequence[str]) -> int:
    """Choose free settings."""
    from tests.bench.field import grid

    return grid.main(list(argv))


def run_validate(argv: Sequence[str]) -> int:
    """Simulate each trace, seed and contender that has run on the broker, at its size, in many draws."""
    argparse.ArgumentParser(prog="tests.bench.field validate").parse_args(argv)
    with shown_progress() as report:
        for (*kind, trace, utilisation), table in tables_of(read_results()).items():
            if tuple(kind) == BROKER:
                contenders = [SIMULATED_AS.get(name, name) for name in table.file.runs]
                seeds = [seed + DRAW * draw for draw in range(DRAWS) for seed in table.seeds]
                first = {
                    (SIMULATED_AS.get(name, name), seed): owner
                    for (name, seed), owner in first_owners(trace, utilisation).items()
                }
                wanted = Wanted("broker", [trace], [utilisation], contenders, seeds, first)
                # What it has may begin with other owners.
                ResultFile("simulation", "broker", trace, utilisation).path.unlink(missing_ok=True)
                simulate(wanted, report)
    write_tables()
    return 0


def write_tables() -> Tables:
    """Write the tables of the page, and return the results."""
    results = read_results()
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return tables_of(results)


def run_month(argv: Sequence[str]) -> int:
    """Simulate a month of many groups."""
    parser = argparse.ArgumentParser(prog="tests.bench.field days")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(argv)
    with shown_progress() as report:
        run_days(given.groups, given.days, report, processes=given.processes)
    return 0


def run_draw(argv: Sequence[str]) -> int:
    """Write the tables and pictures from the results."""
    argparse.ArgumentParser(prog="tests.bench.field draw").parse_args(argv)
    tables = write_tables()
    shown = course("walks", COURSES, seed=FIRST_SEED, utilisation=JUDGED, size="simulation")
    draw_all(tables, shown, FOLDER)
    return 0


def run_quick() -> int:
    """Run every contender on one small trace, simulated and on a broker; return 1 if a run failed."""
    from tests.bench.field.broker import command

    with tempfile.TemporaryDirectory() as folder, shown_progress() as report:
        simulate(Wanted("quick", ["walks"], [JUDGED], CONTENDERS, [0]), report, folder=Path(folder))
    return command.quick()


COMMANDS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = {
    "simulate": run_simulate,
    "broker": run_broker,
    "tune": run_tune,
    "validate": run_validate,
    "days": run_month,
    "draw": run_draw,
}


def main(argv: Sequence[str]) -> int:
    """Run a command; its own options follow it."""
    parser = argparse.ArgumentParser(prog="tests.bench.field", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="every contender on one small trace")
    parser.add_argument("command", nargs="?", choices=COMMANDS)
    given = parser.parse_args(argv[:1])
    if given.quick:
        return run_quick()
    if given.command is None:
        parser.error("name a command, or --quick")
    return COMMANDS[given.command](argv[1:])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
