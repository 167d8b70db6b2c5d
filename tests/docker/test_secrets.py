"""What makes and spreads the secrets of the containers: `.env`, Airflow's logins, Spark's settings."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from base64 import urlsafe_b64decode
from typing import TYPE_CHECKING

import pytest

from docker.airflow_init import read_passwords, write_passwords
from docker.configure import SHARED, ConfigureError, make_settings
from tests.support.containers.compose_file import (
    ENV_EXAMPLE,
    ROOT,
    SECRETS,
    read_services,
    read_variables,
)

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURE = ROOT / "docker" / "configure.py"
SPARK_SECRET = ROOT / "docker" / "spark_secret.py"
DIGEST = f"sha256:{'ab' * 32}"


def configure(folder: Path, *arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the script as a user does, without this repository on the path."""
    return subprocess.run(
        [sys.executable, "-I", str(CONFIGURE), "--folder", str(folder), *arguments],
        env=os.environ | ({} if path is None else {"PATH": path}),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_every_secret_is_new_and_services_start_with_them(tmp_path: Path) -> None:
    written = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = configure(folder, "--user", "ada:admin", "--user", "bob:viewer")
        assert (done.returncode, done.stderr) == (0, "")
        assert stat.S_IMODE((folder / ".env").stat().st_mode) == 0o600
        written.append(read_variables((folder / ".env").read_text("utf-8")))
        assert not any(value in done.stdout for value in written[-1].values())
    first, second = written
    assert set(first) == set(SECRETS)
    assert {name for name in SECRETS if first[name] == second[name]} == {"AIRFLOW_USERS"}
    assert all(len(value) >= 43 for name, value in first.items() if name != "AIRFLOW_USERS")
    assert len(urlsafe_b64decode(first["AIRFLOW_FERNET_KEY"])) == 32
    assert len(set(first.values())) == len(first)
    passwords = read_passwords(first["AIRFLOW_USERS"], first["AIRFLOW_PASSWORDS"])
    assert set(passwords) == {"ada", "bob"}
    users = read_services(first)["airflow-scheduler"].environment
    assert users["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "ada:admin,bob:viewer"


def test_settings_that_exist_are_kept(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MINE=1\n", encoding="utf-8")
    done = configure(tmp_path, "--user", "ada:admin")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path / '.env'} exists;")
    assert (tmp_path / ".env").read_text("utf-8") == "MINE=1\n"


@pytest.mark.parametrize(
    "user",
    [
        "ada",
        "ada:",
        "ada:root",
        ":admin",
        "a,b:admin",
        "a=b:admin",
        *(f"{name}:op" for name in sorted(SHARED)),
    ],
)
def test_a_user_is_one_person_with_a_role(user: str) -> None:
    with pytest.raises(ConfigureError, match=re.escape(f"--user {user}")):
        make_settings([user], ENV_EXAMPLE.read_text("utf-8"))


def test_a_user_given_twice_is_refused() -> None:
    with pytest.raises(ConfigureError, match="given twice"):
        make_settings(["ada:op", "ada:admin"], ENV_EXAMPLE.read_text("utf-8"))


def fake_docker(folder: Path, script: str) -> str:
    """A `docker` that answers without a registry: there is none to ask here."""
    program = folder / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.defpath}"


def test_images_are_pinned_by_the_digest_that_the_registry_has(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    path = fake_docker(tmp_path, f'echo "$*" >> {asked}; echo {DIGEST}')
    assert configure(tmp_path, "--user", "ada:admin", "--pin", path=path).returncode == 0
    found = read_variables((tmp_path / ".env").read_text("utf-8"))
    assert found["KAFKA_IMAGE"] == f"apache/kafka:4.3.0@{DIGEST}"
    services = read_services(found)
    images = [services["kafka"].raw["image"], services["postgres"].raw["image"]]
    images.append(services["airflow-scheduler"].raw["build"]["args"]["PYTHON_IMAGE"])
    assert all(image.endswith(DIGEST) for image in images)
    assert asked.read_text("utf-8").splitlines()[0].startswith("buildx imagetools inspect python:3.11")


@pytest.mark.parametrize("script", ["echo denied >&2; exit 1", "echo no-digest"])
def test_without_a_registry_nothing_is_written(tmp_path: Path, script: str) -> None:
    done = configure(tmp_path, "--user", "ada:admin", "--pin", path=fake_docker(tmp_path, script))
    assert done.returncode == 2
    assert "leave out --pin to use tags" in done.stderr
    assert not (tmp_path / ".env").exists()


# Airflow's logins -------------------------------------------------------------------------------------------

GOOD = "a" * 16


@pytest.mark.parametrize(
    ("users", "passwords", "message"),
    [
        ("ada:admin", "", "NAME:PASSWORD for each user"),
        ("ada:admin,bob:op", f"ada:{GOOD}", "it has ada, and the users are ada, bob"),
        ("ada:admin", f"ada:{GOOD},eve:{GOOD}1", "it has ada, eve"),
        ("ada:admin,ada:op", f"ada:{GOOD}", "once"),
        ("ada:admin", "ada:short", "fewer than 16 characters for ada"),
        ("ada:admin,bob:op", f"ada:{GOOD},bob:{GOOD}", "two users have the same password"),
    ],
)
def test_logins_that_are_shared_or_short_are_refused(users: str, passwords: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        read_passwords(users, passwords)
    assert GOOD not in str(raised.value)


def test_passwords_are_for_airflow_s_user_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "passwords.json"
    for word in ("first", "second"):
        write_passwords(path, {"ada": word})
    assert json.loads(path.read_text("utf-8")) == {"ada": "second"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


# Spark's settings -------------------------------------------------------------------------------------------

REPORT = """
import os, pathlib, sys
old = os.umask(0); conf = pathlib.Path(os.environ["SPARK_CONF_DIR"])
print(oct(old), "EVENLAG_SPARK_CLUSTER_SECRET" in os.environ, conf, sys.argv[1:])
print((conf / "spark-defaults.conf").read_text())
"""


def start_with(secret: str, folder: Path, base: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SPARK_SECRET), str(folder), sys.executable, "-c", REPORT, "argument"],
        env=os.environ | {"EVENLAG_SPARK_CLUSTER_SECRET": secret, "SPARK_CONF_DIR": str(base)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_a_command_gets_spark_s_secret_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret, folder = "s" * 43, tmp_path / "conf"
    for _ in range(2):
        done = start_with(secret, folder, ROOT / "docker")
        assert (done.returncode, done.stderr) == (0, "")
        first, *settings = done.stdout.splitlines()
        assert first == f"0o7 False {folder} ['argument']"
        given = dict(line.split(None, 1) for line in settings if line and not line.startswith("#"))
        assert given["spark.authenticate"] == "true"
        assert given["spark.network.crypto.enabled"] == "true"
        assert given["spark.master.rest.enabled"] == "false"
        assert given["spark.authenticate.secret"] == secret
        assert given["spark.executor.memory"] == "768m"  # of the folder before it
        assert stat.S_IMODE((folder / "spark-defaults.conf").stat().st_mode) == 0o600
        assert {path.name for path in folder.iterdir()} == {"spark-defaults.conf", "log4j2.properties"}


def test_a_short_secret_starts_nothing(tmp_path: Path) -> None:
    done = start_with("short", tmp_path / "conf", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: EVENLAG_SPARK_CLUSTER_SECRET has fewer than 32 characters")
    assert not (tmp_path / "conf").exists()
