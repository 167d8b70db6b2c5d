"""Several JVMs that commit through a log store at the same time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.jars import spark_jars
from sandbox.java_tools import compile_java, java_command
from tests.support.java_program import JavaProgram

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOURCE = Path(__file__).parent / "Committer.java"
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def class_path(*more: str) -> str:
    """Return the class path of Spark and Delta, as the program needs it."""
    import pyspark

    spark = str(Path(pyspark.__file__).parent / "jars" / "*")
    return os.pathsep.join([*more, *map(str, spark_jars()), spark])


class Committer(JavaProgram):
    """A JVM with a log store, which waits for a signal to commit.

    classes: Folder of the compiled program, see :func:`compile_committer`.
    log: Address of the table's log.
    name: Its transactions are ``name/0``, ``name/1`` and so on.
    num_commits: How many.
    conf: Hadoop's settings.
    environ: Further variables of its environment.
    """

    def __init__(
        self,
        classes: Path,
        log_store: str,
        log: str,
        name: str,
        num_commits: int,
        *,
        conf: Mapping[str, str] | None = None,
        jars: tuple[str, ...] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        settings = [f"{key}={value}" for key, value in (conf or {}).items()]
        command = [java_command(), *_OPTIONS, "-cp", class_path(str(classes), *jars), "Committer"]
        super().__init__(
            [*command, log_store, log, name, str(num_commits), *settings], os.environ | dict(environ or {})
        )

    def await_ready(self) -> None:
        """Wait until it is ready to begin."""
        assert self._answers.readline() == "ready\n"

    def begin(self) -> None:
        """Let it begin."""
        self._tell("")

    def num_refused(self) -> int:
        """Wait for its end; returns how often another writer was first."""
        refused = int(self._answers.readline())
        assert self._process.wait(600) == 0
        return refused


def compile_committer(classes: Path) -> Path:
    """Compile the program into a folder, and return the folder."""
    compile_java([_SOURCE], classes, class_path())
    return classes
