"""Run races: real processes, started together by a barrier, on a lake of any root.

``python -m tests.support.races.run ROOT --races 200 --name s3 --results docs/bench/races.json``. The lake
must not exist yet. For ``s3://`` the environment has the storage's options (``AWS_…``), as for the product.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.races.contests import CONTESTS, WRITERS, begin_now
from tests.support.races.lake_log import read_rows

if TYPE_CHECKING:
    from datetime import datetime
    from multiprocessing.synchronize import Barrier

# Processes of their own, not copies of one that runs deltalake's threads.
_SPAWN: Final = multiprocessing.get_context("spawn")
_LONGEST_RACE_S: Final = 600.0


def run_races(root: str, num_races: int) -> dict[str, Any]:
    """Run races of each kind, and check each of them.

    Returns by kind: ``races``, ``writers``, ``one_winner`` (races in which one won, all know it, and
    nothing is lost or doubled), and ``rows`` of the table, with those of other races.
    root: Root of a lake that does not exist yet.
    """
    start = begin_now()
    barrier, answers = _SPAWN.Barrier(WRITERS + 1), _SPAWN.Queue()
    writers = [
        _SPAWN.Process(target=_race, args=(root, start, num_races, number, barrier, answers))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    try:
        return {kind: _run_kind(root, start, kind, num_races, barrier, answers) for kind in CONTESTS}
    finally:
        barrier.abort()
        for writer in writers:
            writer.join(_LONGEST_RACE_S)
            writer.kill()


def _run_kind(
    root: str, start: datetime, kind: str, num_races: int, barrier: Barrier, answers: Any
) -> dict[str, Any]:
    contest = CONTESTS[kind](root, start)
    contest.prepare(num_races)
    found: dict[int, dict[int, Any]] = {}
    for race in range(num_races):
        barrier.wait(_LONGEST_RACE_S)
        for _ in range(WRITERS):
            number, writer, error, answer = answers.get(timeout=_LONGEST_RACE_S)
            assert error is None, f"{kind} {race}: {error}"
            found.setdefault(number, {})[writer] = answer
    rows = read_rows(root, contest.table)
    faults = []
    for race in range(num_races):
        try:
            contest.check(race, [found[race][writer] for writer in range(WRITERS)], rows)
        except AssertionError as error:
            faults.append(f"{kind} {race}: {found[race]}: {error}")
    assert faults == []
    return {
        "races": num_races,
        "writers": WRITERS,
        "one_winner": num_races - len(faults),
        "rows": len(rows),
    }


def _race(
    root: str,
    start: datetime,
    num_races: int,
    writer: int,
    barrier: Barrier,
    answers: Any,
) -> None:
    """Take part in all races, as the main function of a process."""
    for kind in CONTESTS:
        contest = CONTESTS[kind](root, start)
        for race in range(num_races):
            barrier.wait()
            try:
                answers.put((race, writer, None, contest.act(race, writer)))
            except Exception:  # noqa: BLE001  # the parent reports it, and fails
                answers.put((race, writer, traceback.format_exc(), None))


def main() -> None:
    """Run races on the lake of the command line, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--races", type=int, default=200)
    parser.add_argument("--name", default="file", help="name of the results in the file")
    parser.add_argument("--results", type=Path)
    given = parser.parse_args()
    results = run_races(given.root, given.races)
    if given.results is not None:
        keep_results(given.results, given.name, results)
    print(json.dumps(results, indent=2))  # noqa: T201  # the answer of a program


def keep_results(path: Path, name: str, results: dict[str, Any]) -> None:
    """Write the results of one storage into the file, beside those of others."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    kept[name] = results
    path.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
