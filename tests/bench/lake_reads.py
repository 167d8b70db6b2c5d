"""Filtered reads of a lake that Spark wrote: the reader of the command beside libraries that read Delta.

``python -m tests.bench.lake_reads [--python PATH] [--days 4] [--files 96]`` writes a table of ``lag`` with
real Spark: a file per reading, 400 rows each, a boolean column without statistics and a group id of U+10FFFF.
Each way answers all queries in a process of its own, in turns; its rows are compared with those that Arrow
finds in whole files. Polars and DuckDB are in no lock of ours: they are measured from the interpreter that
``--python`` names. Results go to ``docs/bench/lake_reads.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import LAG
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.runtime.delta_lake import Lake
from tests.bench.gates import with_contract
from tests.truth.oracle.delta_files import read_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "lake_reads.json"
_WORKER: Final = Path(__file__).parent / "support" / "lake_reads_way.py"
_ROWS_PER_FILE: Final = 400
_ROUNDS: Final = 2
_FIRST_MICROSECOND: Final = 1_772_323_200_123_456
TOP_GROUP: Final = "\U0010ffff" * 33
OURS: Final = "evenlag"
WAYS: Final = (OURS, "deltalake dataset", "deltalake scan", "deltalake QueryBuilder", "polars", "duckdb")
_ELSEWHERE: Final = frozenset({"polars", "duckdb"})


def write_lake(root: Path, days: int, files: int) -> str:
    """Write the table in one commit, a file per reading; return Spark's version."""
    from pyspark.sql import functions as sf

    conf = {"spark.sql.files.maxRecordsPerFile": str(_ROWS_PER_FILE)}
    spark = build_session("evenlag-bench-lake-reads", conf=conf, is_large=True)
    a_day = files * _ROWS_PER_FILE
    columns = {
        "cluster": "'c'",
        "day": f"date_add(DATE '2026-03-01', cast(id div {a_day} as int))",
        "snapshot_id": f"'s-' || lpad(cast(id div {_ROWS_PER_FILE} as string), 8, '0')",
        "group_id": f"case when id % 400 = 399 then repeat('{TOP_GROUP[0]}', 33) "
        "else 'group-' || lpad(cast(id % 40 as string), 4, '0') end",
        "topic": "'orders'",
        "partition": "cast(id % 10 as int)",
        "lag_records": "id",
        "stalled": "id % 97 = 0",
        "read_at": f"timestamp_micros({_FIRST_MICROSECOND} + id * 31)",
    }
    frame = spark.range(days * a_day).withColumns({name: sf.expr(text) for name, text in columns.items()})
    Lake(spark, str(root)).append(LAG, with_contract(frame, LAG))
    version = str(spark.version)
    spark.stop()
    return version


def queries(days: int, files: int) -> dict[str, list[list[Any]]]:
    """What the commands ask, as (column, operator, type, value)."""
    middle = days // 2
    one_day: list[list[Any]] = [
        ["cluster", "=", "text", "c"],
        ["day", "=", "date", f"2026-03-{middle + 1:02d}"],
    ]
    last = _FIRST_MICROSECOND + (days * files * _ROWS_PER_FILE - 1) * 31
    return {
        "boolean, one day": [*one_day, ["stalled", "=", "boolean", True]],
        "one snapshot": [*one_day, ["snapshot_id", "=", "text", f"s-{middle * files + 3:08d}"]],
        "odd group, all days": [["group_id", "=", "text", TOP_GROUP]],
        "boolean, all days": [["stalled", "=", "boolean", True]],
        "last microsecond": [["read_at", ">=", "moment", last]],
    }


def expected(root: Path, filters: Sequence[Sequence[Any]]) -> list[int]:
    """Count and sum that Arrow finds in whole files, without any statistics."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = read_arrow(root, LAG.name)
    for column, sign, kind, value in filters:
        wanted = pa.scalar(value, pa.timestamp("us", "UTC")) if kind == "moment" else value
        values = rows[column].cast(pa.string()) if kind == "date" else rows[column]
        if kind == "moment":
            values = values.cast(pa.timestamp("us", "UTC"))
        rows = rows.filter((pc.equal if sign == "=" else pc.greater_equal)(values, wanted))
    return [rows.num_rows, pc.sum(rows["lag_records"]).as_py() or 0]


def ask(python: str, way: str, root: Path, asked: dict[str, list[list[Any]]]) -> dict[str, Any]:
    """Ask one way all queries in a process of its own."""
    job = json.dumps({"way": way, "root": str(root), "table": LAG.name, "queries": asked})
    done = subprocess.run(
        [python, str(_WORKER)], input=job, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode != 0:
        error = {"error": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
        return {"version": None, "peak_mb": None, "answers": dict.fromkeys(asked, error)}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def measure(root: Path, asked: dict[str, list[list[Any]]], python: str) -> dict[str, Any]:
    """Ask all ways in turns, several rounds."""
    rounds: list[dict[str, Any]] = []
    for _ in range(_ROUNDS):
        for way in WAYS:
            answer = ask(python if way in _ELSEWHERE else sys.executable, way, root, asked)
            sys.stderr.write(f"{way}: {json.dumps(answer)}\n")
            rounds.append(answer | {"way": way})
    ways = {
        way: {name: max(one[name] or 0 for one in rounds if one["way"] == way) for name in ("peak_mb",)}
        | {"version": next(one["version"] for one in rounds if one["way"] == way)}
        for way in WAYS
    }
    found = {}
    for name, filters in asked.items():
        wanted = expected(root, filters)
        shown = {way: [one["answers"][name] for one in rounds if one["way"] == way] for way in WAYS}
        ours = min(one["seconds"] for one in shown[OURS])
        found[name] = {"rows": wanted[0], "ways": {way: judge(shown[way], wanted, ours) for way in WAYS}}
    return {"ways": ways, "queries": found}


def judge(answers: list[dict[str, Any]], wanted: list[int], ours_s: float) -> dict[str, Any]:
    """Whether all answers were right, and the best time."""
    errors = [one["error"] for one in answers if "error" in one]
    if errors:
        return {"error": errors[0]}
    seconds = min(one["seconds"] for one in answers)
    return {
        "is_right": all([one["rows"], one["total"]] == wanted for one in answers),
        "rows": answers[0]["rows"],
        "seconds": round(seconds, 3),
        "by_ours": round(seconds / ours_s, 2),
    }


def main() -> None:
    """Write, ask, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="has polars, duckdb and deltalake")
    parser.add_argument("--days", type=int, default=4)
    parser.add_argument("--files", type=int, default=96, help="readings a day")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "lake"
        spark = write_lake(root, arguments.days, arguments.files)
        found = measure(root, queries(arguments.days, arguments.files), arguments.python)
    note = "cores shared with other work: read the ratios, not the seconds"
    size = {"days": arguments.days, "files_a_day": arguments.files, "rows_a_file": _ROWS_PER_FILE}
    result = {
        "machine": {"cpus": os.cpu_count(), "spark": spark, "note": note},
        "lake": size,
        **found,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
