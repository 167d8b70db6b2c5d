"""The project's own data: version, extras, the changelog's section of a version."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from release.errors import ReleaseError

ROOT: Final = Path(__file__).resolve().parents[1]
NOT_RELEASED: Final = ("dev", "docs")
"""Extras that no user installs."""

_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Project:
    """A source tree of evenlag."""

    root: Path = ROOT

    @cached_property
    def _tree(self) -> dict[str, Any]:
        project: dict[str, Any] = tomllib.loads(self.text("pyproject.toml"))["project"]
        return project

    @property
    def version(self) -> str:
        """The version."""
        return str(self._tree["version"])

    @property
    def licence(self) -> str:
        """The licence, an SPDX identifier."""
        return str(self._tree["license"])

    @property
    def description(self) -> str:
        """The summary."""
        return str(self._tree["description"])

    def released_requirements(self) -> frozenset[str]:
        """Names of the packages that evenlag and its extras ask for, without those for its development."""
        extras = self._tree["optional-dependencies"]
        asked = [text for extra, texts in extras.items() if extra not in NOT_RELEASED for text in texts]
        return frozenset(
            normalized(match[0])
            for text in (*self._tree["dependencies"], *asked)
            if (match := _NAME.match(text))
        )

    def text(self, path: str) -> str:
        """Return a file of the tree."""
        try:
            return (self.root / path).read_text(encoding="utf-8")
        except OSError as error:
            raise ReleaseError(f"{path} cannot be read: {error.strerror}") from error

    def release_notes(self) -> str:
        """Return the changelog's section of the version, without its heading."""
        sections = re.split(r"^## ", self.text("CHANGELOG.md"), flags=re.MULTILINE)[1:]
        for section in sections:
            heading, _, body = section.partition("\n")
            if re.fullmatch(rf"\[{re.escape(self.version)}\] - \d{{4}}-\d\d-\d\d", heading.strip()):
                if not body.strip():
                    break
                return f"# evenlag {self.version}\n\nReleased {heading.strip()[-10:]}.\n\n{body.strip()}\n"
        raise ReleaseError(
            f"CHANGELOG.md has no notes under '## [{self.version}] - YYYY-MM-DD': write them, or correct the "
            "version in pyproject.toml"
        )


def normalized(name: str) -> str:
    """Return a package's name as the package index compares names.

    Examples
    --------
    >>> normalized("PyYAML.ft")
    'pyyaml-ft'
    """
    return re.sub(r"[-_.]+", "-", name).lower()
