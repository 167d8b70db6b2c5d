"""The parts of evenlag that run inside Airflow: its DAGs, and the report on Airflow's page.

A DAG file of one's own imports :func:`evenlag.airflow.dags.make_dags` from here. It is imported at its
first use, because the command imports this package where Airflow is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["make_dags"]

if TYPE_CHECKING:
    from evenlag.airflow.dags import make_dags
else:
    # Hidden from type checkers, which would take any name to be in this module.
    def __getattr__(name: str) -> Any:
        if name == "make_dags":
            from evenlag.airflow.dags import make_dags

            return make_dags
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
