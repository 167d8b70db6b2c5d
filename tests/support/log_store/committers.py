"""Several JVMs that commit through a log store at the same time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sandbox.jars import spark_jars
from sandbox.java_tools import compile_java, java_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_SOURCE = Path(__file__).parent / "Committer.java"
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def class_path(*more: str) -> str:
    """Return the class path of Spark and Delta, as the program needs it."""
    import pyspark

    spark = str(Path(pyspark.__file__).parent / "jars" / "*")
    return os.pathsep.join([*more, *map(str, spark_jars()), spark])


class Committer:
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
        self._process = subprocess.Popen(
            [*command, log_store, log, name, str(num_commits), *settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | dict(environ or {}),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def await_ready(self) -> None:
        """Wait until it is ready to begin."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def begin(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def num_refused(self) -> int:
        """Wait for its end; returns how often another writer was first."""
        assert self._process.stdout is not None
        refused = int(self._process.stdout.readline())
        assert self._process.wait(600) == 0
        return refused


def compile_committer(classes: Path) -> Path:
    """Compile the program into a folder, and return the folder."""
    compile_java([_SOURCE], classes, class_path())
    return classes
