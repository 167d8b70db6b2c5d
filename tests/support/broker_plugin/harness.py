"""The plug-in in a JVM of its own: questions go in and answers come out, a JSON object a line."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.jars import broker_classpath
from sandbox.java_tools import compile_java, find_tool
from tests.support.java_program import JsonProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Harness", "as_base64"]

_QUICK_START = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SOURCES = sorted(Path(__file__).parent.glob("*.java"))


def as_base64(data: bytes | None) -> str | None:
    """Return bytes as the harness takes them; None stays."""
    return None if data is None else base64.b64encode(data).decode("ascii")


class Harness(JsonProgram):
    """The Java program, which sees the plug-in's private parts.

    classes: An empty folder for the program's own classes.
    kafka: The version of Kafka, if not the sandbox's own.
    """

    def __init__(
        self,
        jar: Path,
        classes: Path,
        *,
        options: Sequence[str] = _QUICK_START,
        kafka: str | None = None,
    ) -> None:
        path = os.pathsep.join([str(jar), broker_classpath(kafka)])
        compile_java(_SOURCES, classes, path)
        level = "-Dorg.slf4j.simpleLogger"
        log = (f"{level}.defaultLogLevel=off", f"{level}.log.evenlag.flood=info")
        self._command = [find_tool("java"), *options, *log, "-cp", os.pathsep.join([str(classes), path])]
        super().__init__([*self._command, "evenlag.broker.Harness"])

    def java_member(self) -> list[str]:
        """Return the command of a consumer process of Java's own client, for a `Fleet`."""
        return [*self._command, "evenlag.broker.JavaMember"]
