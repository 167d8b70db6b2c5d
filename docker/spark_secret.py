"""Start a command with Spark's secret in a file of its own: ``spark_secret.py FOLDER COMMAND …``.

Spark reads the secret of a standalone cluster from its settings only. It is in the container's environment,
in ``EVENLAG_SPARK_CLUSTER_SECRET``. The command gets it in a file that only its user may read;
``SPARK_CONF_DIR`` names the folder. Files that the command and its children create are open to their group
(the lake's), never to others.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "EVENLAG_SPARK_CLUSTER_SECRET"
_CONF_DIR: Final = "SPARK_CONF_DIR"
_LEAST_LENGTH: Final = 32
_SETTINGS: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # It listens on a port of its own, without authentication.
    "spark.master.rest.enabled": "false",
    # The master's page shows applications; it must not end them.
    "spark.ui.killEnabled": "false",
}


def write_settings(folder: Path, secret: str, base: Path | None) -> None:
    """Write ``spark-defaults.conf`` for this user only.

    Parameters
    ----------
    folder
        Created if it does not exist.
    secret
        The secret of the cluster.
    base
        Folder with further settings; None if there are none.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [f"{name} {value}" for name, value in {**_SETTINGS, "spark.authenticate.secret": secret}.items()]
    for name in ("spark-defaults.conf", "log4j2.properties"):
        given = base / name if base else None
        text = given.read_text(encoding="utf-8") if given and given.is_file() else ""
        if name == "spark-defaults.conf":
            text += "\n" + "\n".join(lines) + "\n"
        fresh = folder / f"{name}.{os.getpid()}"
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        if text:
            fresh.replace(folder / name)
        else:
            fresh.unlink()


def main() -> None:
    """Write the settings, then become the command."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    secret = os.environ.pop(VARIABLE, "")
    if len(secret) < _LEAST_LENGTH:
        sys.exit(
            f"error: {VARIABLE} has fewer than {_LEAST_LENGTH} characters: docker/configure.py makes one"
        )
    given = os.environ.get(_CONF_DIR)
    write_settings(folder, secret, Path(given) if given else None)
    os.environ[_CONF_DIR] = str(folder)
    os.umask(0o007)
    os.execvp(command[0], command)  # noqa: S606  # the last step of this script


if __name__ == "__main__":
    main()
