"""The DAG files as they are installed."""

from __future__ import annotations

from typing import Final

from evenlag.bundle import bundle_root

# Top-level names in Airflow's DAG folder must be unique, and `dags` is a common name.
PACKAGE: Final = "evenlag_dags"


def dag_texts() -> dict[str, str]:
    """Return the DAG files as they are installed.

    Returns text by path relative to the package, sorted by path.
    """
    root = bundle_root() / "dags"
    return {
        str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in sorted(root.rglob("*.py"))
    }
