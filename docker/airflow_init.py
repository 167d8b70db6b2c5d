"""Prepare Airflow: write the users' passwords, then migrate the database.

The exit code is that of ``airflow db migrate``. It may run any number of times; a new password or a newer
Airflow takes effect by running it again.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

LEAST_LENGTH = 16


def read_passwords(users: str, passwords: str) -> dict[str, str]:
    """Return the password of each user.

    Parameters
    ----------
    users
        ``name:role`` each, with commas, as in Airflow's setting.
    passwords
        ``name:password`` each, with commas.

    Raises
    ------
    ValueError
        If a user has no password, or a short one, or that of another user; or a password has no user.
    """
    names = [user.partition(":")[0].strip() for user in users.split(",")]
    found = {name.strip(): word for name, _, word in (pair.partition(":") for pair in passwords.split(","))}
    if set(found) != set(names) or len(names) != len(set(names)):
        raise ValueError(
            "AIRFLOW_PASSWORDS needs NAME:PASSWORD for each user of AIRFLOW_USERS, once; it has "
            f"{', '.join(sorted(found))}, and the users are {', '.join(sorted(names))}"
        )
    short = sorted(name for name, word in found.items() if len(word) < LEAST_LENGTH)
    if short:
        raise ValueError(f"AIRFLOW_PASSWORDS: fewer than {LEAST_LENGTH} characters for {', '.join(short)}")
    if len(set(found.values())) < len(found):
        raise ValueError("AIRFLOW_PASSWORDS: two users have the same password")
    return found


def write_passwords(path: Path, passwords: dict[str, str]) -> None:
    """Write the file of Airflow's simple auth manager, for its own user only.

    Parameters
    ----------
    path
        The file.
    passwords
        The password of each user.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(passwords), encoding="utf-8")
    fresh.replace(path)


if __name__ == "__main__":
    settings = os.environ
    try:
        given = read_passwords(
            settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"], settings.pop("AIRFLOW_PASSWORDS")
        )
    except ValueError as error:
        sys.exit(f"error: {error}")
    write_passwords(Path(settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]), given)
    os.execvp("airflow", ["airflow", "db", "migrate"])  # noqa: S606  # the last step of this script
