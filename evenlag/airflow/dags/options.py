"""What a DAG file may set, for all DAGs of a policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from evenlag.airflow.tasks.defaults import DEFAULT_ARGS, Tag
from evenlag.airflow.tasks.spark_task import SparkOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class DagOptions:
    """Arguments of :func:`evenlag.airflow.make_dags`, for the modules that build the DAGs.

    spark: Connection, pool and limits of the Spark tasks.
    task_args: Default arguments of all tasks, over those of evenlag.
    approvers: Ids of the Airflow users who may approve plans of groups for which the policy names nobody;
        None: any user whom Airflow lets answer.
    """

    dag_prefix: str = ""
    spark: SparkOptions = field(default_factory=SparkOptions)
    task_args: Mapping[str, Any] = field(default_factory=dict)
    approvers: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()

    @property
    def default_args(self) -> dict[str, Any]:
        """Default arguments of all tasks."""
        return DEFAULT_ARGS | dict(self.task_args)

    def dag_id(self, name: str) -> str:
        """Return the id of a DAG."""
        return f"{self.dag_prefix}{name}"

    def all_tags(self, *tags: Tag) -> list[str]:
        """Return the tags of a DAG."""
        return [*tags, *self.tags]
