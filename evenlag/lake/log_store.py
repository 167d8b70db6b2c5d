"""Whether several Spark drivers can write to a lake safely, for `evenlag doctor`.

A commit to a Delta table creates a file that must not exist yet. HDFS, Azure and Google Cloud Storage
guarantee that. On S3, Delta's default log store coordinates only the threads of one driver: if two drivers
commit at the same time, one commit is lost silently. Delta's log store with DynamoDB coordinates drivers.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlparse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.policy.settings import Policy

DYNAMODB_LOG_STORE: Final = "io.delta.storage.S3DynamoDBLogStore"
_S3_SCHEMES: Final = frozenset({"s3", "s3a", "s3n"})
# Delta's log stores for these schemes detect conflicts of drivers; local folders have evenlag's locks.
_SAFE_SCHEMES: Final = frozenset(
    {"", "file", "hdfs", "viewfs", "abfs", "abfss", "adl", "wasb", "wasbs", "gs", "oci"}
)
# Delta's own log stores for one driver, if the storage cannot refuse to replace a file.
_SINGLE_DRIVER: Final = frozenset(
    {
        "io.delta.storage.S3SingleDriverLogStore",
        "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore",
    }
)


def log_store_problem(lake: str, conf: Mapping[str, str], *, num_drivers: int) -> str | None:
    """Return why several drivers would lose each other's commits; None if they would not.

    Parameters
    ----------
    lake
        Root of the lake, as in the policy.
    conf
        Spark's settings by name, from :func:`spark_defaults`.
    num_drivers
        Number of drivers that write to the lake; see :func:`writing_drivers`.

    Returns
    -------
    str or None
        The problem and its remedy.

    Examples
    --------
    >>> log_store_problem("hdfs://nn/lake", {}, num_drivers=5) is None
    True
    >>> log_store_problem("s3a://bucket/lake", {}, num_drivers=1) is None
    True
    """
    scheme = urlparse(lake).scheme
    if num_drivers <= 1 or scheme in _SAFE_SCHEMES:
        return None
    key = f"spark.delta.logStore.{scheme}.impl"
    # The older setting applies to every scheme; Delta rejects both together.
    given = conf.get(key) or conf.get("spark.delta.logStore.class")
    if scheme in _S3_SCHEMES:
        if given is not None and given not in _SINGLE_DRIVER:
            return None  # Delta's, or one that was chosen deliberately
        return (
            f"{num_drivers} Spark drivers write to {lake}, and Delta's log store for S3 keeps only one "
            f"driver's commits apart: set {key}={DYNAMODB_LOG_STORE} in spark-defaults.conf, with "
            f"spark.{DYNAMODB_LOG_STORE}.ddb.tableName and spark.{DYNAMODB_LOG_STORE}.ddb.region, and put "
            "delta-storage-s3-dynamodb among the jars (docs/cluster.md)"
        )
    if given is None:
        return (
            f"{num_drivers} Spark drivers write to {lake}, and nothing says whether {scheme}: can refuse to "
            f"replace a file: set {key} to a log store that keeps drivers apart, or use another lake"
        )
    return None


def writing_drivers(policy: Policy) -> tuple[str, ...]:
    """Return the DAGs whose Spark tasks write to a policy's lake; each may run in parallel with all others.

    The cycles of one cluster run one after another, those of two clusters do not. The audit, the maintenance
    of the lake and the comparison each process one cluster after another.

    Parameters
    ----------
    policy
        The policy.

    Returns
    -------
    tuple of str
        DAG ids.
    """
    names = [f"lag_rebalance__{cluster}" for cluster in policy.clusters]
    names += ["assignment_audit", "table_maintenance"]
    if policy.comparison is not None:
        names.append("plan_comparison")
    return tuple(names)


def spark_defaults(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Read the settings that `spark-submit` would use from ``spark-defaults.conf``.

    The file is in ``SPARK_CONF_DIR``, else in ``conf`` under ``SPARK_HOME``, as for Spark. Settings in a
    cluster's own files are not found.

    Parameters
    ----------
    environ
        The environment; that of the process if None.

    Returns
    -------
    dict of str to str
        Values by name; empty if there is no file.
    """
    environ = os.environ if environ is None else environ
    folder = environ.get("SPARK_CONF_DIR")
    if folder is None and (home := environ.get("SPARK_HOME")):
        folder = str(Path(home) / "conf")
    file = Path(folder) / "spark-defaults.conf" if folder else None
    if file is None or not file.is_file():
        return {}
    settings = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        # "name value", "name=value" or "name: value", as in any properties file.
        name = text.split("=", 1)[0].split(":", 1)[0].split(None, 1)[0]
        settings[name] = text[len(name) :].strip().removeprefix("=").removeprefix(":").strip()
    return settings
