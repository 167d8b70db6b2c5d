"""Spark settings of every session, of an embedded driver, and by the size of a job."""

from typing import Final

JVM_OPTIONS_KEY: Final = "spark.driver.extraJavaOptions"
CLASS_PATH_KEY: Final = "spark.driver.extraClassPath"

# Settings of every session. They are static: set before the session is created.
SESSION_CONF: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}

# Settings of a driver that this process starts.
QUIET_CONF: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}

# With one compiler tier the code cache has 48 MB by default: a session of many cycles fills it, and later
# code runs uncompiled. Below the metaspace's size, loading classes starts no full collection of the heap.
_QUICK_START: Final = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:MetaspaceSize=192m"
)

# The same on a local master: no other machine connects to it, and it runs for seconds.
EMBEDDED_CONF: Final = QUIET_CONF | {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    JVM_OPTIONS_KEY: _QUICK_START,
}

# On a local master a cycle's tables are small, and most of the cost is Spark's overhead: compiling code for
# each query, a job for each shuffle, 50 tasks to replay a Delta log. Measured in docs/adr/0007.
LOCAL_CONF: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "2",
}

# The same for a job with many rows: compiling is worth its cost, and so are more partitions than cores, so
# that a core that has finished one takes another. No table is broadcast because it is small on disk: the
# driver collects broadcast tables, and its memory must not grow with the rows.
LARGE_LOCAL_CONF: Final = {
    "spark.sql.shuffle.partitions": "16",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.databricks.delta.snapshotPartitions": "2",
}

# With a limit in bytes, Spark measures all vectors of an Arrow batch before each row, of lists each element:
# two thirds of the processor time of 300,000 rows of lag. For rows of known size.
UNMEASURED_BATCHES: Final = {"spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1)}

# Settings by which a server of spark_jobs.connect_server describes itself to its clients.
SERVER_CODE_KEY: Final = "spark.evenlag.server.code"
SERVER_PARALLELISM_KEY: Final = "spark.evenlag.server.parallelism"


def is_local(master: str) -> bool:
    """Whether a master runs threads in the driver's JVM, without other executors."""
    return master == "local" or master.startswith("local[")
