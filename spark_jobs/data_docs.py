"""Build the Data Docs: static pages with the validation results of a cluster's last runs. It starts no Spark.

The recorded values and limits of plans and snapshots are validated again, by the suites that evaluated them:
one validation per suite for all runs. The pages replace the old ones atomically, so the maintenance DAG and a
user may both build them.
"""

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from evenlag.enums import CycleStep
from evenlag.errors import JobError, PolicyError
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS, QUALITY_RESULTS, RUNS, Table
from evenlag.policy.gates import GATES, Entry
from evenlag.policy.loader import load_policy
from evenlag.quality.checks import CHECKS, Suite
from evenlag.quality.data_docs import PlanResults, Result, Run, render_pages
from spark_jobs.runtime.entry_point import Job, RepeatedWork, end_process, run_job
from spark_jobs.steps.expectations import run_suite

DEFAULT_RUNS: Final = 50
# A run with more plans shows only this many, failing ones first: a longer page is not readable.
_PLANS_PER_RUN: Final = 1_000
_GATES_SUITE: Final = "gates"
_NO_PAGES: Final = "there are no pages"
# What is recorded by gate or check, by snapshot and plan; the plan is empty for checks of a snapshot.
_Key = tuple[str, str]
_Rows = dict[_Key, dict[str, dict[str, Any]]]


def build_data_docs(reader: LakeReader, cluster: str, folder: Path, *, num_runs: int = DEFAULT_RUNS) -> int:
    """Build the pages of a cluster's last runs that evaluated gates or checks."""
    _check_folder(folder)
    slots = _last_runs(reader, cluster, num_runs)
    checked = _recorded(reader, QUALITY_RESULTS, "check_name", cluster, slots) if slots else {}
    num_plans: dict[str, int] = {}
    plans: dict[str, _Rows] = {}
    for snapshot_id, slot in slots.items():
        found = _recorded(reader, GATE_RESULTS, "gate", cluster, {snapshot_id: slot})
        num_plans[snapshot_id] = len(found)
        plans[snapshot_id] = dict(sorted(found.items(), key=_failures_first)[:_PLANS_PER_RUN])
    shown = {key: rows for found in plans.values() for key, rows in found.items()}
    judged, gates = _validate(_GATES_SUITE, GATES, shown)
    suites = {_GATES_SUITE: gates}
    for suite in Suite:
        of_suite = [check for check in CHECKS if check.suite is suite]
        verdicts, suites[suite.value] = _validate(suite.value, of_suite, checked)
        judged |= verdicts
    runs = []
    for snapshot_id, slot in slots.items():
        checks = checked.get((snapshot_id, ""), {})
        if num_plans[snapshot_id] or checks:
            run = _run((snapshot_id, slot), num_plans[snapshot_id], plans[snapshot_id], checks, judged)
            runs.append(run)
    with tempfile.TemporaryDirectory(prefix="evenlag-data-docs-") as scratch:
        for name, html in render_pages(cluster, runs, suites, datetime.now(UTC)).items():
            path = Path(scratch, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(html, encoding="utf-8")
        _replace(folder, Path(scratch))
    return len(runs)


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


def _validate(
    name: str, entries: Sequence[Entry], rows: _Rows
) -> tuple[dict[tuple[str, str, str], bool], list[tuple[Entry, str]]]:
    """Validate recorded values; return verdicts by (snapshot, plan, entry), and types of expectations."""
    import pandas as pd

    listed = list(rows.items())
    columns: dict[str, list[Any]] = {"key": [str(number) for number in range(len(listed))]}
    for entry in entries:
        recorded = [of_row.get(entry.name, {}) for _, of_row in listed]
        columns[entry.observed] = [_value(row.get("observed")) for row in recorded]
        columns[entry.limit_column] = [_value(row.get("allowed")) for row in recorded]
    verdicts = run_suite(name, entries, pd.DataFrame(columns), key="key", consequence=_NO_PAGES)
    judged = {
        (*key, verdict.name): str(number) not in verdict.failed
        for verdict in verdicts
        for number, (key, of_row) in enumerate(listed)
        # A gate of a later version has no values in earlier runs.
        if verdict.name in of_row
    }
    return judged, [(entry, verdict.expectation) for entry, verdict in zip(entries, verdicts, strict=True)]


def _value(recorded: str | None) -> float | str | None:
    """A recorded value as it was evaluated: all numbers were recorded exactly."""
    if recorded is None:
        return None
    try:
        return float(recorded)
    except ValueError:
        return recorded


def _run(
    snapshot: tuple[str, datetime],
    num_plans: int,
    plans: _Rows,
    checks: dict[str, dict[str, Any]],
    judged: Mapping[tuple[str, str, str], bool],
) -> Run:
    """Return a run with its results; a gate or check that this version does not have keeps its verdict."""
    recorded = {(snapshot[0], ""): checks} | plans
    results, differing = {}, 0
    for key, rows in recorded.items():
        passed = {name: judged.get((*key, name), row["passed"]) for name, row in rows.items()}
        differing += sum(passed[name] != row["passed"] for name, row in rows.items())
        results[key] = {
            name: Result(passed[name], row.get("observed"), row.get("allowed"), row["message"])
            for name, row in rows.items()
        }
    of_plans = [
        PlanResults(key[1], next(iter(rows.values()))["group_id"], results[key])
        for key, rows in plans.items()
    ]
    return Run(*snapshot, of_plans, num_plans, results[snapshot[0], ""], differing)


def _check_folder(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / "index.html").is_file():
        raise JobError(f"{folder} is not empty and contains no Data Docs: give another folder")


def _replace(folder: Path, pages: Path) -> None:
    """Replace the old pages; a reader sees either the old or the new ones."""
    beside = folder.with_name(f"{folder.name}.new")
    old = folder.with_name(f"{folder.name}.old")
    try:
        for leftover in (beside, old):
            shutil.rmtree(leftover, ignore_errors=True)
        shutil.copytree(pages, beside)
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise JobError(f"the Data Docs cannot be written to {folder}: {error}") from error


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--folder", help="where the pages go (default: the policy's data_docs)")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="how many runs to show")


def _prepare(arguments: argparse.Namespace) -> RepeatedWork:
    loaded = load_policy(arguments.config)
    loaded.cluster_settings(arguments.cluster)
    folder = _folder(arguments.folder, loaded.policy.data_docs, arguments.cluster)

    def run(*_session_and_events: object) -> dict[str, Any]:
        reader = LakeReader(loaded.policy.lake)
        num_runs = build_data_docs(reader, arguments.cluster, folder, num_runs=arguments.runs)
        return {"num_runs": num_runs, "page": str(folder / "index.html")}

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
