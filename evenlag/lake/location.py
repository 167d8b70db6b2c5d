"""Location of a lake's tables, and the lock that serializes the writers of a table on a local folder."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

from evenlag.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlag.lake.tables import Table

LOCK_FOLDER: Final = ".locks"
LOG_FOLDER: Final = "_delta_log"


@dataclass(frozen=True, slots=True)
class LakePaths:
    """Paths of one lake.

    Attributes
    ----------
    root
        A local path, a ``file:`` URI, or any URI that Hadoop's file systems support.
    """

    root: str

    @property
    def is_local(self) -> bool:
        """Whether the lake is a folder of this machine."""
        return urlparse(self.root).scheme in {"", "file"}

    @property
    def local_root(self) -> Path:
        """The folder of a local lake.

        Raises
        ------
        LakeError
            If the lake is not local.
        """
        if not self.is_local:
            raise LakeError(f"the lake {self.root} is not a local folder")
        parsed = urlparse(self.root)
        return Path(unquote(parsed.path) if parsed.scheme else self.root).absolute()

    def table(self, table: Table) -> str:
        """Return the folder of a table, in the form that both Spark and deltalake accept.

        Parameters
        ----------
        table
            The table.
        """
        return self.folder(table.name)

    def folder(self, name: str) -> str:
        """Return a folder under the root, in the form that both Spark and deltalake accept.

        Parameters
        ----------
        name
            Name of the folder.
        """
        if self.is_local:
            return str(self.local_root / name)
        return f"{self.root.rstrip('/')}/{name}"

    def may_have_log(self, name: str) -> bool:
        """Return whether a folder under the root may be a Delta table; exact only on a local lake.

        Parameters
        ----------
        name
            Name of the folder.
        """
        return not self.is_local or (self.local_root / name / LOG_FOLDER).is_dir()

    @contextmanager
    def lock(self, table: Table) -> Iterator[None]:
        """Hold a table's lock during a write; on other lakes the log store detects conflicts.

        The kernel releases the lock (flock) of a process that is killed.

        Parameters
        ----------
        table
            The table.

        Yields
        ------
        None
            While the lock is held.

        Raises
        ------
        LakeError
            If the lock file cannot be created.
        """
        if not self.is_local:
            yield
            return
        folder = self.local_root / LOCK_FOLDER
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = (folder / f"{table.name}.lock").open("a")
        except OSError as error:
            raise LakeError(
                f"table {table.name} of {self.root} cannot be written: {error.strerror}"
            ) from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
