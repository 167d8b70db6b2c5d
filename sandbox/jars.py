"""Fetch the jars of Delta Lake for Spark and of the Kafka broker, once.

``python -m sandbox.jars`` fills ``<cache>/spark`` and ``<cache>/kafka``. The cache is the folder in
``EVENLAG_JARS``, or ``.cache/jars`` in the checkout. ``jars.sha256`` lists the jars and their SHA-256: a jar
with other content is refused. Kafka's own tools, which only a benchmark needs, are a separate set
(``<cache>/tools``, ``tools.sha256``), fetched at their first use.

Spark's Ivy (a jar of the pyspark package) fetches them, with its own settings: Ivy's default resolver chain
looks into the user's Maven folder first, where incomplete downloads make it fail.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from evenlag.spark_installation import jars_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HERE = Path(__file__).resolve().parent
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
# `master` is the module alone: Spark has all dependencies of delta-spark except delta-storage.
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="evenlag" module="sandbox"/>
  <configurations><conf name="spark"/><conf name="kafka"/><conf name="tools"/></configurations>
  <dependencies>
    <dependency org="io.delta" name="delta-spark_4.1_2.13" rev="4.4.0" conf="spark->master"/>
    <dependency org="io.delta" name="delta-storage" rev="4.4.0" conf="spark->master"/>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="4.3.0" conf="kafka->default"/>
    <dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="kafka->master"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="4.3.0" conf="tools->master"/>
  </dependencies>
</ivy-module>
"""


# Ivy configurations of each list of jars.
_SETS = {"jars": ("spark", "kafka"), "tools": ("tools",)}


class JarsError(RuntimeError):
    """Raised when jars are missing and cannot be fetched; the message contains a remedy."""


def cache_dir() -> Path:
    """Return the folder with ``spark/`` and ``kafka/``; the jobs look for Delta's jars there, too."""
    return jars_folder().expanduser().resolve()


def spark_jars() -> list[Path]:
    """Return Delta's jars for ``spark.jars``; fetch all jars first if one is missing.

    Raises
    ------
    JarsError
        If jars are missing and cannot be fetched.
    """
    return _jars("spark")


def broker_classpath() -> str:
    """Return the broker's class path for ``java -cp``; fetch all jars first if one is missing.

    Raises
    ------
    JarsError
        If jars are missing and cannot be fetched.
    """
    return os.pathsep.join(str(path) for path in _jars("kafka"))


def tools_classpath() -> str:
    """Return the class path of Kafka's own tools, with the broker's jars; fetch what is missing.

    Raises
    ------
    JarsError
        If jars are missing and cannot be fetched.
    """
    cache = ensure_jars("tools")
    return os.pathsep.join([*(str(cache / name) for name in _expected_hashes("tools")), broker_classpath()])


def java_command() -> str:
    """Return the ``java`` command: from ``JAVA_HOME`` if set, else from the PATH.

    Raises
    ------
    JarsError
        If there is none.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise JarsError(f"no java found {where}: install a Java runtime, version 17 or newer")
    return found


def ensure_jars(which: str = "jars") -> Path:
    """Fetch missing jars and return the cache folder; does nothing if there are none.

    Concurrent calls are safe: one process fetches, the others wait. A process that is killed leaves no
    partial jar, and the next one continues from its completed downloads.

    Parameters
    ----------
    which
        ``jars``, or ``tools`` for Kafka's own tools.

    Raises
    ------
    JarsError
        If Java, Ivy (pyspark) or the network is missing, or a jar has unexpected content.
    """
    cache = cache_dir()
    expected = _expected_hashes(which)
    if not _missing(cache, expected):
        return cache
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / ".lock"):
        if _missing(cache, expected):
            _fetch(cache, which, expected)
    return cache


def _jars(kind: str) -> list[Path]:
    cache = ensure_jars()
    return [cache / name for name in _expected_hashes() if name.startswith(f"{kind}/")]


def _expected_hashes(which: str = "jars") -> dict[str, str]:
    """Return the SHA-256 by jar (``spark/…``, ``kafka/…`` or ``tools/…``), sorted by name."""
    lines = (_HERE / f"{which}.sha256").read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def _missing(cache: Path, expected: Mapping[str, str]) -> list[str]:
    return [name for name in expected if not (cache / name).is_file()]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # the kernel releases it when the process dies
        yield


def _fetch(cache: Path, which: str, expected: Mapping[str, str]) -> None:
    ivy_cache = cache / ".ivy"
    for left in cache.glob(".new-*"):  # left by a killed process
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=cache) as name:
        new = Path(name)
        _run_ivy(new, ivy_cache, _SETS[which], num_jars=len(expected))
        wrong = [jar for jar, digest in expected.items() if _sha256(new / jar) != digest]
        if wrong:
            shutil.rmtree(ivy_cache, ignore_errors=True)
            raise JarsError(
                f"{len(wrong)} of {len(expected)} fetched jars are missing or differ from "
                f"sandbox/{which}.sha256, first: {wrong[0]}. Try again; "
                "if it stays so, the registry serves something else: do not use it."
            )
        for jar in expected:
            target = cache / jar
            target.parent.mkdir(exist_ok=True)
            (new / jar).replace(target)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _run_ivy(new: Path, ivy_cache: Path, confs: tuple[str, ...], *, num_jars: int) -> None:
    (new / "ivysettings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    (new / "ivy.xml").write_text(_IVY_MODULE, encoding="utf-8")
    command = [
        *(java_command(), "-cp", str(_ivy_jar()), "org.apache.ivy.Main"),
        *("-settings", str(new / "ivysettings.xml"), "-ivy", str(new / "ivy.xml"), "-cache", str(ivy_cache)),
        *("-confs", *confs, "-types", "jar", "bundle"),
        *("-retrieve", f"{new}/[conf]/[organisation]_[artifact]-[revision].[ext]"),
    ]
    started = time.monotonic()
    log = ivy_cache.parent / "fetch.log"
    with (
        log.open("w", encoding="utf-8") as sink,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        try:
            num_done = _follow(process, sink, num_jars)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        tail = "\n".join(f"  {line}" for line in log.read_text(encoding="utf-8").splitlines()[-12:])
        raise JarsError(f"fetching the jars failed (is the network there? all of it: {log}):\n{tail}")
    print(f"\njars: {num_done} fetched in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _follow(process: subprocess.Popen[str], sink: TextIO, num_jars: int) -> int:
    """Copy Ivy's output to the log, show the progress, and return the number of fetched jars."""
    num_done = 0
    one_line = sys.stderr.isatty()
    print("jars: asking for the list", end="" if one_line else "\n", file=sys.stderr, flush=True)
    for line in process.stdout or ():
        sink.write(line)
        if "[SUCCESSFUL ]" in line:
            num_done += 1
            if one_line:
                print(f"\rjars: {num_done} of {num_jars}        ", end="", file=sys.stderr, flush=True)
    return num_done


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    origin = spec.origin if spec else None
    found = sorted(Path(origin).parent.glob("jars/ivy-*.jar")) if origin else []
    if not found:
        raise JarsError("pyspark is not installed, whose Ivy fetches the jars: pip install 'evenlag[spark]'")
    return found[-1]


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def main() -> int:
    """Fetch the jars; the exit code is 1 if that fails."""
    try:
        cache = ensure_jars()
    except JarsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"jars: all {len(_expected_hashes())} are in {cache}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
