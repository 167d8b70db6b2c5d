"""``python -m tests.bench.field broker``: traces on a real broker with real consumers, in resumable blocks.

A block is one trace and seed. Its contenders run in a random, seeded order, ``--parallel`` of them at once.
Each finished run is a file under ``docs/bench/field/broker``. A run whose file exists is not repeated, unless
its contender has other settings by now. A block that is killed, or void because a record was sent more than
50 ms late, leaves none.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.field.broker.block import Block
from tests.bench.field.broker.contenders import REAL
from tests.bench.field.broker.machine import versions
from tests.bench.field.broker.programs import Programs
from tests.bench.field.contenders import chosen_settings
from tests.bench.field.traces import FIRST_SEED, NAMES, SIZES, make_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.bench.field.traces import Trace

RESULTS: Final = Path(__file__).resolve().parents[4] / "docs" / "bench" / "field" / "broker"
TRACES: Final = ("walks", "backlog", "churn")
SEEDS: Final = tuple(range(FIRST_SEED, FIRST_SEED + 3))
UTILISATION: Final = 0.75
_DIGITS: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--traces", nargs="+", choices=NAMES, default=list(TRACES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--contenders", nargs="+", choices=list(REAL), default=list(REAL))
    parser.add_argument("--utilisation", type=float, default=UTILISATION)
    parser.add_argument("--parallel", type=int, default=len(REAL), help="contenders that run at once")
    parser.add_argument("--keep", type=Path, help="a folder for journals and output, to look at")


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing; 1 if a block was void or failed."""
    # Children and temporary folders go at SIGTERM, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    status = 0
    with tempfile.TemporaryDirectory() as temporary:
        programs = Programs.build(Path(temporary) / "programs")
        used = {"code": programs.code(), "versions": versions()}
        for seed in arguments.seeds:
            for name in arguments.traces:
                trace = make_trace(name, seed, arguments.utilisation, SIZES["broker"])
                for together in _batches(trace, arguments.contenders, arguments.parallel):
                    folder = Path(tempfile.mkdtemp(dir=temporary))
                    try:
                        found = _measure(trace, together, programs, folder)
                        _write(trace, found, used)
                    except RuntimeError as error:
                        sys.stderr.write(f"{name} {seed} {' '.join(together)}: {error}\n")
                        status = 1
                    finally:
                        _put_away(folder, arguments.keep, f"{name}-{seed}-{together[0]}")
    return status


def quick() -> int:
    """Run all contenders on one small trace, print how long records waited and write nothing."""
    trace = make_trace(TRACES[0], SEEDS[0], UTILISATION, SIZES["quick"])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        programs = Programs.build(folder / "programs")
        block = Block(
            trace, list(REAL), programs, folder / "block", settings=chosen_settings(), may_be_late=True
        )
        try:
            found = block.run()
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    for name, run_measures in found.items():
        p50_s, p99_s, unfinished = (run_measures[each] for each in ("p50_s", "p99_s", "unfinished"))
        sys.stdout.write(f"{name}: p50 {p50_s:.3g} s, p99 {p99_s:.3g} s, {unfinished:.0f} unfinished\n")
    return 0


def _batches(trace: Trace, contenders: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield contenders without a result that run at once, in a random order that the seed gives."""
    missing = [name for name in contenders if not has_result(trace, name)]
    random.Random(f"{trace.name}-{trace.seed}").shuffle(missing)  # noqa: S311  # repeatable
    for first in range(0, len(missing), size):
        yield missing[first : first + size]


def _measure(
    trace: Trace, together: Sequence[str], programs: Programs, folder: Path
) -> Mapping[str, Mapping[str, Any]]:
    sys.stderr.write(f"{trace.name} {trace.seed}: {' '.join(together)}\n")
    return Block(trace, together, programs, folder, settings=chosen_settings()).run()


def result_file(trace: Trace, contender: str) -> Path:
    """Return the file of a run's result."""
    utilisation = round(100 * trace.utilisation)
    return RESULTS / f"{trace.name}-{utilisation}-{trace.seed}-{contender}.json"


def has_result(trace: Trace, contender: str) -> bool:
    """Return whether a run with the contender's settings of now has a result."""
    path = result_file(trace, contender)
    if not path.exists():
        return False
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return bool(result["settings"] == chosen_settings().get(contender, {}))


def _write(trace: Trace, found: Mapping[str, Mapping[str, Any]], used: Mapping[str, Any]) -> None:
    """Write the results of a block: each file whole."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    about = {
        "kind": "broker", "size": "broker", "trace": trace.name, "seed": trace.seed,
        "utilisation": trace.utilisation,
    }  # fmt: skip
    for name, run_measures in found.items():
        command = f"python -m tests.bench.field broker --traces {trace.name} --seeds {trace.seed}"
        result = about | {each: _short(value) for each, value in run_measures.items()}
        result |= {"settings": chosen_settings().get(name, {}), "command": command, **used}
        path = result_file(trace, name)
        whole = path.with_suffix(".tmp")
        whole.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        whole.replace(path)


def _short(value: Any) -> Any:
    """Return a number with a few digits."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _put_away(folder: Path, keep: Path | None, name: str) -> None:
    """Move the journals and output of a block where they are kept, or delete them."""
    shutil.rmtree(folder / "node", ignore_errors=True)
    if keep is None:
        shutil.rmtree(folder)
        return
    keep.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(keep / name, ignore_errors=True)
    shutil.move(folder, keep / name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command by itself."""
    parser = argparse.ArgumentParser(prog="tests.bench.field.broker", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))
