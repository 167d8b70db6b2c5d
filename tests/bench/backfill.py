"""Time a backfill of comparisons: 30 days x 288 snapshots x 50 groups x 40 partitions under four policies.

``python -m tests.bench.backfill [days] [groups]`` makes the days from a seed (17.28 million lag rows in
full), runs the job over all of them in one process, kills it twice on the way (SIGKILL) and starts it again,
and then compares the first and the last days again into a separate lake, unkilled: the rows must be the
same. Run in full it writes ``docs/bench/backfill.json``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import COMPARISONS, LAG, MEMBERS, REPLAYS, SNAPSHOTS
from tests.bench.support.backfill_data import CLUSTER, FIRST_DAY, Workload, day_of, write_days
from tests.support.spark_tables import spark_writing, write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    import pyarrow as pa

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "backfill.json"
DAYS, GROUPS = 30, 50
# The limits of the bench's groups are the defaults; one partition more or less lets lag be evened out at all.
POLICIES: Final = ("range", "cooperative-sticky", "lag-aware", "lag-aware-sticky:count_slack=1")
# How many days are compared again, unkilled, in a lake of their own.
_AGAIN: Final = 2
_DONE: Final = re.compile(r"bench (\S+): (compared|skipped) in ([0-9.]+) s")


def write_policy(folder: Path, lake: Path) -> Path:
    """Write the policy file of the bench."""
    names = ", ".join(json.dumps(name) for name in POLICIES)
    path = folder / "evenlag.yaml"
    path.write_text(
        f"lake: {lake}\nclusters: {{{CLUSTER}: {{bootstrap_servers: nowhere:9092}}}}\n"
        f"comparison: {{policies: [{names}]}}\n",
        encoding="utf-8",
    )
    return path


def run_job(policy: Path, num_days: int, kill_after: int | None = None) -> tuple[dict[str, float], int]:
    """Run the job over all days; kill it after so many compared days, in the middle of the next."""
    last = day_of(num_days - 1)
    command = [sys.executable, "-m", "spark_jobs.compare", "--config", str(policy)]
    command += ["--cluster", CLUSTER, "--day", FIRST_DAY.isoformat(), "--to", last.isoformat()]
    seconds: dict[str, float] = {}
    skipped = 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
        for line in job.stderr or ():
            if (shown := _DONE.search(line)) is None:
                continue
            day, outcome, took = shown.groups()
            sys.stderr.write(f"{day} {outcome} {took} s\n")
            if outcome == "skipped":
                skipped += 1
                continue
            seconds[day] = float(took)
            if len(seconds) == kill_after:
                # Half a day's work later it is between groups, or between tables.
                time.sleep(seconds[day] / 2)
                os.killpg(job.pid, signal.SIGKILL)
    if kill_after is None and job.returncode != 0:
        raise RuntimeError(f"the job ended with {job.returncode}")
    return seconds, skipped


def content_hash(lake: Path, days: Sequence[date]) -> dict[str, str]:
    """Hash of all rows of the days, in order of their keys, whatever files they are in."""
    reader = LakeReader(str(lake))
    hashes = {}
    for table in (COMPARISONS, REPLAYS):
        rows = reader.read(table, filters=[("cluster", "=", CLUSTER), ("day", "in", list(days))])
        ordered = rows.sort_by([(name, "ascending") for name in ("day", *table.key)])
        hashes[table.name] = hashlib.sha256(_bytes(ordered)).hexdigest()
    return hashes


def _bytes(rows: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def link_days(source: Path, target: Path, days: Sequence[date]) -> None:
    """Make a lake of the snapshots of some days of another."""
    reader = LakeReader(str(source))
    for table in (SNAPSHOTS, MEMBERS, LAG):
        for day in days:
            rows = reader.read(table, filters=[("cluster", "=", CLUSTER), ("day", "=", day)])
            write_rows(target, table, rows)


def model_errors(lake: Path) -> dict[str, float]:
    """How far the model was off, over all group-days."""
    rows = LakeReader(str(lake)).read(REPLAYS, filters=[("policy", "=", "observed")])
    shown = {name: rows[name].drop_null().to_numpy() for name in ("median_error", "p95_error")}
    return {
        "group_days": rows.num_rows,
        "median_of_median_error": float(np.median(shown["median_error"])),
        "p95_of_median_error": float(np.percentile(shown["median_error"], 95)),
        "median_of_p95_error": float(np.median(shown["p95_error"])),
    }


def run(folder: Path, num_days: int, num_groups: int) -> dict[str, Any]:
    """Generate, kill twice, finish, compare again; return all figures."""
    lake, again = folder / "lake", folder / "again"
    started = time.perf_counter()
    with spark_writing():
        rows = write_days(str(lake), Workload(num_groups), num_days)
    generated_s = time.perf_counter() - started
    policy = write_policy(folder, lake)
    seconds: dict[str, float] = {}
    found_done = []
    # A day's time is that of the run that ended it; of what was killed nothing is counted.
    kills = (max(num_days // 3, 1), max(num_days // 3, 1), None) if num_days > 2 else (None,)
    started = time.perf_counter()
    for kill_after in kills:
        took, skipped = run_job(policy, num_days, kill_after)
        seconds |= took
        found_done.append(skipped)
    elapsed_s = time.perf_counter() - started
    days = [day_of(number) for number in range(min(_AGAIN, num_days))]
    # The last days too: they were written after both kills.
    days = sorted({*days, *(day_of(num_days - 1 - number) for number in range(min(_AGAIN, num_days)))})
    other = folder / "other"
    other.mkdir()
    with spark_writing():
        link_days(lake, again, days)
    run_job(write_policy(other, again), num_days)
    each = np.array([seconds[day] for day in sorted(seconds)])
    return {
        "days": num_days,
        "groups": num_groups,
        "policies": list(POLICIES),
        "lag_rows": rows,
        "comparisons": LakeReader(str(lake)).read(COMPARISONS, columns=["policy"]).num_rows,
        "generated_s": generated_s,
        "all_days_s": elapsed_s,
        "day_median_s": float(np.median(each)),
        "day_max_s": float(each.max()),
        "first_days_median_s": float(np.median(each[:5])),
        "last_days_median_s": float(np.median(each[-5:])),
        "seconds_by_day": [round(float(value), 2) for value in each],
        "kills": len(kills) - 1,
        "days_found_done": found_done,
        "days_compared_again": len(days),
        "same_rows_as_unkilled": content_hash(lake, days) == content_hash(again, days),
        "model": model_errors(lake),
    }


def main(arguments: list[str]) -> int:
    """Run and write."""
    num_days = int(arguments[0]) if arguments else DAYS
    num_groups = int(arguments[1]) if len(arguments) > 1 else GROUPS
    with tempfile.TemporaryDirectory() as folder:
        row = run(Path(folder), num_days, num_groups)
    note = "measured beside other work on the same cores: read ratios, not seconds"
    result = {"machine": {"cpus": os.cpu_count(), "note": note}, "run": row}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    if (num_days, num_groups) == (DAYS, GROUPS):
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0 if row["same_rows_as_unkilled"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
