"""What cycles of one minute leave in a local lake: bytes and files of its logs, and how long an append takes.

``python -m tests.bench.minutes [--hours N] [--clusters N] [--tables NAME ...]`` simulates cycles that make
no plan, a minute apart, by ``deltalake``; each simulated hour makes all that was written an hour older.
It prints a line for each hour, and adds the run to ``docs/bench/minutes.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.location import LakePaths
from evenlag.lake.snapshot_ids import new_snapshot_id
from evenlag.lake.tables import TABLES
from evenlag.lake.upkeep.open_day import tend_tables
from evenlag.lake.writer import append_once
from tests.support.lakes.aged import age

if TYPE_CHECKING:
    from evenlag.lake.tables import Table

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "minutes.json"
# Rows of a cycle of two groups with 31 partitions; `runs` has a commit of each step.
ROWS: Final = {
    "offsets": 31, "commits": 31, "members": 5, "lag": 31, "snapshots": 1, "forecasts": 2, "speeds": 2,
    "advice": 2, "quality_results": 21, "decisions": 2, "runs": 1,
}  # fmt: skip
_COMMITS: Final = {"runs": 2}


def rows_of(table: Table, head: dict[str, Any], slot: datetime) -> list[dict[str, Any]]:
    """Return rows of a cycle, with a value in each plain column."""
    plain: dict[str, Any] = {
        "TIMESTAMP": slot,
        "DOUBLE": slot.timestamp(),
        "BOOLEAN": True,
        "DATE": slot.date(),
    }
    return [
        {
            column.name: plain.get(column.type, number if "INT" in column.type else f"{column.name}-{number}")
            for column in table.columns
            if "<" not in column.type
        }
        | head
        for number in range(ROWS[table.name])
    ]


def cycle(root: str, tables: list[Table], cluster: str, slot: datetime) -> list[float]:
    """Append what a cycle writes; return the seconds of each append."""
    head = {"cluster": cluster, "day": slot.date(), "snapshot_id": new_snapshot_id(slot)}
    written = [("cluster", "=", cluster), ("snapshot_id", "=", head["snapshot_id"])]
    seconds = []
    for table in tables:
        for number in range(_COMMITS.get(table.name, 1)):
            rows = rows_of(table, head | ({"step": f"step-{number}"} if table.name == "runs" else {}), slot)
            own = [*written, ("step", "=", f"step-{number}")] if table.name == "runs" else written
            begin = time.perf_counter()
            append_once(root, table, rows, own)
            seconds.append(time.perf_counter() - begin)
    return seconds


def log_size(lake: Path) -> dict[str, int]:
    """Bytes and files of all logs, and bytes of the largest checkpoint."""
    sizes = {path: path.stat().st_size for path in lake.glob("*/_delta_log/*")}
    checkpoints = [size for path, size in sizes.items() if ".checkpoint" in path.name]
    return {"bytes": sum(sizes.values()), "files": len(sizes), "checkpoint": max(checkpoints, default=0)}


def measure(lake: Path, tables: list[Table], clusters: int, hours: int) -> list[dict[str, Any]]:
    """Simulate hours of cycles; return what each hour ends with."""
    begin, found = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0), []
    for hour in range(hours):
        appends, tending = [], 0.0
        for minute in range(60):
            slot = begin + timedelta(hours=hour, minutes=minute)
            for number in range(clusters):
                appends += cycle(str(lake), tables, f"c{number}", slot)
                start = time.perf_counter()
                tend_tables(LakePaths(str(lake)), f"c{number}", tables)
                tending += time.perf_counter() - start
        row = {
            "hour": hour,
            "append_ms": round(1000 * statistics.median(appends), 1),
            "upkeep_s": round(tending, 1),
            **log_size(lake),
        }
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        found.append(row)
        age(lake, 1 / 24)
    return found


def main(argv: list[str] | None = None) -> int:
    """Simulate cycles and keep the results."""
    parser = argparse.ArgumentParser(prog="tests.bench.minutes", description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--clusters", type=int, default=1)
    parser.add_argument("--tables", nargs="+", choices=list(ROWS), default=list(ROWS))
    arguments = parser.parse_args(argv)
    # By deltalake, whoever writes them: of Spark's log only the checksum files are missing.
    tables = [replace(TABLES[name], writer="direct") for name in arguments.tables]
    with tempfile.TemporaryDirectory() as place:
        rows = measure(Path(place), tables, arguments.clusters, arguments.hours)
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    known[f"{arguments.clusters} clusters, {len(tables)} tables"] = {
        "hours": rows,
        "log_mb_per_cluster": round(rows[-1]["bytes"] / arguments.clusters / 1e6, 1),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
    }
    RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
