"""`evenlag dags`: install the DAG files in Airflow's DAG folder."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from evenlag.bundle import DAG_PACKAGE, bundle_root, dag_texts
from evenlag.cli import option_types
from evenlag.cli.console import console, print_json
from evenlag.cli.option_types import argument
from evenlag.cli.options import JsonOption
from evenlag.errors import UsageError

app = typer.Typer(help="The DAG files for Airflow.", no_args_is_help=True)


@app.command("install")
def install(
    folder: Annotated[Path, argument("FOLDER", "Airflow's DAG folder.", option_types.path)],
    *,
    as_json: JsonOption = False,
) -> None:
    """Copy the DAG files into Airflow's DAG folder, as a package `evenlag_dags`; again to update them."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give the folder that Airflow's [core] dags_folder names")
    target = folder / DAG_PACKAGE
    if target.exists() and not (target / "lag_rebalance.py").is_file():
        raise UsageError(f"{target} is there and is not ours: move it away first")
    fresh = folder / f".{DAG_PACKAGE}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(bundle_root() / "dags", fresh, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(target, ignore_errors=True)
    fresh.rename(target)
    installed = [str(target / name) for name in dag_texts()]
    if as_json:
        print_json({"folder": str(target), "files": installed})
        return
    out = console()
    out.print(f"{len(installed)} files in {target}.", soft_wrap=True)
    out.print(
        "Airflow's scheduler, DAG processor and workers need: evenlag[airflow] installed, EVENLAG_CONFIG in"
    )
    out.print("their environment, and the connection spark_default (its host is the Spark master).")
