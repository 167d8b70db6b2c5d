"""Check the quality of a snapshot's tables: measure it as one row, and evaluate the suites for that row.

The rows of a small snapshot are in memory; a large one is read in batches of groups. The verdicts are written
once: whoever finds them on record keeps them, so a repeat decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from evenlag.enums import OnFailure
from evenlag.errors import QualityCheckError
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS, QUALITY_RESULTS, SNAPSHOTS
from evenlag.lake.writer import append_once
from evenlag.logging_setup import named_logger
from evenlag.planning.decision_record import read_decision
from evenlag.policy.cluster_settings import QualitySettings
from evenlag.quality.checks import (
    CHECKS,
    COMMIT_COLUMNS,
    EARLIER_COLUMNS,
    LAG_COLUMNS,
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    combine,
    count_partitions,
    measure_groups,
    measure_snapshot,
    read_results,
    stopping_failures,
)
from spark_jobs.steps.expectations import find_failures, verdict_columns
from spark_jobs.steps.snapshot_rows import SnapshotRows

_LOG = named_logger(__name__)
# After a longer pause the retention of Kafka's topics has moved on, and only newer topics could be compared.
_EARLIER: Final = timedelta(days=7)
_NOT_TRUSTED: Final = "the snapshot counts as not checked"


def check_snapshot(
    rows: SnapshotRows, settings: QualitySettings, run_id: str, checked_at: datetime
) -> list[dict[str, Any]]:
    """Check a snapshot and write the verdicts; return those on record if it has been checked."""
    if known := read_results(rows.reader, rows.marker):
        return known
    try:
        measures = _measure(rows, checked_at)
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise QualityCheckError(
            f"the snapshot could not be measured, so {_NOT_TRUSTED}: {error!r}"
        ) from error
    results = _check_results(measures, settings)
    head = {name: rows.marker[name] for name in ("cluster", "day", "snapshot_id", "slot")}
    new = [head | result | {"checked_at": checked_at, "run_id": run_id} for result in results]
    if not append_once(rows.reader.paths.root, QUALITY_RESULTS, new, rows.filters):
        # Another attempt has checked it in the meantime.
        new = read_results(rows.reader, rows.marker) or new
    for result in _failed(new):
        _LOG.warning("%s: %s", result["check_name"], result["message"])
    return new


def try_check_snapshot(
    rows: SnapshotRows, settings: QualitySettings, run_id: str, checked_at: datetime
) -> dict[str, Any]:
    """Check a snapshot for the summary of the step; an error costs neither the snapshot nor the step."""
    try:
        results = check_snapshot(rows, settings, run_id, checked_at)
    except QualityCheckError as error:
        _LOG.error("%s", error)
        return {"checks": 0, "failed_checks": {}, "unchecked": str(error)}
    failed = {result["check_name"]: result["message"] for result in _failed(results)}
    return {"checks": len(results), "failed_checks": failed}


def stop_reason(
    rows: SnapshotRows, settings: QualitySettings, run_id: str, checked_at: datetime
) -> str | None:
    """Return why no group may be planned; a snapshot keeps its decision, an unchecked one is checked."""
    if settings.on_failure is not OnFailure.STOP:
        return None
    failed = stopping_failures(check_snapshot(rows, settings, run_id, checked_at))
    if not failed or read_decision(rows.reader, rows.filters) is not None:
        return None
    return "; ".join(f"{result['check_name']}: {result['message']}" for result in failed)


def _measure(rows: SnapshotRows, checked_at: datetime) -> dict[str, Any]:
    """Measure a snapshot as one row."""
    offsets = rows.rows(OFFSETS, OFFSET_COLUMNS)
    sizes = count_partitions(offsets)
    group_ids = rows.rows(MEMBERS, ["group_id"])["group_id"].unique().to_pylist()
    of_groups = (
        measure_groups(
            rows.rows_of_groups(MEMBERS, MEMBER_COLUMNS, batch),
            rows.rows_of_groups(COMMITS, COMMIT_COLUMNS, batch),
            rows.rows_of_groups(LAG, LAG_COLUMNS, batch),
            sizes,
        )
        for batch in rows.group_batches(group_ids)
    )
    of_snapshot = measure_snapshot(rows.marker, offsets, _earlier_offsets(rows), checked_at)
    return combine(rows.marker, of_snapshot, of_groups)


def _earlier_offsets(rows: SnapshotRows) -> pa.Table | None:
    """The offsets of the snapshot before; None if there is none."""
    before = rows.marker["end_read_at"]
    since = [("day", ">=", (before - _EARLIER).date()), ("end_read_at", "<", before)]
    columns, filters = ["cluster", "day", "snapshot_id"], [("cluster", "=", rows.cluster), *since]
    found = rows.reader.read_newest(SNAPSHOTS, "end_read_at", columns=columns, filters=filters).to_pylist()
    if not found:
        return None
    return rows.reader.read(OFFSETS, columns=EARLIER_COLUMNS, filters=snapshot_filters(found[0]))


def _check_results(measures: Mapping[str, Any], settings: QualitySettings) -> list[dict[str, Any]]:
    """Evaluate all checks of one row: ``suite``, ``table_name``, ``check_name`` and the verdict's columns."""
    import pandas as pd

    plain = settings.model_dump(mode="json")
    allowed = {check.limit_column: check.allowed(plain) for check in CHECKS}
    frame = pd.DataFrame([{"key": "snapshot", **measures, **allowed}])
    failed = find_failures(CHECKS, frame, key="key", consequence=_NOT_TRUSTED)
    return [
        {
            "suite": check.suite.value,
            "table_name": check.table,
            "check_name": check.name,
        }
        | verdict_columns(
            check, measures[check.observed], allowed[check.limit_column], passed=not failed[check.name]
        )
        for check in CHECKS
    ]


def _failed(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result for result in results if not result["passed"]]
