"""A cycle through Airflow: by a running Spark Connect server, and by ``spark-submit`` of an earlier commit.

``python -m tests.bench.airflow_cycle [--runs N] [--before COMMIT]`` starts a complete Airflow for each way in
turn and writes ``docs/bench/airflow_cycle.json``. Each run has a backlog that needs a plan. The first run of
a way is a warm-up. ``imports`` is a DAG of the same shape whose tasks only import: what Airflow itself takes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.support.machine import this_machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = _ROOT / "docs" / "bench" / "airflow_cycle.json"
_PROGRAM: Final = Path(__file__).with_name("support") / "airflow_runs.py"
# The commit before cycles used Spark Connect.
_BEFORE: Final = "baa8abb"


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """Check a commit out beside this one; packages and jars are those of this checkout."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "before"
        git = ["git", "-C", str(_ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(path), commit], check=True)
        try:
            (path / ".cache").symlink_to(_ROOT / ".cache")
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def _measure(way: str, num_runs: int, root: Path = _ROOT) -> dict[str, Any]:
    """Measure one way of running; the code is that of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(root)}
    command = [sys.executable, str(_PROGRAM), way, str(num_runs + 1)]
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{way} ended with {done.returncode}: {done.stdout[-2000:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    warm = rows[1:]
    sys.stdout.write(f"{way}: {json.dumps(rows)}\n")
    sys.stdout.flush()
    return {"runs": rows, "median_s": statistics.median(row["seconds"] for row in warm)}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.airflow_cycle", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--before", default=_BEFORE, metavar="COMMIT")
    arguments = parser.parse_args(argv)
    results: dict[str, Any] = {}
    for way in ("connect", "imports"):
        results[way] = _measure(way, arguments.runs)
    with _checkout(arguments.before) as before:
        results["submit_before"] = _measure("submit", arguments.runs, before)
    results["connect_by_submit_before"] = round(
        results["connect"]["median_s"] / results["submit_before"]["median_s"], 3
    )
    results["machine"] = this_machine("apache-airflow", "pyspark", "delta-spark", "deltalake")
    RESULTS.write_text(f"{json.dumps(results, indent=1, sort_keys=True)}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
