"""Prepare Airflow: write the logins, then migrate the database; returns what ``airflow db migrate`` returns.

It may run any number of times; a new password or a newer Airflow takes effect by running it again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def write_passwords(path: Path, users: str, password: str) -> None:
    """Write the file of Airflow's simple auth manager, for its own user only.

    Parameters
    ----------
    users
        ``name:role``, as in Airflow's setting; the first one gets the password.
    """
    name = users.partition(",")[0].partition(":")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps({name: password}), encoding="utf-8")
    fresh.replace(path)


if __name__ == "__main__":
    settings = os.environ
    write_passwords(
        Path(settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]),
        settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"],
        settings["AIRFLOW_PASSWORD"],
    )
    os.execvp("airflow", ["airflow", "db", "migrate"])  # noqa: S606  # the last step of this script
