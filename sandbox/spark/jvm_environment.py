"""The environment of the JVMs that the sandbox starts: embedded, quiet, with Delta on their class path."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from sandbox.jars import spark_jars
from spark_jobs.runtime.session_conf import EMBEDDED_CONF, JVM_OPTIONS_KEY

if TYPE_CHECKING:
    from pathlib import Path

_LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def jvm_environment(folder: Path) -> dict[str, str]:
    """Return the variables of a JVM on this machine; its log settings are written to the folder.

    Machine settings belong to Spark's environment, not to the DAG, which knows no master.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log_settings = folder / "spark-log4j2.properties"
    log_settings.write_text(_LOG4J, encoding="utf-8")
    options = [
        EMBEDDED_CONF[JVM_OPTIONS_KEY],
        f"-Dlog4j2.configurationFile={log_settings.resolve().as_uri()}",
    ]
    settings = [f"-D{name}={value}" for name, value in EMBEDDED_CONF.items() if name != JVM_OPTIONS_KEY]
    return {
        "SPARK_SUBMIT_OPTS": " ".join([*options, *settings]),
        "SPARK_DIST_CLASSPATH": os.pathsep.join(str(path) for path in spark_jars()),
        "SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # For the driver; executors have their own setting.
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
