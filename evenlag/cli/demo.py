"""`evenlag demo`: the main job end to end on this machine."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from evenlag.airflow.dag_bundle import add_bundle_to_path
from evenlag.cli import option_types
from evenlag.enums import GroupType
from evenlag.errors import JobError

_NEEDED: Final = {
    "airflow": "airflow",
    "great_expectations": "spark",
    "pyspark": "spark",
    "deltalake": "cli",
    "kafka": "cli",
    "matplotlib": "cli",
}


class DemoProtocol(StrEnum):
    """What the demo's consumers speak."""

    CLASSIC = GroupType.CLASSIC
    CONSUMER = GroupType.CONSUMER


def demo(
    *,
    folder: Annotated[
        Path,
        typer.Option(
            "--folder",
            parser=option_types.path,
            metavar="PATH",
            help="Where the page, the tables and the logs go; emptied first.",
        ),
    ] = Path(".demo"),
    keep_going: Annotated[
        bool, typer.Option("--keep", help="Stay up at the end, to look around, until Ctrl-C.")
    ] = False,
    protocol: Annotated[
        DemoProtocol,
        typer.Option(
            "--protocol",
            help="What the consumers speak: classic (evenlag's own clients) or consumer (KIP-848: clients of "
            "confluent-kafka, assigned by a broker with evenlag's plug-in; needs a JDK).",
        ),
    ] = DemoProtocol.CLASSIC,
) -> None:
    """Show it all: a real broker, a skewed group, two runs of the DAG by Airflow, a picture.

    Needs Java 17 or newer and takes a few minutes. Ends with an error when anything that it promises did not
    happen.
    """
    needed = _NEEDED | ({"confluent_kafka": "kip848"} if protocol is DemoProtocol.CONSUMER else {})
    missing = sorted({extra for module, extra in needed.items() if find_spec(module) is None})
    if missing:
        raise JobError(f"the demo needs more of evenlag: pip install 'evenlag[{','.join(missing)}]'")
    add_bundle_to_path()
    from sandbox.command_in_process import run_in_process
    from sandbox.demo import run_demo

    status = run_demo(folder, protocol=protocol.value, keep_going=keep_going, run=run_in_process)
    raise typer.Exit(status)
