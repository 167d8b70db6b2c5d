"""Where the DAG files and the sandbox are: beside the sources, or as data in the wheel."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]


def bundle_root() -> Path:
    """Return the folder that holds ``dags`` and ``sandbox``."""
    bundled = _HERE / "_bundled"
    return bundled if bundled.is_dir() else _HERE.parent
