"""Location of Delta's jars and of evenlag's log stores."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from evenlag.bundle import bundle_root
from evenlag.errors import JobError

JARS_VARIABLE: Final = "EVENLAG_JARS"
LOG_STORE_JAR: Final = "evenlag-log-store"
"""What the name of the jar with evenlag's log stores begins with."""
_ROOT: Final = Path(__file__).resolve().parents[1]


def jars_folder() -> Path:
    """Return ``$EVENLAG_JARS``, else ``.cache/jars`` of the checkout, else the folder in the user's cache."""
    if folder := os.environ.get(JARS_VARIABLE):
        return Path(folder)
    if (_ROOT / "pyproject.toml").is_file():
        return _ROOT / ".cache" / "jars"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenlag" / "jars"


def delta_jars() -> list[str]:
    """List the local jars of Delta and of evenlag's log stores; without any, Spark's must have Delta."""
    return sorted(str(jar) for jar in (jars_folder() / "spark").glob("*.jar"))


def ensure_delta_jars() -> None:
    """Fetch Delta's jars and build the log stores if they are missing, once for each user.

    The jars are verified by their SHA-256. Progress and errors go to standard error.
    """
    if delta_jars() and has_log_store():
        return
    path = os.pathsep.join(filter(None, (str(bundle_root()), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "sandbox.jars"]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise JobError(
            f"Spark needs the jars of Delta Lake and evenlag's log stores in {jars_folder() / 'spark'}; they "
            f"could not be fetched or built, for the reason above. {JARS_VARIABLE} names another folder"
        )


def has_log_store() -> bool:
    """Whether the jar of evenlag's log stores is among the local jars."""
    return any(Path(jar).name.startswith(f"{LOG_STORE_JAR}-") for jar in delta_jars())
