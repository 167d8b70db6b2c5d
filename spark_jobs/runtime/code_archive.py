"""evenlag's code for executors, which have Spark, numpy, pyarrow, pandas and kafka-python, but no evenlag.

A session on a cluster sends the code as a zip of this process's modules, so that driver and executors run the
same code. A server of :mod:`spark_jobs.connect_server` has the code installed: only its hash is compared.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evenlag.errors import JobError

if TYPE_CHECKING:
    from pyspark import SparkContext

PACKAGES: Final = ("assignor_core", "evenlag", "spark_jobs")
# A fixed time: the same files result in the same archive.
_TIMESTAMP: Final = (1980, 1, 1, 0, 0, 0)


def ship_code(context: SparkContext) -> None:
    """Send the code to all current and later executors of a session; call it once per session."""
    from pyspark import SparkFiles

    # Spark's folder of this session, which it deletes with the session.
    folder = Path(SparkFiles.getRootDirectory()) / "code"
    folder.mkdir(exist_ok=True)
    context.addPyFile(str(build_archive(folder)))


def code_hash() -> str:
    """Return the hash of the modules that this process runs, to compare with those of a server."""
    digest = hashlib.sha256()
    for name, data in _sources():
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def build_archive(folder: Path) -> Path:
    """Write a zip of the packages that executors import, named by the hash of its content."""
    fresh = folder / "evenlag.new"
    with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _sources():
            archive.writestr(zipfile.ZipInfo(name, _TIMESTAMP), data, zipfile.ZIP_DEFLATED)
    digest = hashlib.sha256(fresh.read_bytes()).hexdigest()[:12]
    return fresh.replace(folder / f"evenlag-{digest}.zip")


def _sources() -> Iterator[tuple[str, bytes]]:
    """All modules that executors may import, as (path in the archive, content), in order."""
    for package in PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise JobError(f"{package} is not installed: pip install 'evenlag[spark]'")
        root = Path(spec.submodule_search_locations[0])
        if not root.is_dir():
            raise JobError(f"{root} is no folder: give evenlag to the driver installed, not by --py-files")
        for file in sorted(root.rglob("*.py")):
            yield f"{package}/{file.relative_to(root).as_posix()}", file.read_bytes()
