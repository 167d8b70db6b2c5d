"""Make Spark's JVM start and warm up faster: an archive of its classes, trained once per Java and per Spark.

A JVM that submits one short job spends most of its time on loading and verifying some 17,000 classes. Java's
class data sharing keeps them ready in a file: measured here, a session with four small Delta writes took 22 s
of processor time instead of 33 s. A demo starts four such JVMs.

The archive is an optimisation only: with another Java, other jars or no file at all, Java loads classes as
ever, and says nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from evenlag.policy.environment import LAKE_VARIABLE
from sandbox.jars import cache_dir, java_command, spark_jars
from sandbox.processes import start_process, stop_process
from spark_jobs.runtime.session import EMBEDDED_CONF

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
    """Whether an archive may be trained: ``EVENLAG_SPARK_ARCHIVE=off`` spares a demo that runs only once."""
    return os.environ.get(ARCHIVE_VARIABLE, "on") != "off"


def archive_file() -> Path:
    """Where the archive for this Java and this Spark is, or will be."""
    version = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False).stderr
    spec = importlib.util.find_spec("pyspark")
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar")) if spec and spec.origin else []
    text = "\n".join([version, *(str(path) for path in [*jars, *spark_jars()])])
    return cache_dir() / f"spark-{hashlib.sha256(text.encode()).hexdigest()[:12]}.jsa"


def submit_environment(folder: Path) -> dict[str, str]:
    """Variables that make any spark-submit on this machine embedded, quiet and, with an archive, fast.

    What belongs to the machine stands beside Spark, not in the DAG: the DAG knows no master. A conf folder
    would do as well, but on the class path it shuts class data sharing out.

    Parameters
    ----------
    folder
        Where the settings of its log go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log_settings = folder / "spark-log4j2.properties"
    log_settings.write_text(_LOG4J, encoding="utf-8")
    archive = archive_file()
    use = [f"-XX:SharedArchiveFile={archive}", _QUIET] if archive.is_file() else []
    return _environment([*use, f"-Dlog4j2.configurationFile={log_settings.resolve().as_uri()}"])


def train(policy: Path, cluster: str, folder: Path) -> bool:
    """Make the archive from two cycles of the real jobs against a cluster, on a lake that is thrown away.

    Nothing is published. Returns whether the archive is there afterwards; without it all is only slower.
    """
    archive = archive_file()
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / "spark.jsa"
    environment = _environment([f"-XX:ArchiveClassesAtExit={fresh.resolve()}", _QUIET])
    environment |= {LAKE_VARIABLE: str((folder / "lake").resolve())}
    with (folder / "training.log").open("ab") as log:
        process = start_process(
            [sys.executable, "-m", "sandbox.spark.jvm_class_archive_training", str(policy), cluster],
            log=log,
            env={**os.environ, **environment, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )
        try:
            process.wait(_TRAINING_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            stop_process(process)
    if process.returncode != 0 or not fresh.is_file():
        return False
    # Beside its place first: the demo's folder may be on another disk, and half a file must not be found.
    beside = archive.with_suffix(".new")
    shutil.move(fresh, beside)
    beside.replace(archive)
    return True


def _environment(options: list[str]) -> dict[str, str]:
    settings = [f"-D{name}={value}" for name, value in EMBEDDED_CONF.items() if name != _JVM_OPTIONS]
    return {
        "SPARK_SUBMIT_OPTS": " ".join([EMBEDDED_CONF.get(_JVM_OPTIONS, ""), *options, *settings]),
        # On the JVM's own class path Delta's classes get into the archive too.
        "SPARK_DIST_CLASSPATH": os.pathsep.join(str(path) for path in spark_jars()),
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # The driver's; what executors run is theirs to say.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
