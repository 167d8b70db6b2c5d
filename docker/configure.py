"""Write ``docker/.env``: a secret of its own for each purpose, and a password for each user.

``python3 configure.py --user ada:admin --user bob:viewer`` needs the standard library only. With ``--pin`` it
also asks the registry for the digests of the images, by ``docker buildx imagetools``.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROLES: Final = ("viewer", "user", "op", "admin")
# Names that several people would share.
SHARED: Final = frozenset({"admin", "airflow", "evenlag", "guest", "root", "test", "user"})
_EXAMPLE: Final = "env.example"
_BYTES: Final = 32


class ConfigureError(Exception):
    """Raised when no settings can be written; the message says what to do."""


def make_settings(users: list[str], example: str) -> str:
    """Return the content of ``.env``: the example, with a new value for each variable that has none.

    Parameters
    ----------
    users
        ``name:role`` each.
    example
        Content of ``env.example``.

    Raises
    ------
    ConfigureError
        If a user has no role, or a name that several people would share.
    """
    names = [_user_name(user) for user in users]
    if len(set(names)) < len(names):
        raise ConfigureError("a user is given twice: each person has a user of their own")
    values = {
        "AIRFLOW_USERS": ",".join(users),
        "AIRFLOW_PASSWORDS": ",".join(f"{name}:{secrets.token_urlsafe(_BYTES)}" for name in names),
        "AIRFLOW_FERNET_KEY": base64.urlsafe_b64encode(os.urandom(_BYTES)).decode(),
    }

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}={values.get(match[1]) or secrets.token_urlsafe(_BYTES)}"

    return re.sub(r"^([A-Z_]+)=$", fill, example, flags=re.MULTILINE)


def _user_name(user: str) -> str:
    name, _, role = user.partition(":")
    if not re.fullmatch(r"[A-Za-z][\w.@-]*", name) or role not in ROLES:
        raise ConfigureError(f"--user {user} is not NAME:ROLE; the roles are {', '.join(ROLES)}")
    if name.lower() in SHARED:
        raise ConfigureError(f"--user {user}: several people would share it; give each person a name")
    return name


def pin_images(settings: str) -> str:
    """Return the settings with the digest of each image.

    Parameters
    ----------
    settings
        Content of ``.env``, with lines such as ``#KAFKA_IMAGE=apache/kafka:4.3.0``.

    Raises
    ------
    ConfigureError
        If the registry cannot be asked.
    """

    def pin(match: re.Match[str]) -> str:
        return f"{match[1]}={match[2]}@{_digest(match[2])}"

    return re.sub(r"^#?([A-Z]+_IMAGE)=([^@\s]+)$", pin, settings, flags=re.MULTILINE)


def _digest(image: str) -> str:
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigureError(
            f"{' '.join(command[:3])} does not work ({error}): leave out --pin to use tags"
        ) from error
    found = done.stdout.strip()
    if done.returncode or not re.fullmatch(r"sha256:[0-9a-f]{64}", found):
        why = (done.stderr.strip().splitlines() or ["no digest"])[-1]
        raise ConfigureError(f"the registry has no digest of {image} ({why}): leave out --pin to use tags")
    return found


def main() -> int:
    """Write the file and return the exit code."""
    parser = argparse.ArgumentParser(description="Write docker/.env with new secrets.")
    parser.add_argument(
        "--user",
        action="append",
        required=True,
        metavar="NAME:ROLE",
        help=f"one for each person; {', '.join(ROLES)}",
    )
    parser.add_argument("--pin", action="store_true", help="ask the registry for the digests of the images")
    parser.add_argument("--folder", type=Path, default=HERE, help="where .env is written (default: here)")
    arguments = parser.parse_args()
    target: Path = arguments.folder / ".env"
    try:
        settings = make_settings(arguments.user, (HERE / _EXAMPLE).read_text(encoding="utf-8"))
        if arguments.pin:
            settings = pin_images(settings)
        # Another .env has the keys of data that exist: it is never replaced.
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(settings)
    except FileExistsError:
        print(
            f"error: {target} exists; its keys belong to data that exist, so edit it instead", file=sys.stderr
        )
        return 2
    except (ConfigureError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{target}: written, for you only. Each user's password is in AIRFLOW_PASSWORDS.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
