"""Location of the DAG files and the sandbox: next to the sources, or as data in the wheel."""

from pathlib import Path
from typing import Final

# Top-level names in Airflow's DAG folder must be unique, and `dags` is a common name.
DAG_PACKAGE: Final = "evenlag_dags"
_HERE: Final = Path(__file__).resolve().parent


def bundle_root() -> Path:
    """Return the folder of ``dags`` and ``sandbox``: a wheel's data, else the root of the source tree."""
    bundled = _HERE / "_bundled"
    return bundled if bundled.is_dir() else _HERE.parent


def dag_texts() -> dict[str, str]:
    """Return the DAG files as they are installed: text by path relative to the package, sorted by path."""
    root = bundle_root() / "dags"
    return {
        str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in sorted(root.rglob("*.py"))
    }
