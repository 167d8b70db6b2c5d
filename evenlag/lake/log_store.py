"""Log stores: what keeps apart the commits of several Spark drivers to one table.

A commit to a Delta table creates a file that must not exist yet. Delta's default log stores for local folders
and for S3 look for the file first, and coordinate only the threads of one driver: if two drivers commit at
the same time, one commit is lost silently. evenlag's (``log_store/``, a jar) let the storage decide.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.errors import SparkServerError
from evenlag.lake_schemes import SCHEMES, scheme_of
from evenlag.spark_installation import LOG_STORE_JAR, has_log_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlag.policy.settings import Policy

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
    wanted = SCHEMES[scheme].log_store if scheme in SCHEMES else None
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

    Returns Spark's settings; empty if the jar is not among the local ones.
    given: Settings of the user, from :func:`spark_defaults`; they are not replaced.
    """
    if not has_log_store() or _CLASS_FOR_ALL in given:
        return {}
    wanted = {log_store_key(name): scheme.log_store for name, scheme in SCHEMES.items() if scheme.log_store}
    return {key: value for key, value in wanted.items() if key not in given}


def writing_drivers(policy: Policy) -> tuple[str, ...]:
    """Return the DAGs whose Spark tasks write to a policy's lake; each may run in parallel with all others.

    The cycles of one cluster run one after another, those of two clusters do not. The audit, the maintenance
    of the lake and the comparison each process one cluster after another.
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

    Returns values by name; empty if there is no file.
    environ: The environment; that of the process if None.
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
