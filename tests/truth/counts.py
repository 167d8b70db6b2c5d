"""How many values are compared by command: ``python -m tests.truth.counts`` asks about all lakes."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.truth.oracle.checks import Checks

# By lake and command, of the tests that ran in this process.
COUNTS: dict[str, Counter[str]] = {}


def add_counts(lake: str, checks: Checks) -> None:
    """Add what was compared."""
    COUNTS.setdefault(lake, Counter()).update(checks.num_compared)


def table(counts: dict[str, Counter[str]]) -> str:
    """Lay counts out as a table of Markdown: a row a command, a column a lake."""
    lakes = sorted(counts)
    commands = sorted({command for of_lake in counts.values() for command in of_lake})
    lines = [f"| command | {' | '.join(lakes)} | all |", f"| --- |{' ---: |' * (len(lakes) + 1)}"]
    for command in commands:
        numbers = [counts[lake][command] for lake in lakes]
        lines.append(f"| `{command}` | {' | '.join(f'{n:,}' for n in numbers)} | {sum(numbers):,} |")
    totals = [counts[lake].total() for lake in lakes]
    lines.append(f"| all | {' | '.join(f'{n:,}' for n in totals)} | {sum(totals):,} |")
    return "\n".join(lines)


def main() -> int:
    """Compare all recorded lakes, and print the table and what differs."""
    from tests.support.command_in_process import run_in_process
    from tests.truth.oracle.check_lake import check_lake
    from tests.truth.recorded_lakes import extract, names

    differences = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names():
            lake = extract(name, Path(folder) / name)
            target = Path(folder) / f"{name}-answers"
            target.mkdir()
            checks = check_lake(lake.root, run_in_process, target, clusters=lake.clusters)
            add_counts(name, checks)
            differences += [f"{name}: {each}" for each in checks.differences]
    sys.stdout.write(table(COUNTS) + "\n" + "".join(f"{each}\n" for each in differences))
    return 1 if differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
