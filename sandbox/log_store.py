"""Build the log stores, by which Spark's drivers commit to a lake safely.

It needs javac, Delta's jars and those of pyspark. :mod:`sandbox.jars` builds them for the sessions of this
machine, and as a jar to take to another.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path

from evenlag.spark_installation import LOG_STORE_JAR
from sandbox.java_tools import JarsError, compile_java, version, write_jar

__all__ = ["build_log_store", "ensure_log_store", "log_store_name"]

_ROOT = Path(__file__).resolve().parents[1]
_SOURCES = _ROOT / "log_store" / "src"


def build_log_store(jar: Path, delta_jars: list[Path]) -> None:
    """Compile the log stores."""
    class_path = os.pathsep.join([*map(str, delta_jars), str(_pyspark_jars() / "*")])
    with tempfile.TemporaryDirectory() as temporary:
        classes = Path(temporary)
        compile_java(_sources(), classes, class_path)
        write_jar(jar, classes)


def log_store_name() -> str:
    """Return the name of the jar, with evenlag's version."""
    return f"{LOG_STORE_JAR}-{version()}.jar"


def ensure_log_store(folder: Path, delta_jars: list[Path]) -> Path:
    """Return the jar of the log stores in a folder; build it if there is none of these sources."""
    text = b"".join(path.read_bytes() for path in _sources())
    jar = folder / f"{LOG_STORE_JAR}-{version()}-{hashlib.sha256(text).hexdigest()[:12]}.jar"
    if not jar.is_file():
        build_log_store(jar, delta_jars)
    for other in set(folder.glob(f"{LOG_STORE_JAR}-*.jar")) - {jar}:
        # Of other sources: a session takes every jar of this folder.
        other.unlink(missing_ok=True)
    return jar


def _sources() -> list[Path]:
    sources = sorted(_SOURCES.rglob("*.java"))
    if not sources:
        raise JarsError(f"{_SOURCES} has no sources of the log stores: install evenlag again")
    return sources


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError(
            "pyspark is not installed, whose jars the log stores need: pip install 'evenlag[spark]'"
        )
    return Path(spec.origin).parent / "jars"
