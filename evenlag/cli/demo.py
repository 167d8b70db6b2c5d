"""`evenlag demo`: one cycle end to end on this machine."""

import os
import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from evenlag.bundle import bundle_root
from evenlag.cli import option_types
from evenlag.cli.job_runner import job_arguments
from evenlag.cli.option_types import flag, option
from evenlag.enums import GroupType
from evenlag.errors import JobError

# The modules that each extra installs.
EXTRAS: Final = {
    "airflow": {"airflow"},
    "cli": {"deltalake", "kafka", "matplotlib", "pyarrow", "pydantic", "starlette", "uvicorn", "yaml"},
    "spark": {"delta", "great_expectations", "pyspark"},
}


class DemoProtocol(StrEnum):
    """The group protocol of the demo's consumers."""

    CLASSIC = GroupType.CLASSIC
    CONSUMER = GroupType.CONSUMER


def demo(
    *,
    folder: Annotated[
        Path,
        option(
            "--folder",
            "PATH",
            "Where the page, the tables and the logs go; emptied first.",
            option_types.path,
        ),
    ] = Path(".demo"),
    keep_going: Annotated[bool, flag("--keep", "Keep everything running until Ctrl-C.")] = False,
    protocol: Annotated[
        DemoProtocol,
        typer.Option(
            "--protocol",
            help="classic (evenlag's clients) or consumer (KIP-848: confluent-kafka, assigned by a broker "
            "with evenlag's plug-in; needs a JDK).",
        ),
    ] = DemoProtocol.CLASSIC,
    client: Annotated[
        Literal["python", "java"],
        typer.Option(
            "--client",
            help="Consumers of a classic group: python, or java (needs a JDK and evenlag's sources).",
        ),
    ] = "python",
) -> None:
    """Run everything once: a real broker, a skewed group, two runs of the DAG by Airflow, a report page.

    Needs a JDK 17 or newer and takes a few minutes. Fails if the lag does not fall or a record is lost.
    """
    if protocol is DemoProtocol.CONSUMER and client == "java":
        problem = "is for the classic protocol: leave --protocol consumer out"
        raise typer.BadParameter(problem, param_hint="--client java")
    needed = EXTRAS | ({"kip848": {"confluent_kafka"}} if protocol is DemoProtocol.CONSUMER else {})
    missing = sorted(extra for extra, modules in needed.items() if None in map(find_spec, modules))
    if missing:
        raise JobError(f"the demo needs more of evenlag: pip install 'evenlag[{','.join(missing)}]'")
    arguments = job_arguments(folder=folder, protocol=protocol, client=client, keep=keep_going)
    # Signals and the exit code are the demo's. It need not be importable here: the wheel does not install a
    # name as common as `sandbox` in site-packages.
    sys.stdout.flush()
    sys.stderr.flush()
    path = os.pathsep.join(filter(None, (str(bundle_root()), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "sandbox.demo", *arguments]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": path})  # noqa: S606  # our own interpreter
