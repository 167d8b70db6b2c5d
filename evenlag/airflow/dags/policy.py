"""The policy that defines the DAGs, read when Airflow parses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenlag.enums import Mode
from evenlag.errors import PolicyError
from evenlag.policy.loader import POLICY_VARIABLE, find_policy_path, read_policy

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.settings import ComparisonSettings


class DagPolicyError(Exception):
    """Raised while a DAG file is parsed; Airflow shows its message as the file's import error."""


@dataclass(frozen=True, slots=True)
class DagPolicy:
    """Path of the policy file, and the settings that the DAGs need.

    path: Absolute path: a Spark driver has another working directory than the DAG processor.
    asking_clusters: Clusters for which a rule of mode ``approve`` applies.
    data_docs: Folder of the Data Docs; None for none.
    audit_schedule, maintenance_schedule: Cron expressions of the audit and of maintenance; None for manual
        runs only.
    comparison: Settings of the daily comparison; None for none.
    """

    path: Path
    clusters: Mapping[str, ClusterSettings]
    asking_clusters: frozenset[str]
    data_docs: str | None
    audit_schedule: str | None
    maintenance_schedule: str | None
    comparison: ComparisonSettings | None


def read_dag_policy(given: Path | None = None) -> DagPolicy:
    """Read the policy file that defines the DAGs; the environment stays as it is.

    given: The file; None: the one that ``EVENLAG_CONFIG`` names.
    """
    path = find_policy_path(given).absolute()
    try:
        policy = read_policy(path).policy
    except PolicyError as error:
        source = (
            f"The policy file is the one that {POLICY_VARIABLE} names in the environment of Airflow's "
            f"scheduler, DAG processor and workers (now {path}). "
            if given is None
            else ""
        )
        raise DagPolicyError(
            f"{error}\nThere are no DAGs of evenlag until this is fixed. {source}"
            f"Check it with: evenlag policy check {path}"
        ) from None
    asking = [rule.clusters or policy.clusters for rule in policy.groups if rule.mode is Mode.APPROVE]
    asking_clusters = frozenset(name for names in asking for name in names)
    return DagPolicy(
        path,
        policy.clusters,
        asking_clusters,
        policy.data_docs,
        policy.audit_schedule,
        policy.maintenance.schedule,
        policy.comparison,
    )
