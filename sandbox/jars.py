"""Fetch the jars of Delta Lake for Spark and of the Kafka broker, once, and build evenlag's log stores.

``python -m sandbox.jars`` fills ``<cache>/spark`` and ``<cache>/kafka``. The cache is the folder in
``EVENLAG_JARS``, or ``.cache/jars`` in the checkout. ``jars.sha256`` lists the jars and their SHA-256: a
jar with other content is refused, when it is fetched and at each start that puts it on a class path. What
only some tests or a benchmark need are separate sets, each with a list and a folder of its own (a
configuration of ``ivy.xml``), fetched at their first use.

Spark's Ivy (a jar of the pyspark package) fetches them, with its own settings: Ivy's default resolver chain
looks into the user's Maven folder first, where incomplete downloads make it fail.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from evenlag.errors import JarError
from evenlag.spark_installation import LOG_STORE_JAR, jars_folder
from evenlag.verified_jars import recorded_hashes, verify_jars
from sandbox.java_tools import JarsError, build_jar, java_command, version

_HERE = Path(__file__).resolve().parent
_IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
OWN_KAFKA = "4.3"
"""Version of the sandbox's broker."""
OTHER_KAFKAS = ("3.9", "4.0", "4.1", "4.2", "4.4")
"""Versions of the broker, besides the sandbox's own, on which evenlag is tested; ascending."""
# Whatever the umask: a jar that is built here is refused if others may replace it.
_FOLDER_MODE = 0o755
_LOG_STORE_SOURCES = _HERE.parent / "log_store" / "src"


def cache_dir() -> Path:
    """Return the folder with ``spark/`` and ``kafka/``; the jobs look for Delta's jars there, too."""
    return jars_folder().expanduser().resolve()


def spark_jars() -> list[Path]:
    """Return the jars for ``spark.jars``, Delta's and evenlag's log stores; get all that are missing."""
    delta = delta_jars()
    return _verified([ensure_log_store(cache_dir() / "spark"), *delta])


def delta_jars() -> list[Path]:
    """Return Delta's jars; fetch all jars first if one is missing."""
    return _set_of_jars("jars", "spark/")


def s3_jars() -> list[Path]:
    """Return the jars by which Spark reads and writes ``s3a:``, fetched if missing."""
    return _set_of_jars("s3")


def broker_classpath(kafka: str | None = None) -> str:
    """Return the broker's class path for ``java -cp``; fetch all jars first if one is missing.

    kafka: One of `OTHER_KAFKAS`; None for the sandbox's own.
    """
    if kafka is None:
        return os.pathsep.join(map(str, _set_of_jars("jars", "kafka/")))
    return classpath_of(f"kafka_{kafka.replace('.', '_')}")


def classpath_of(which: str) -> str:
    """Return the class path of one list of ``jars.sha256``, fetched if missing.

    which: For example ``client_3_7``, the oldest Kafka client that is supported.
    """
    return os.pathsep.join(map(str, _set_of_jars(which)))


def _set_of_jars(which: str, kind: str = "") -> list[Path]:
    """Return the verified jars of a list, or those of one of its folders; fetch what is missing."""
    cache = ensure_jars(which)
    return _verified([cache / name for name in recorded_hashes(which) if name.startswith(kind)])


def _verified(jars: list[Path]) -> list[Path]:
    try:
        verify_jars(jars)
    except JarError as error:
        raise JarsError(str(error)) from error
    return jars


def ensure_jars(which: str = "jars") -> Path:
    """Fetch missing jars and return the cache folder; does nothing if there are none.

    Concurrent calls are safe: one process fetches, the others wait. A process that is killed leaves no
    partial jar, and the next one continues from its completed downloads.
    """
    cache = cache_dir()
    expected = recorded_hashes(which)
    if not _missing(cache, expected):
        return cache
    cache.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    with _lock(cache / ".lock"):
        if _missing(cache, expected):
            _fetch(cache, which, expected)
    return cache


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
        confs = sorted({jar.partition("/")[0] for jar in expected})
        _run_ivy(new, ivy_cache, confs, num_jars=len(expected))
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
            target.parent.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            (new / jar).replace(target)
    shutil.rmtree(ivy_cache, ignore_errors=True)


def _run_ivy(new: Path, ivy_cache: Path, confs: list[str], *, num_jars: int) -> None:
    (new / "ivysettings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    shutil.copy(_HERE / "ivy.xml", new)
    command = [
        *(java_command(), "-cp", str(max(_pyspark_jars().glob("ivy-*.jar"))), "org.apache.ivy.Main"),
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


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsError("pyspark is not installed, whose jars are needed here: pip install 'evenlag[spark]'")
    return Path(spec.origin).parent / "jars"


def build_log_store(jar: Path) -> None:
    """Compile the log stores, by which Spark's drivers commit to a lake safely."""
    build_jar(
        jar, _log_store_sources(), os.pathsep.join([*map(str, delta_jars()), str(_pyspark_jars() / "*")])
    )


def ensure_log_store(folder: Path) -> Path:
    """Return the jar of the log stores in a folder; build it if there is none of these sources."""
    text = b"".join(path.read_bytes() for path in _log_store_sources())
    jar = folder / f"{LOG_STORE_JAR}-{version()}-{hashlib.sha256(text).hexdigest()[:12]}.jar"
    if not jar.is_file():
        build_log_store(jar)
    for other in set(folder.glob(f"{LOG_STORE_JAR}-*.jar")) - {jar}:
        # Of other sources: a session takes every jar of this folder.
        other.unlink(missing_ok=True)
    return jar


def _log_store_sources() -> list[Path]:
    return sorted(_LOG_STORE_SOURCES.rglob("*.java"))


def _sha256(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def main() -> int:
    """Fetch and build the jars; the exit code is 1 if that fails."""
    parser = argparse.ArgumentParser(
        description="Fetch the jars of Delta and Kafka, and build the log stores."
    )
    parser.add_argument(
        "--log-store", type=Path, metavar="FOLDER", help="write only the jar of the log stores, to a folder"
    )
    folder = parser.parse_args().log_store
    try:
        if folder is not None:
            jar = folder / f"{LOG_STORE_JAR}-{version()}.jar"
            build_log_store(jar)
            print(jar)
            return 0
        cache, log_store = ensure_jars(), spark_jars()[0]
    except JarsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"jars: all {len(recorded_hashes('jars'))} are in {cache}, and {log_store.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
