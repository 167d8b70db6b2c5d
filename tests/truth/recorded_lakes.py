"""The recorded lakes: whole tables as real cycles wrote them, with the consumers' own journals.

`tests.truth.record` made them. Each is one archive with ``lake/`` (the tables, their logs included),
``journals/GROUP.jsonl`` (`sandbox.workload.journal`: who really owned what, when) and ``about.json`` (what
was done when, by wall clock; the groups with their modes; the policy's text). If it says ``rewritten``, the
tables' rows were written again, commit by commit, by the product's own writers.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

FOLDER: Final = Path(__file__).resolve().parent / "lakes"
_SUFFIX: Final = ".tar.xz"


@dataclass(frozen=True, slots=True)
class RecordedLake:
    """A lake on this machine.

    journals: The consumers' journals by the key of the group in `about`.
    about: ``clusters, versions, groups, policy, done``.
    """

    root: Path
    clusters: tuple[str, ...]
    journals: dict[str, Path]
    about: dict[str, Any]

    def write_policy(self, path: Path) -> Path:
        """Write the policy that it was recorded with, with the lake at its place of now."""
        text = str(self.about["policy"])
        path.write_text(text.replace("lake: lake\n", f"lake: {json.dumps(str(self.root))}\n", 1), "utf-8")
        return path


def names() -> tuple[str, ...]:
    """Return the names of the recorded lakes."""
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in FOLDER.glob(f"*{_SUFFIX}")))


def each_lake() -> list[ParameterSet]:
    """Return the names as parameters of a test: ``make test`` takes the lake with most kinds of rows."""
    return [pytest.param(name, marks=[] if name == "foreign" else pytest.mark.extended) for name in names()]


def extract(name: str, target: Path) -> RecordedLake:
    """Extract a lake into a folder, which is made."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(FOLDER / f"{name}{_SUFFIX}") as archive:
        archive.extractall(target, filter="data")
    about = json.loads((target / "about.json").read_text("utf-8"))
    journals = {path.stem: path for path in sorted((target / "journals").glob("*.jsonl"))}
    return RecordedLake(target / "lake", tuple(about["clusters"]), journals, about)
