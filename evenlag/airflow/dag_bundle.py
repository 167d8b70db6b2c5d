"""Location of the DAG files and the sandbox: next to the sources, or as data in the wheel."""

from __future__ import annotations

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]


def bundle_root() -> Path:
    """Return the folder that contains ``dags`` and ``sandbox``."""
    bundled = _HERE / "_bundled"
    return bundled if bundled.is_dir() else _HERE.parent


def add_bundle_to_path() -> None:
    """Make ``sandbox`` importable: the wheel does not put such a generic name into site-packages."""
    root = str(bundle_root())
    if root not in sys.path:
        sys.path.insert(0, root)
