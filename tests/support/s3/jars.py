"""The jars of a driver whose lake is on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox.jars import s3_jars, spark_jars

if TYPE_CHECKING:
    from pathlib import Path


def jars_for_s3(folder: Path) -> Path:
    """Make a folder for ``EVENLAG_JARS``: as a user does it, Spark's and S3's jars are all in one."""
    (folder / "spark").mkdir(parents=True)
    for jar in (*spark_jars(), *s3_jars()):
        (folder / "spark" / jar.name).symlink_to(jar)
    return folder
