"""Location of the jars that Spark needs for Delta."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

JARS_VARIABLE: Final = "EVENLAG_JARS"
_ROOT: Final = Path(__file__).resolve().parents[1]


def jars_folder() -> Path:
    """Return the folder of the downloaded jars.

    Returns
    -------
    Path
        ``$EVENLAG_JARS``, else ``.cache/jars`` of the checkout, else the folder in the user's cache.
    """
    if folder := os.environ.get(JARS_VARIABLE):
        return Path(folder)
    if (_ROOT / "pyproject.toml").is_file():
        return _ROOT / ".cache" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenlag" / "jars"


def delta_jars() -> list[str]:
    """List the local jars of Delta.

    Returns
    -------
    list of str
        Sorted paths under ``spark`` of :func:`jars_folder`; empty if there are none (then the class path of
        the Spark cluster must contain Delta).
    """
    return sorted(str(jar) for jar in (jars_folder() / "spark").glob("*.jar"))
