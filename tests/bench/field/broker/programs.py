"""What a block runs: evenlag's jars, the Java sources in ``tests/bench/field/jvm``, and their commands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from sandbox.jars import broker_classpath
from sandbox.java_tools import compile_java, java_command
from sandbox.kafka.jvm_jars import build_client, build_plugin
from tests.bench.field.results import code_hash

_ROOT: Final = Path(__file__).resolve().parents[4]
_SOURCES: Final = (
    _ROOT / "sandbox" / "workload" / "java" / "EventFile.java",
    *sorted((_ROOT / "tests" / "bench" / "field" / "jvm").glob("*.java")),
)
_MODULES: Final = ("block", "kip848", "scaler")
# They share a machine with a broker and with Spark: start fast, and have few threads.
_OPTIONS: Final = (
    *("-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+ExitOnOutOfMemoryError"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass(frozen=True)
class Programs:
    """Built programs.

    plugin: evenlag's plug-in for brokers.
    classes: Of the Java consumers, and of the broker's metrics reporter.
    """

    plugin: Path
    classes: Path
    class_path: str

    @classmethod
    def build(cls, folder: Path) -> Self:
        """Build all into an empty folder."""
        classes = folder / "classes"
        classes.mkdir(parents=True)
        path = os.pathsep.join([str(build_client(folder)), broker_classpath()])
        compile_java(list(_SOURCES), classes, path)
        return cls(build_plugin(folder), classes, os.pathsep.join([str(classes), path]))

    def code(self) -> str:
        """Return a hash of the Java and Python sources that a block runs."""
        sources = [*_SOURCES, *sorted((_ROOT / "jvm").rglob("*.java"))]
        java = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
        return f"{java}-{code_hash(f'{__package__}.{module}' for module in _MODULES)}"

    def consumers(self, spec: Path, *, heap_mb: int) -> list[str]:
        """Return the command of Java consumers."""
        return self._java("FieldConsumers", spec, heap_mb)

    def producer(self, spec: Path) -> list[str]:
        """Return the command of the producer, whose collections of garbage delay no record."""
        return self._java("FieldProducer", spec, 512, collector="Z")

    def _java(self, main: str, spec: Path, heap_mb: int, *, collector: str = "Serial") -> list[str]:
        java = [java_command(), f"-Xmx{heap_mb}m", f"-XX:+Use{collector}GC", *_OPTIONS]
        return [*java, "-cp", self.class_path, f"evenlag.field.{main}", str(spec)]
