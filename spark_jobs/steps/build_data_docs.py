"""Data Docs: validation results of the last runs, as static pages.

The recorded values and limits of plans and snapshots are validated again, by the suites that evaluated them:
one validation per suite for all runs. The pages replace the old ones atomically, so the maintenance DAG and a
user may both build them.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import CycleStep
from evenlag.errors import JobError
from evenlag.lake.tables import GATE_RESULTS, QUALITY_RESULTS, RUNS
from evenlag.policy.gates import GATES
from evenlag.quality.checks import CHECKS, Check, Suite
from evenlag.quality.data_docs import Expectation, PlanResults, Result, Run, render_pages
from spark_jobs.steps.expectations import run_suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.policy.gate_contract import Gate

DEFAULT_RUNS: Final = 50
# A run with more plans shows only this many, failing ones first: a longer page is not readable.
_PLANS_PER_RUN: Final = 1_000
_GATES_SUITE: Final = "gates"
_NO_PAGES: Final = "there are no pages"
# A row of values: (snapshot, plan or empty), and what is recorded by gate or check.
_Row = tuple[tuple[str, str], "dict[str, dict[str, Any]]"]


def build_data_docs(reader: LakeReader, cluster: str, folder: Path, *, num_runs: int = DEFAULT_RUNS) -> int:
    """Build the pages of a cluster's last runs that evaluated gates or checks."""
    _check_folder(folder)
    slots = _last_runs(reader, cluster, num_runs)
    checked = _read_checks(reader, cluster, slots)
    plans = {snapshot_id: _read_plans(reader, cluster, snapshot_id, slots) for snapshot_id in slots}
    judged, gates = _validate(
        _GATES_SUITE, GATES, [row for found in plans.values() for row in _gate_rows(found)]
    )
    suites = {_GATES_SUITE: gates}
    for suite in Suite:
        of_suite = [check for check in CHECKS if check.suite is suite]
        verdicts, suites[suite.value] = _validate(suite.value, of_suite, checked.items())
        judged |= verdicts
    runs = []
    for snapshot_id, slot in slots.items():
        run = _run(snapshot_id, slot, plans[snapshot_id], checked, judged)
        if run.num_plans or run.checks:
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
        filters=[("cluster", "=", cluster), ("step", "=", CycleStep.DECIDE.value)],
        # Repeats of a run have rows of their own.
        limit=2 * num_runs,
    ).to_pylist()
    newest = {row["snapshot_id"]: row["slot"] for row in found}
    return dict(sorted(list(newest.items())[:num_runs], key=lambda run: run[1]))


def _read_checks(
    reader: LakeReader, cluster: str, slots: Mapping[str, datetime]
) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Rows of ``quality_results`` by snapshot and check."""
    if not slots:
        return {}
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "in", {slot.astimezone(UTC).date() for slot in slots.values()}),
        ("snapshot_id", "in", sorted(slots)),
    ]
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for row in reader.read(QUALITY_RESULTS, filters=filters).to_pylist():
        found.setdefault((row["snapshot_id"], ""), {})[row["check_name"]] = row
    return found


def _read_plans(
    reader: LakeReader, cluster: str, snapshot_id: str, slots: Mapping[str, datetime]
) -> tuple[int, list[dict[str, dict[str, Any]]]]:
    """Number of a snapshot's plans, and rows of ``gate_results`` by gate of those to show."""
    filters: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", "=", slots[snapshot_id].astimezone(UTC).date()),
        ("snapshot_id", "=", snapshot_id),
    ]
    plans: dict[str, dict[str, dict[str, Any]]] = {}
    for row in reader.read(GATE_RESULTS, filters=filters).to_pylist():
        plans.setdefault(row["plan_id"], {})[row["gate"]] = row
    ordered = sorted(plans.values(), key=_failures_first)
    return len(ordered), ordered[:_PLANS_PER_RUN]


def _failures_first(plan: Mapping[str, Mapping[str, Any]]) -> tuple[int, str]:
    failed = sum(not row["passed"] for row in plan.values())
    return -failed, next(iter(plan.values()))["group_id"]


def _gate_rows(found: tuple[int, list[dict[str, dict[str, Any]]]]) -> list[_Row]:
    rows = []
    for plan in found[1]:
        first = next(iter(plan.values()))
        rows.append(((first["snapshot_id"], first["plan_id"]), plan))
    return rows


def _validate(
    name: str, entries: Sequence[Gate | Check], rows: Iterable[_Row]
) -> tuple[dict[tuple[str, str, str], bool], list[Expectation]]:
    """Validate recorded values; return verdicts by (snapshot, plan, entry), and the suite's expectations."""
    import pandas as pd

    listed = list(rows)
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
    expectations = [
        Expectation(
            entry.name,
            verdict.expectation,
            entry.observed,
            entry.comparison,
            entry.fails_when,
            entry.table if isinstance(entry, Check) else "",
        )
        for entry, verdict in zip(entries, verdicts, strict=True)
    ]
    return judged, expectations


def _value(recorded: str | None) -> float | str | None:
    """A recorded value as it was evaluated: all numbers were recorded exactly."""
    if recorded is None:
        return None
    try:
        return float(recorded)
    except ValueError:
        return recorded


def _run(
    snapshot_id: str,
    slot: datetime,
    found: tuple[int, list[dict[str, dict[str, Any]]]],
    checked: Mapping[tuple[str, str], Mapping[str, Mapping[str, Any]]],
    judged: Mapping[tuple[str, str, str], bool],
) -> Run:
    num_plans, plans = found
    of_plans = []
    for plan in plans:
        first = next(iter(plan.values()))
        results = _results((snapshot_id, first["plan_id"]), plan, judged)
        of_plans.append(PlanResults(first["plan_id"], first["group_id"], results))
    checks = _results((snapshot_id, ""), checked.get((snapshot_id, ""), {}), judged)
    recorded = [(row, (snapshot_id, "", name)) for name, row in checked.get((snapshot_id, ""), {}).items()]
    recorded += [(row, (snapshot_id, row["plan_id"], name)) for plan in plans for name, row in plan.items()]
    differing = sum(judged.get(key, row["passed"]) != row["passed"] for row, key in recorded)
    return Run(snapshot_id, slot, of_plans, num_plans, checks, differing)


def _results(
    key: tuple[str, str],
    rows: Mapping[str, Mapping[str, Any]],
    judged: Mapping[tuple[str, str, str], bool],
) -> dict[str, Result]:
    """Results by gate or check; one that this version does not have keeps its recorded verdict."""
    return {
        name: Result(
            judged.get((*key, name), row["passed"]), row.get("observed"), row.get("allowed"), row["message"]
        )
        for name, row in rows.items()
    }


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
