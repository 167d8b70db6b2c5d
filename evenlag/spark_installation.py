"""The jars that Spark needs for Delta, as set-up fetched them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

JARS_VARIABLE: Final = "EVENLAG_JARS"
_ROOT: Final = Path(__file__).resolve().parents[1]


def jars_folder() -> Path:
    """Where set-up keeps the jars: ``$EVENLAG_JARS``, the checkout's ``.cache/jars``, or the user's cache."""
    if folder := os.environ.get(JARS_VARIABLE):
        return Path(folder)
    if (_ROOT / "pyproject.toml").is_file():
        return _ROOT / ".cache" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenlag" / "jars"


def delta_jars() -> list[str]:
    """Local paths of Delta's jars, as set-up fetched them.

    Returns
    -------
    list of str
        Sorted paths under ``spark`` of :func:`jars_folder`; empty when there are none (then the cluster's
        own class path has to hold Delta).
    """
    return sorted(str(jar) for jar in (jars_folder() / "spark").glob("*.jar"))
