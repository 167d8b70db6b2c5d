"""The Java client in a JVM of its own: questions go in and answers come out, a JSON object a line."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.jars import broker_classpath, classpath_of
from sandbox.java_tools import compile_java, find_tool
from tests.support.java_program import JsonProgram

__all__ = ["OLDEST", "ClientHarness"]

OLDEST = "3.7"
"""The oldest Kafka client that is supported."""

_QUICK_START = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SOURCES = sorted(Path(__file__).parent.glob("*.java"))
_NO_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


def kafka_classpath(kafka: str | None) -> str:
    """Return the class path of a version of Kafka's client; the harness needs a JSON library besides.

    kafka: `OLDEST`, one of `sandbox.jars.OTHER_KAFKAS`, or None for the sandbox's own.
    """
    if kafka != OLDEST:
        return broker_classpath(kafka)
    own = broker_classpath().split(os.pathsep)
    return os.pathsep.join([classpath_of("client_3_7"), *(path for path in own if "jackson" in path)])


def beside_broker(which: str) -> str:
    """Return the class path of one list of jars with the broker's jars, fetched if missing."""
    return os.pathsep.join([classpath_of(which), broker_classpath()])


class ClientHarness(JsonProgram):
    """The Java program, which sees the client's private parts.

    classes: An empty folder for the program's own classes.
    java: The command that runs it, if not that on the path.
    """

    def __init__(
        self,
        jar: Path,
        classes: Path,
        *,
        kafka: str | None = None,
        options: tuple[str, ...] = _QUICK_START,
        java: str | None = None,
    ) -> None:
        path = os.pathsep.join([str(jar), kafka_classpath(kafka)])
        compile_java(_SOURCES, classes, path)
        command = [java or find_tool("java"), *options, _NO_LOG]
        super().__init__(
            [*command, "-cp", os.pathsep.join([str(classes), path]), "evenlag.client.ClientHarness"]
        )
