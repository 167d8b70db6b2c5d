"""Build the Data Docs: pages with the validation results of a cluster's last runs. It starts no Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import PolicyError
from evenlag.lake.reader import LakeReader
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.entry_point import Job, RepeatedWork, run_job
from spark_jobs.steps.build_data_docs import DEFAULT_RUNS, build_data_docs

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


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


_JOB: Final = Job("spark_jobs.data_docs", __doc__, _add_arguments, _prepare, lambda _: "data_docs")


def main(argv: Sequence[str] | None = None) -> int:
    """Build the pages from the command line and return the exit code."""
    return run_job(_JOB, argv)


if __name__ == "__main__":
    sys.exit(main())
