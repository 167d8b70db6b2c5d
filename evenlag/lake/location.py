"""Location of a lake's tables."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

from evenlag.errors import LakeError, LakeSchemeError, UsageError
from evenlag.lake_schemes import scheme_problem
from evenlag.private_files import OWNER_ONLY, applied_umask, lake_umask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.lake.tables import Table

LOG_FOLDER: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class LakePaths:
    """Paths of one lake; its root is a local path, or a URI of :data:`~evenlag.lake_schemes.LOG_STORES`."""

    root: str

    def __post_init__(self) -> None:
        if problem := scheme_problem(self.root):
            raise LakeSchemeError(problem)

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder of this machine."""
        return urlparse(self.root).scheme in {"", "file"}

    @property
    def local_root(self) -> Path:
        """The folder of a local lake."""
        if not self.is_local:
            raise LakeError(f"the lake {self.root} is not a local folder")
        parsed = urlparse(self.root)
        return Path(unquote(parsed.path) if parsed.scheme else self.root).absolute()

    @property
    def umask(self) -> int:
        """The umask with which files of the lake are created; see :mod:`evenlag.private_files`."""
        return lake_umask(self.local_root) if self.is_local else OWNER_ONLY

    @contextmanager
    def private_files(self) -> Iterator[None]:
        """Create the files of a local lake with its umask; on an object store nothing changes."""
        if not self.is_local:
            yield
            return
        with applied_umask(self.umask):
            yield

    def table(self, table: Table) -> str:
        """Return the folder of a table, in the form that both Spark and deltalake accept."""
        if self.is_local:
            return str(self.local_root / table.name)
        return f"{self.root.rstrip('/')}/{table.name}"

    def make_root(self) -> None:
        """Create the folder of a local lake: a mistake in its name shows before Spark starts."""
        if not self.is_local:
            return
        try:
            with self.private_files():
                self.local_root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"the lake {self.root} cannot be created: {error.strerror}; name another folder with --lake, "
                "EVENLAG_LAKE or the policy's key lake"
            ) from error
        if not os.access(self.local_root, os.W_OK | os.X_OK):
            raise UsageError(f"the lake {self.root} is read-only for this user: name another folder")

    def make_log_folder(self, table: Table) -> None:
        """Create the log folder of a local table, as a first write by Spark does.

        Spark reports only that it cannot create the folder, the operating system why.
        """
        if not self.is_local:
            return
        try:
            with self.private_files():
                (self.local_root / table.name / LOG_FOLDER).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LakeError(
                f"table {table.name} of {self.root} cannot be written: {error.strerror}"
            ) from error
