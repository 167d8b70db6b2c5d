"""A Python for Spark's executors with the documented packages and without evenlag.

It is a virtual environment without pip whose packages are links to those of this one, so it is created within
a second. A job that runs on it works because its code was shipped, not because it was installed already.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import venv
from pathlib import Path
from typing import Final

EXECUTOR_PACKAGES: Final = ("numpy", "pyarrow", "pandas", "kafka-python")
_NAME: Final = re.compile(r"^[A-Za-z0-9._-]+")


def make_executor_python(folder: Path) -> Path:
    """Create the environment in a new folder."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for entry in _top_level_entries(EXECUTOR_PACKAGES):
        target = packages / entry.name
        if not target.exists():
            target.symlink_to(entry, target_is_directory=entry.is_dir())
    return folder / "bin" / "python3"


def _top_level_entries(distributions: tuple[str, ...]) -> list[Path]:
    """Files and folders of distributions and of all their dependencies in site-packages."""
    entries: dict[Path, None] = {}
    seen: set[str] = set()
    pending = list(distributions)
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        found = importlib.metadata.distribution(name)
        for file in found.files or ():
            first = file.parts[0]
            if first not in {os.pardir, "__pycache__"}:
                entries[Path(str(found.locate_file(first)))] = None
        pending += [_requirement(text) for text in found.requires or () if ";" not in text]
    return list(entries)


def _requirement(text: str) -> str:
    match = _NAME.match(text)
    return match[0] if match else text
