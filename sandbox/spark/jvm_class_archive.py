"""Make Spark's JVM start faster with an archive of its classes, trained once per Java and Spark version.

A JVM that runs one short job spends most of its time on loading and verifying some 17,000 classes. Java's
class data sharing keeps them ready in a file. Measured: a session with four small Delta writes took 22 s of
processor time instead of 33 s.

There are two: one of ``spark-submit``'s drivers, one of the Spark Connect server, which loads other classes.
Both have Delta on the JVM's own class path; classes that Spark loads later from added jars are not kept.

The archive is only an optimization: with another Java, other jars or no file, Java silently loads the classes
as usual.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, Literal, TypeAlias

from evenlag.policy.environment import LAKE_VARIABLE
from evenlag.private_files import is_safe_from_others
from sandbox.jars import cache_dir, java_command, spark_jars
from sandbox.processes import start_process, stop_process
from spark_jobs.runtime.session_conf import EMBEDDED_CONF

Kind: TypeAlias = Literal["submit", "connect"]

ARCHIVE_VARIABLE: Final = "EVENLAG_SPARK_ARCHIVE"
_TRAINING_TIMEOUT_S: Final = 300.0
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def is_wanted() -> bool:
    """Whether an archive may be trained: ``EVENLAG_SPARK_ARCHIVE=off`` skips it for a demo that runs once."""
    return os.environ.get(ARCHIVE_VARIABLE, "on") != "off"


def archive_file(kind: Kind) -> Path:
    """Path of the archive for this Java and this Spark, whether it exists or not."""
    version = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False).stderr
    spec = importlib.util.find_spec("pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar")) if spec and spec.origin else []
    text = "\n".join([version, *(str(path) for path in [*jars, *spark_jars()])])
    return cache_dir() / f"spark-{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsa"


def environment(folder: Path, *, kind: Kind) -> dict[str, str]:
    """Return variables that make a JVM on this machine embedded, quiet and, with an archive, fast.

    Machine settings belong to Spark's environment, not to the DAG, which knows no master. A conf folder would
    work as well, but on the class path it disables class data sharing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log_settings = folder / "spark-log4j2.properties"
    log_settings.write_text(_LOG4J, encoding="utf-8")
    archive = archive_file(kind)
    use = [f"-XX:SharedArchiveFile={archive}", _QUIET] if is_safe_from_others(archive) else []
    return _environment([*use, f"-Dlog4j2.configurationFile={log_settings.resolve().as_uri()}"])


def train(policy: Path, cluster: str, folder: Path, *, kind: Kind) -> bool:
    """Train an archive with two cycles of the real jobs against a cluster, on a temporary lake.

    Nothing is published.

    Returns whether the archive exists now; without it, JVMs only start slower.
    """
    archive = archive_file(kind)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = (folder / f"spark-{kind}.jsa").resolve()
    settings = _environment([f"-XX:ArchiveClassesAtExit={fresh}", _QUIET])
    module = "sandbox.spark.jvm_class_archive_training"
    with (folder / "training.log").open("ab") as log:
        process = start_process(
            [sys.executable, "-m", module, str(policy), cluster, kind, str(folder.resolve())],
            log=log,
            env={
                **os.environ,
                **settings,
                LAKE_VARIABLE: str((folder / "lake").resolve()),
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            },
        )
        try:
            process.wait(_TRAINING_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            stop_process(process)
    if process.returncode != 0 or not fresh.is_file():
        return False
    # Copy and rename: the demo's folder may be on another disk, and no partial file may be found.
    beside = archive.with_suffix(".new")
    shutil.move(fresh, beside)
    beside.replace(archive)
    return True


def _environment(options: list[str]) -> dict[str, str]:
    settings = [f"-D{name}={value}" for name, value in EMBEDDED_CONF.items() if name != _JVM_OPTIONS]
    return {
        "SPARK_SUBMIT_OPTS": " ".join([EMBEDDED_CONF.get(_JVM_OPTIONS, ""), *options, *settings]),
        # On the JVM's own class path, Delta's classes are archived, too.
        "SPARK_DIST_CLASSPATH": os.pathsep.join(str(path) for path in spark_jars()),
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # For the driver; executors have their own setting.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
