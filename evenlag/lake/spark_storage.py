"""Spark's settings for the storage of a lake: the log stores, and S3 as deltalake's variables describe it.

One environment configures both engines. deltalake reads ``AWS_ENDPOINT_URL``, ``AWS_REGION`` and
``AWS_VIRTUAL_HOSTED_STYLE_REQUEST`` itself; for S3A they become settings here. Credentials never do: both
engines look for them in the environment, or ask the machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from evenlag.lake.log_store import log_store_conf, spark_defaults
from evenlag.private_files import OWNER_ONLY

if TYPE_CHECKING:
    from collections.abc import Mapping

# The more specific variable first, as AWS's clients read them.
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_HOST_STYLE_VARIABLE: Final = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"

_S3A_CONF: Final = {
    # So that a root has one name: deltalake takes s3: and s3a:, Hadoop only the latter.
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
    # A listing of a log begins at the version that is asked for.
    "spark.hadoop.delta.enableFastS3AListFrom": "true",
}


# Hadoop sets the mode of each file that it creates, whatever the umask of its process is.
UMASK_KEY: Final = "spark.hadoop.fs.permissions.umask-mode"


def lake_storage_conf(environ: Mapping[str, str] | None = None, umask: int = OWNER_ONLY) -> dict[str, str]:
    """Return Spark's settings for the lake's storage, except what ``spark-defaults.conf`` sets.

    Returns values by name; no secrets.
    environ: The environment; that of the process if None.
    """
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
