"""Data Docs: Great Expectations' pages with the gate results of the last runs.

The pages are built from ``gate_results`` each time and replace the old ones atomically, so the maintenance
DAG and a user may both build them. Only the last runs are included: the build time grows with their number.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.errors import JobError
from evenlag.lake.tables import GATE_RESULTS, RUNS
from evenlag.policy.gates import GATES
from spark_jobs.steps.expectations import import_great_expectations

if TYPE_CHECKING:
    import pandas as pd

    from spark_jobs.runtime.delta_lake import Lake

DEFAULT_RUNS: Final = 50
# A run with more plans shows only this many, failing ones first: a longer page is not readable.
_PLANS_PER_RUN: Final = 1_000
_PASSED: Final = "passed"
_PAGES: Final = Path("gx", "uncommitted", "data_docs", "local_site")


def build_data_docs(lake: Lake, cluster: str, folder: Path, *, num_runs: int = DEFAULT_RUNS) -> int:
    """Build the pages of a cluster's last runs that evaluated gates.

    Parameters
    ----------
    lake
        The tables.
    cluster
        Name of the cluster in the policy.
    folder
        Output folder, with ``index.html``; earlier pages in it are replaced.
    num_runs
        Maximum number of runs.

    Returns
    -------
    int
        Number of runs in the pages.

    Raises
    ------
    JobError
        When the folder contains something else, or cannot be written.
    """
    _check_folder(folder)
    runs = _last_runs(lake, cluster, num_runs)
    with tempfile.TemporaryDirectory(prefix="evenlag-data-docs-") as scratch:
        project = _Project(Path(scratch), cluster)
        shown = 0
        for snapshot_id, slot in runs:
            verdicts = _read_verdicts(lake, cluster, snapshot_id)
            if not verdicts.empty:
                project.add_run(snapshot_id, slot, verdicts)
                shown += 1
        _replace(folder, project.build())
    return shown


class _Project:
    """A project of Great Expectations in a temporary folder."""

    def __init__(self, folder: Path, cluster: str) -> None:
        self._folder = folder
        gx = import_great_expectations()
        import great_expectations.expectations as gxe

        self._context = gx.get_context(mode="file", project_root_dir=str(folder))
        self._context.variables.progress_bars = {"globally": False}
        suite = self._context.suites.add(gx.ExpectationSuite(name="gates"))
        for gate in GATES:
            suite.add_expectation(
                gxe.ExpectColumnValuesToBeInSet(
                    column=gate.name, value_set=[_PASSED], meta={"gate": gate.name}
                )
            )
        asset = self._context.data_sources.add_pandas("gate_results").add_dataframe_asset(cluster)
        batch = asset.add_batch_definition_whole_dataframe("plans")
        self._definition = self._context.validation_definitions.add(
            gx.ValidationDefinition(name=cluster, data=batch, suite=suite)
        )

    def add_run(self, snapshot_id: str, slot: datetime, verdicts: pd.DataFrame) -> None:
        """Validate a run's verdicts: a gate's column contains ``passed``, or the message of the failure."""
        from great_expectations.core.run_identifier import RunIdentifier

        self._definition.run(
            batch_parameters={"dataframe": verdicts},
            result_format={
                "result_format": "COMPLETE",
                "unexpected_index_column_names": ["group_id", "plan_id"],
            },
            run_id=RunIdentifier(run_name=snapshot_id, run_time=slot),
        )

    def build(self) -> Path:
        """Build the pages and return their folder."""
        self._context.build_data_docs()
        return self._folder / _PAGES


def _last_runs(lake: Lake, cluster: str, num_runs: int) -> list[tuple[str, datetime]]:
    """Snapshot and slot of the newest decisions, oldest first; a slot that was decided twice counts once."""
    from pyspark.sql import functions as sf

    rows = (
        lake.read(RUNS)
        .where((sf.col("cluster") == cluster) & (sf.col("step") == "decide"))
        .groupBy("snapshot_id")
        .agg(sf.unix_millis(sf.max("slot")).alias("slot_ms"))
        .orderBy(sf.desc("slot_ms"))
        .limit(num_runs)
        .collect()
    )
    return [(row.snapshot_id, datetime.fromtimestamp(row.slot_ms / 1000, UTC)) for row in reversed(rows)]


def _read_verdicts(lake: Lake, cluster: str, snapshot_id: str) -> pd.DataFrame:
    """One row per plan, one column per gate; failing plans first, at most as many rows as a page shows."""
    from pyspark.sql import functions as sf

    words = sf.when(sf.col("passed"), _PASSED).otherwise(sf.col("message"))
    rows = lake.read_snapshot(GATE_RESULTS, cluster, snapshot_id)
    wide = rows.groupBy("group_id", "plan_id").agg(
        *(sf.max(sf.when(sf.col("gate") == gate.name, words)).alias(gate.name) for gate in GATES)
    )
    failed = [sf.coalesce(sf.col(gate.name) != _PASSED, sf.lit(False)).cast("int") for gate in GATES]
    failures = sum(failed, sf.lit(0))
    # A gate that was added after the run has no verdict: null counts as no failure.
    return wide.orderBy(sf.desc(failures), "group_id").limit(_PLANS_PER_RUN).toPandas()


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
