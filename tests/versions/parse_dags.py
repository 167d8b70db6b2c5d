"""Parse the DAG files of this checkout with the Airflow of any environment, and print the ids of the DAGs.

``python tests/versions/parse_dags.py FOLDER``: the folder is AIRFLOW_HOME, and gets a policy. The exit code
is 1 if Airflow reports an import error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_POLICY = """
lake: {folder}/lake
clusters:
  orders:
    bootstrap_servers: 127.0.0.1:1
    schedule: "*/5 * * * *"
"""


def main() -> int:
    """Parse the files; print an id a line, or the errors."""
    folder = Path(sys.argv[1]).resolve()
    policy = folder / "evenlag.yaml"
    policy.write_text(_POLICY.format(folder=folder), "utf-8")
    # Before the first import of Airflow: it makes its home at once.
    os.environ |= {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "EVENLAG_CONFIG": str(policy),
    }
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag  # type: ignore[no-redef]  # its place there
    bag = DagBag(dag_folder=str(Path(__file__).resolve().parents[2] / "dags"))
    for error in bag.import_errors.values():
        sys.stderr.write(f"{error}\n")
    for dag_id in sorted(bag.dags):
        sys.stdout.write(f"{dag_id}\n")
    return 1 if bag.import_errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
