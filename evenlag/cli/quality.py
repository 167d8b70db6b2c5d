"""`evenlag quality`: the suites that judge snapshots and plans, for a user of Great Expectations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenlag.cli.console import console
from evenlag.cli.job_runner import job_result
from evenlag.cli.option_types import option, path, whole
from evenlag.cli.options import ClusterScope
from evenlag.context import find_cluster, find_lake, require_policy

_INTO_HELP = "The folder of the context; an earlier one is replaced."

app = typer.Typer(no_args_is_help=True, help="The suites that judge snapshots and plans.")


@app.command("context")
def export_context(
    *,
    into: Annotated[Path, option("--into", "DIR", _INTO_HELP, path)],
    runs: Annotated[int, option("--runs", "N", "How many of the last runs.", whole(1, 1_000))] = 50,
    scope: ClusterScope,
) -> None:
    """Write the suites, the values that they judged and the results as a Great Expectations file context."""
    require_policy(scope.config)
    name = find_cluster(find_lake(None, scope.config), scope.cluster)
    done = job_result(None, "data_docs", config=scope.config, cluster=name, runs=runs, context=into)
    console().print(f"Wrote the context of {done['num_runs']} runs to {done['folder']}")
