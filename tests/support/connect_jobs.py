"""Jobs as processes of their own, on a Spark Connect server, where no Java is to be found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def job_environment(url: str | None, **more: str) -> dict[str, str]:
    """Return the environment of a job; `url` None: of a classic session.

    A job on a server must not start a JVM: it finds no Java.
    """
    given = {name: value for name, value in os.environ.items() if not name.startswith("EVENLAG_SPARK_")}
    remote = {} if url is None else {"EVENLAG_SPARK_REMOTE": url, "JAVA_HOME": "/nowhere"}
    return given | {"PYTHONPATH": str(ROOT)} | remote | more


def run_module(
    url: str | None, module: str, *arguments: str, timeout_s: float = 600.0, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module`` to its end, with the code on ``PYTHONPATH``."""
    return subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        env=job_environment(url, **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def start_program(url: str | None, text: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """Start a Python program in a process group of its own; it talks by its standard output."""
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        env=job_environment(url, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def copy_code(folder: Path) -> Path:
    """Copy the packages that a job runs, to change them."""
    for package in ("assignor_core", "evenlag", "spark_jobs"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder
