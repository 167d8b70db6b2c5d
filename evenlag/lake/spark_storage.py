"""Spark's settings for the storage of a lake: the log stores, and S3 as deltalake's variables describe it.

One environment configures both engines. deltalake reads ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and
``AWS_VIRTUAL_HOSTED_STYLE_REQUEST`` itself; for S3A they become settings here. Credentials never do: both
engines look for them in the environment, or ask the machine.

A commit to a Delta table creates a file that must not exist yet. Delta's default log stores for local folders
and for S3 look for the file first, and coordinate only the threads of one driver: if two drivers commit at
the same time, one commit is lost silently. evenlag's (``log_store/``, a jar) let the storage decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.errors import SparkServerError
from evenlag.lake_schemes import LOG_STORES, scheme_of
from evenlag.private_files import OWNER_ONLY
from evenlag.spark_installation import LOG_STORE_JAR, has_log_store

if TYPE_CHECKING:
    from evenlag.policy.settings import Policy


# The more specific variable first, as AWS's clients read them.
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HOST_STYLE_VARIABLE: Final = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"

_S3A_CONF: Final = {
    # So that a root has one name: deltalake takes s3: and s3a:, Hadoop only the latter.
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    # Names of data files are unique: nobody looks whether they, or folders named so, are there. A commit is
    # a put on condition, whatever this says.
    "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
}


# Hadoop sets the mode of each file that it creates, whatever the umask of its process is.
UMASK_KEY: Final = "spark.hadoop.fs.permissions.umask-mode"


def lake_storage_conf(environ: Mapping[str, str] | None = None, umask: int = OWNER_ONLY) -> dict[str, str]:
    """Return Spark's settings for the lake's storage but those of ``spark-defaults.conf``; no secrets."""
    environ = os.environ if environ is None else environ
    given = spark_defaults(environ)
    wanted = _S3A_CONF | _s3_address(environ) | {UMASK_KEY: f"{umask:03o}"}
    return log_store_conf(given) | {key: value for key, value in wanted.items() if key not in given}


def _s3_address(environ: Mapping[str, str]) -> dict[str, str]:
    conf = {}
    region = next((environ[name] for name in _REGION_VARIABLES if environ.get(name)), None)
    if region is not None:
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    endpoint = next((environ[name] for name in _ENDPOINT_VARIABLES if environ.get(name)), None)
    if endpoint is not None:
        conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
        # deltalake puts the bucket into the path by default.
        has_host_style = environ.get(_HOST_STYLE_VARIABLE, "").lower() == "true"
        conf["spark.hadoop.fs.s3a.path.style.access"] = "false" if has_host_style else "true"
    return conf


# By Spark's own manager of checkpoint files, the checksum file of a commit to S3 costs 21 requests. This one
# puts it, and leaves files of other schemes to Spark's.
_CHECKSUM_FILES: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": "evenlag.storage.S3CheckpointFileManager"
}
# The older setting applies to every scheme; Delta rejects both together.
_CLASS_FOR_ALL: Final = "spark.delta.logStore.class"
# Delta's own log stores for one driver.
_SINGLE_DRIVER: Final = frozenset(
    {
        "io.delta.storage.LocalLogStore",
        "io.delta.storage.S3SingleDriverLogStore",
        "org.apache.spark.sql.delta.storage.LocalLogStore",
        "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore",
    }
)


def log_store_key(scheme: str) -> str:
    """Return the name of Spark's setting for the log store of a scheme."""
    return f"spark.delta.logStore.{scheme}.impl"


def log_store_problem(lake: str, setting: Callable[[str], str | None]) -> str | None:
    """Return why Spark's commits to a lake may be lost; None if they are not.

    Examples
    --------
    >>> log_store_problem("hdfs://nn/lake", {}.get) is None
    True
    >>> log_store_problem("/srv/lake", {}.get).partition(" in ")[0]
    'Spark has no log store that keeps several drivers apart for /srv/lake: set spark.delta.logStore.file.impl=evenlag.storage.HardLinkLogStore'
    """  # noqa: E501  # the message is one line
    scheme = scheme_of(lake)
    wanted = LOG_STORES.get(scheme)
    if wanted is None:
        return None
    given = setting(log_store_key(scheme)) or setting(_CLASS_FOR_ALL)
    # Any other that is set was chosen deliberately.
    if given is not None and given not in _SINGLE_DRIVER:
        return None
    return (
        f"Spark has no log store that keeps several drivers apart for {lake}: "
        f"set {log_store_key(scheme)}={wanted} in the driver's or server's spark-defaults.conf, and put the "
        f"jar {LOG_STORE_JAR} among its jars (docs/reference/lake-locations.md)"
    )


def check_log_store(lake: str, setting: Callable[[str], str | None]) -> None:
    """Refuse a lake whose commits Spark may lose."""
    problem = log_store_problem(lake, setting)
    if problem is not None:
        raise SparkServerError(problem)


def log_store_conf(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by which a session commits through evenlag's log stores, if it has their jar.

    given: Settings of the user, from :func:`spark_defaults`; they are not replaced.
    """
    if not has_log_store() or _CLASS_FOR_ALL in given:
        return {}
    wanted = {log_store_key(scheme): store for scheme, store in LOG_STORES.items() if store} | _CHECKSUM_FILES
    return {key: value for key, value in wanted.items() if key not in given}


def writing_drivers(policy: Policy) -> tuple[str, ...]:
    """Return the DAGs whose Spark tasks write to a policy's lake; each may run in parallel with all others.

    The cycles of one cluster run one after another; the other DAGs process one cluster after another.
    """
    names = list(dict.fromkeys(map(policy.cycle_dag, policy.clusters)))
    names += ["assignment_audit", "table_maintenance"]
    if policy.comparison is not None:
        names.append("plan_comparison")
    return tuple(names)


def spark_defaults(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Read ``spark-defaults.conf`` in ``SPARK_CONF_DIR``, else in ``conf`` under ``SPARK_HOME``."""
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
