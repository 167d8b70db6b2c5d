"""A DAG bundle with versions: folders side by side, and the link ``current`` to the newest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.dag_processing.bundles.base import BaseDagBundle


class VersionedBundle(BaseDagBundle):
    """Reads DAG files from ``current``, and those of a run from the folder of its version."""

    supports_versioning = True

    def __init__(self, *, folder: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.folder = Path(folder)

    @property
    def path(self) -> Path:
        return self.folder / (self.version or "current")

    def get_current_version(self) -> str:
        return self.version or (self.folder / "current").readlink().name

    def refresh(self) -> None:
        """Do nothing: the link is always new."""
