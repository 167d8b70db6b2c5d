"""Location of the DAG files and the sandbox: next to the sources, or as data in the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent


def bundle_root() -> Path:
    """Return the folder that contains ``dags`` and ``sandbox``.

    Returns the bundled data of an installed wheel; otherwise the root of the source tree.
    """
    bundled = _HERE / "_bundled"
    return bundled if bundled.is_dir() else _HERE.parent
