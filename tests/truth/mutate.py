"""Check that the truth suite detects faults: ``python -m tests.truth.mutate [--only TEXT] [--jobs N]``.

Copies the tree to a temporary folder, puts one fault of :mod:`tests.truth.mutations` at a time into the copy
and runs the suite there. Exit code 0 when at least 28 of 30 faults were detected, 1 when fewer were, 2 when a
fault does not fit the code any more or the suite fails without any.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from tests.truth.mutations import MUTATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.truth.mutation import Mutation

ROOT: Final = Path(__file__).resolve().parents[2]
WANTED: Final = Fraction(28, 30)
MIN_MUTATIONS: Final = 30
_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", ".cache", ".airflow", ".demo", "dist", "__pycache__", ".*_cache", ".hypothesis"
)
# No answers: whether the mutations fit the code would detect each, and the demo's end asks all once more.
_OTHERS: Final = ("mutations", "recorded_lakes", "demo_answers", "in_process")
_SUITE: Final = (
    "tests/truth",
    *(f"--ignore=tests/truth/test_{name}.py" for name in _OTHERS),
    *("-x", "-q", "-m", "not jvm and not soak", "-p", "no:cacheprovider"),
)
_TIMEOUT_S: Final = 900
# Where a fault most likely shows: asked first, and the whole suite only when that passes.
_FIRST: Final = {
    "evenlag/audit/owners.py": "audit_owner or audit_diff",
    "evenlag/audit/differences.py": "audit_diff",
    "evenlag/audit/rebalances.py": "audit_churn",
    "evenlag/audit/published_hints.py": "audit_adherence",
    "evenlag/audit/anomalies.py": "audit_anomalies",
    "evenlag/audit/interval_merge.py": "audit_owner",
    "evenlag/queries/comparisons.py": "compare",
    "evenlag/cli/compare.py": "compare",
    "evenlag/cli/export.py": "audit_adherence or compare",
    "evenlag/queries/plan_rows.py": "plans",
    "evenlag/cli/plans.py": "plans",
    "evenlag/report/": "report",
    "evenlag/cli/lake.py": "lake_status",
    "evenlag/overview/metrics.py": "metrics",
    "evenlag/publishing/approval_page.py": "page_of_a_plan",
}
_ELSE_FIRST: Final = "answers and (lag or plans)"


def misfits(root: Path, mutations: Sequence[Mutation]) -> list[str]:
    """Name the mutations whose old text does not occur exactly once."""
    found = []
    for mutation in mutations:
        count = (root / mutation.file).read_text(encoding="utf-8").count(mutation.old)
        if count != 1:
            found.append(f"{mutation.file}: {mutation.name!r}: its old text occurs {count} times")
    return found


@contextmanager
def applied(root: Path, mutation: Mutation) -> Iterator[None]:
    """Put a fault into a tree, and take it out again."""
    path = root / mutation.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(whole, encoding="utf-8")


def first_asked(mutation: Mutation) -> str:
    """The part of the suite that is asked first."""
    found = [part for file, part in _FIRST.items() if mutation.file.startswith(file)]
    return found[0] if found else _ELSE_FIRST


def run_suite(root: Path, part: str = "") -> tuple[bool, str]:
    """Run the suite, or a part of it, in a tree; whether it passed, and the line that tells most."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        (sys.executable, "-m", "pytest", *_SUITE, "-k", part),
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("E  ", "FAILED", "ERROR"))]
    return done.returncode == 0, lines[0].strip()[:150] if lines else done.stdout[-150:].strip()


def copy_tree(target: Path) -> Path:
    """Copy what the suite needs."""
    shutil.copytree(ROOT, target, ignore=_LEFT_OUT, symlinks=True)
    return target


def check(mutations: Sequence[Mutation], folder: Path, num_jobs: int) -> int:
    """Try mutations, and return how many were detected."""
    trees: SimpleQueue[Path] = SimpleQueue()
    for number in range(num_jobs):
        trees.put(copy_tree(folder / f"tree-{number}"))
    first = trees.get()
    passed, done = run_suite(first)
    trees.put(first)
    if not passed:
        raise RuntimeError(f"the suite fails without any mutation: {done}")

    def attempt(mutation: Mutation) -> bool:
        tree = trees.get()
        try:
            began = time.monotonic()
            with applied(tree, mutation):
                passed, done = run_suite(tree, first_asked(mutation))
                if passed:
                    passed, done = run_suite(tree)
        finally:
            trees.put(tree)
        verdict = "NOT DETECTED" if passed else "detected    "
        took_s = time.monotonic() - began
        print(f"{verdict} {mutation.kind:<10} {mutation.name} ({took_s:.0f} s): {done}", flush=True)  # noqa: T201  # a script
        return not passed

    with ThreadPoolExecutor(num_jobs) as pool:
        return sum(pool.map(attempt, mutations))


def main(argv: list[str]) -> int:
    """Try the mutations."""
    parser = argparse.ArgumentParser(prog="tests.truth.mutate", description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose name or file has this text")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once, each in a copy of its own")
    arguments = parser.parse_args(argv)
    wrong = misfits(ROOT, MUTATIONS)
    if wrong or len(MUTATIONS) < MIN_MUTATIONS:
        sys.stderr.write("\n".join(wrong or [f"there are only {len(MUTATIONS)} mutations"]) + "\n")
        return 2
    chosen = [each for each in MUTATIONS if arguments.only in f"{each.name} {each.file}"]
    with tempfile.TemporaryDirectory(prefix="evenlag-mutations-") as folder:
        try:
            detected = check(chosen, Path(folder), arguments.jobs)
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")
            return 2
    sys.stdout.write(f"{detected} of {len(chosen)} mutations detected\n")
    return 0 if chosen and Fraction(detected, len(chosen)) >= WANTED else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
