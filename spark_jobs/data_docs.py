"""Build the Data Docs: static pages with the validation results of a cluster's last runs. It starts no Spark.

Or write the suites and what they judged as a file context of Great Expectations. Either replaces the old
files atomically, so the maintenance DAG and a user may both build them.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import CycleStep
from evenlag.errors import JobError, PolicyError
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, QUALITY_RESULTS, RUNS, Table
from evenlag.policy.gates import GATES, Entry
from evenlag.policy.loader import load_policy
from evenlag.quality.checks import CHECKS, Suite
from evenlag.quality.data_docs import PlanResults, Run, render_pages
from spark_jobs.runtime.entry_point import Job, RepeatedWork, end_process, run_job
from spark_jobs.steps.expectations import export_context

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_RUNS: Final = 50
# A run with more plans shows only this many, failing ones first: a longer page is not readable.
_PLANS_PER_RUN: Final = 1_000
_GATES_SUITE: Final = "gates"
# Name of the column that tells rows apart.
_KEY: Final = "row"
# What is recorded by gate or check, by snapshot and plan; the plan is empty for checks of a snapshot.
_Key = tuple[str, str]
_Rows = dict[_Key, dict[str, dict[str, Any]]]


def build_data_docs(reader: LakeReader, cluster: str, folder: Path, *, num_runs: int = DEFAULT_RUNS) -> int:
    """Build the pages of a cluster's last runs that evaluated gates or checks."""
    recorded = _read(reader, cluster, num_runs)
    suites = {name: entries for name, (entries, _) in recorded.suites().items()}
    runs = []
    for snapshot_id, slot in recorded.slots.items():
        checks, plans = recorded.checked.get((snapshot_id, ""), {}), recorded.plans[snapshot_id]
        if plans or checks:
            of_plans = [
                PlanResults(key[1], next(iter(rows.values()))["group_id"], rows)
                for key, rows in plans.items()
            ]
            runs.append(Run(snapshot_id, slot, of_plans, recorded.num_plans[snapshot_id], checks))

    def write(pages: Path) -> None:
        for name, html in render_pages(cluster, runs, suites, datetime.now(UTC)).items():
            path = Path(pages, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(html, encoding="utf-8")

    _replace(folder, write, marker="index.html")
    return len(runs)


def build_context(reader: LakeReader, cluster: str, folder: Path, *, num_runs: int = DEFAULT_RUNS) -> int:
    """Write the suites with the values of a cluster's last runs as a file context of Great Expectations."""
    recorded = _read(reader, cluster, num_runs)
    frames = {name: (entries, _frame(entries, rows)) for name, (entries, rows) in recorded.suites().items()}
    _replace(folder, partial(export_context, suites=frames, key=_KEY), marker="gx/great_expectations.yml")
    return len(recorded.slots)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What is recorded of runs, by snapshot; of their plans only those that a page shows."""

    slots: dict[str, datetime]
    checked: _Rows
    num_plans: dict[str, int]
    plans: dict[str, _Rows]

    def suites(self) -> dict[str, tuple[Sequence[Entry], _Rows]]:
        """Return the entries and the recorded verdicts of each suite."""
        plans = {key: rows for found in self.plans.values() for key, rows in found.items()}
        of_suites = {suite: [check for check in CHECKS if check.suite is suite] for suite in Suite}
        return {
            _GATES_SUITE: (GATES, plans),
            **{suite.value: (entries, self.checked) for suite, entries in of_suites.items()},
        }


def _read(reader: LakeReader, cluster: str, num_runs: int) -> _Recorded:
    slots = _last_runs(reader, cluster, num_runs)
    checked = _recorded(reader, QUALITY_RESULTS, "check_name", cluster, slots) if slots else {}
    num_plans: dict[str, int] = {}
    plans: dict[str, _Rows] = {}
    for snapshot_id, slot in slots.items():
        found = _recorded(reader, GATE_RESULTS, "gate", cluster, {snapshot_id: slot})
        num_plans[snapshot_id] = len(found)
        plans[snapshot_id] = dict(sorted(found.items(), key=_failures_first)[:_PLANS_PER_RUN])
    return _Recorded(slots, checked, num_plans, plans)


def _last_runs(reader: LakeReader, cluster: str, num_runs: int) -> dict[str, datetime]:
    """Slots of the newest decisions by snapshot, oldest first; a slot that was decided twice counts once."""
    found = reader.read_newest(
        RUNS,
        "slot",
        columns=["snapshot_id", "slot"],
        filters=matching(cluster=cluster, step=CycleStep.DECIDE.value),
        # Repeats of a run have rows of their own.
        limit=2 * num_runs,
    ).to_pylist()
    newest = {row["snapshot_id"]: row["slot"] for row in found}
    return dict(sorted(list(newest.items())[:num_runs], key=lambda run: run[1]))


def _recorded(
    reader: LakeReader, table: Table, name: str, cluster: str, slots: Mapping[str, datetime]
) -> _Rows:
    """Return the verdicts of some snapshots in a table; `name` is the column of the gate or check."""
    days = {slot.astimezone(UTC).date() for slot in slots.values()}
    filters = matching(cluster=cluster, day=days, snapshot_id=slots.keys())
    found: _Rows = {}
    for row in reader.read(table, filters=filters).to_pylist():
        found.setdefault((row["snapshot_id"], row.get("plan_id", "")), {})[row[name]] = row
    return found


def _failures_first(plan: tuple[_Key, Mapping[str, Mapping[str, Any]]]) -> tuple[int, str]:
    rows = list(plan[1].values())
    return -sum(not row["passed"] for row in rows), rows[0]["group_id"]


def _frame(entries: Sequence[Entry], rows: _Rows) -> pd.DataFrame:
    """Return the recorded values and limits of the entries; what they are of is in the first columns."""
    import pandas as pd

    columns: dict[str, list[Any]] = {
        _KEY: [str(number) for number in range(len(rows))],
        "snapshot_id": [snapshot_id for snapshot_id, _ in rows],
        "plan_id": [plan_id for _, plan_id in rows],
    }
    for entry in entries:
        recorded = [of_row.get(entry.name, {}) for of_row in rows.values()]
        columns[entry.observed] = [_value(row.get("observed")) for row in recorded]
        columns[entry.limit_column] = [_value(row.get("allowed")) for row in recorded]
    return pd.DataFrame(columns)


def _value(recorded: str | None) -> float | str | None:
    """A recorded value as it was evaluated: all numbers were recorded exactly."""
    if recorded is None:
        return None
    try:
        return float(recorded)
    except ValueError:
        return recorded


def _replace(folder: Path, write: Callable[[Path], None], *, marker: str) -> None:
    """Replace a folder that contains the marker; a reader sees either the old files or the new ones."""
    if folder.exists() and any(folder.iterdir()) and not (folder / marker).is_file():
        raise JobError(f"{folder} is not empty, and evenlag did not write it: give another folder")
    # Names that are no cluster's, and no user's: whatever has them is deleted.
    beside, old = (folder.with_name(f".{folder.name}.evenlag-{what}") for what in ("new", "old"))
    try:
        for leftover in (beside, old):
            shutil.rmtree(leftover, ignore_errors=True)
        beside.mkdir(parents=True)
        write(beside)
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise JobError(f"{folder} cannot be written: {error}") from error


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--folder", help="where the pages go (default: the policy's data_docs)")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="how many runs to show")
    parser.add_argument("--context", help="write a file context of Great Expectations here, and no pages")


def _prepare(arguments: argparse.Namespace) -> RepeatedWork:
    loaded = load_policy(arguments.config)
    loaded.cluster_settings(arguments.cluster)
    build = build_context if arguments.context else build_data_docs
    folder = _folder(arguments.context or arguments.folder, loaded.policy.data_docs, arguments.cluster)

    def run(*_session_and_events: object) -> dict[str, Any]:
        reader = LakeReader(loaded.policy.lake)
        num_runs = build(reader, arguments.cluster, folder, num_runs=arguments.runs)
        return {"num_runs": num_runs, "folder": str(folder)}

    return RepeatedWork("evenlag data docs", run)


def _folder(given: str | None, from_policy: Any, cluster: str) -> Path:
    if given:
        return Path(given).absolute()
    if not from_policy:
        raise PolicyError("the policy has no data_docs: set it, or give --folder")
    return Path(from_policy).absolute() / cluster


JOB: Final = Job("spark_jobs.data_docs", __doc__, _add_arguments, _prepare, lambda _: "data_docs")


if __name__ == "__main__":
    end_process(run_job(JOB))
