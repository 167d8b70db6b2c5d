"""Data Docs: Great Expectations' pages of the last runs' verdicts, for people who know them from elsewhere.

The pages are made anew from ``gate_results`` each time and take the old ones' place at once, so they may be
built in maintenance, by hand, or both. They grow slow to build with their number, hence the last runs only.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import JobError, PolicyError
from evenlag.lake.tables import GATE_RESULTS, RUNS
from evenlag.logging_setup import airflow_run_id, log_fields, set_up_logging
from evenlag.policy.gates import GATES
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.runtime.quiet_session import quiet_session
from spark_jobs.steps.expectations import import_great_expectations

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

_LOG = logging.getLogger(__name__)
DEFAULT_RUNS: Final = 50
# Of a run with more plans the failing ones come first; a page of more rows serves nobody.
_PLANS_PER_RUN: Final = 1_000
_PASSED: Final = "passed"
_PAGES: Final = Path("gx", "uncommitted", "data_docs", "local_site")


def build_data_docs(lake: Lake, cluster: str, folder: Path, *, num_runs: int = DEFAULT_RUNS) -> int:
    """Write the pages of a cluster's last runs that judged plans.

    Parameters
    ----------
    lake
        The tables.
    cluster
        Name of the cluster in the policy.
    folder
        Where the pages go, ``index.html`` first; what is there is replaced.
    num_runs
        How many runs at the most.

    Returns
    -------
    int
        How many runs the pages show.

    Raises
    ------
    JobError
        When the folder is something else's, or cannot be written.
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
    """A project of Great Expectations in a folder that is thrown away."""

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
        """Validate a run's verdicts: a gate's column holds ``passed``, or the failure in plain words."""
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
    """A row a plan, a column a gate; failing plans first, and no more rows than a page can show."""
    from pyspark.sql import functions as sf

    words = sf.when(sf.col("passed"), _PASSED).otherwise(sf.col("message"))
    rows = lake.read_snapshot(GATE_RESULTS, cluster, snapshot_id)
    wide = rows.groupBy("group_id", "plan_id").agg(
        *(sf.max(sf.when(sf.col("gate") == gate.name, words)).alias(gate.name) for gate in GATES)
    )
    failed = [sf.coalesce(sf.col(gate.name) != _PASSED, sf.lit(False)).cast("int") for gate in GATES]
    failures = sum(failed, sf.lit(0))
    # A gate that is newer than the run has no verdict on it; what is null is left out of the count.
    return wide.orderBy(sf.desc(failures), "group_id").limit(_PLANS_PER_RUN).toPandas()


def _check_folder(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / "index.html").is_file():
        raise JobError(f"{folder} is not empty and holds no Data Docs: give another folder")


def _replace(folder: Path, pages: Path) -> None:
    """Put the pages in the place of the old ones; whoever reads meanwhile sees one or the other."""
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


def main(argv: Sequence[str] | None = None) -> int:
    """Build the pages from the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="spark_jobs.data_docs", description=__doc__)
    parser.add_argument("--config", help="the policy file (default: EVENLAG_CONFIG, else evenlag.yaml)")
    parser.add_argument("--cluster", required=True, help="name of the cluster in the policy")
    parser.add_argument("--folder", help="where the pages go (default: the policy's data_docs)")
    parser.add_argument("--runs", type=int, default=DEFAULT_RUNS, help="how many runs to show")
    arguments = parser.parse_args(argv)
    with log_fields(run_id=airflow_run_id(), cluster=arguments.cluster, step="data_docs"):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        set_up_logging()
        policy = load_policy(arguments.config)
        policy.cluster_settings(arguments.cluster)
        folder = _folder(arguments.folder, policy.policy.data_docs, arguments.cluster)
        with quiet_session("evenlag-data-docs") as spark:
            shown = build_data_docs(
                Lake(spark, policy.policy.lake), arguments.cluster, folder, num_runs=arguments.runs
            )
    except JobError as error:
        _LOG.error("Data Docs failed: %s", error)
        return error.exit_code
    _LOG.info("Data Docs of %d runs: %s", shown, folder / "index.html")
    return 0


def _folder(given: str | None, from_policy: Any, cluster: str) -> Path:
    if given:
        return Path(given).absolute()
    if not from_policy:
        raise PolicyError("the policy has no data_docs: set it, or give --folder")
    return Path(from_policy).absolute() / cluster


if __name__ == "__main__":
    sys.exit(main())
