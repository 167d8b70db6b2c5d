"""Which clusters the report view knows, and where their lakes are.

The API server has no DAG bundle, so it may not have the policies. ``EVENLAG_REPORT_LAKES`` names the lakes by
the prefixes of the DAG ids; the clusters are those that a lake has snapshots of. Without the variable, the
policy that ``EVENLAG_CONFIG`` names is the only one, and its DAG ids have no prefix.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from evenlag.errors import JobError, PolicyError
from evenlag.logging_setup import named_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LAKES_VARIABLE: Final = "EVENLAG_REPORT_LAKES"
_LOG: Final = named_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReportSource:
    """A cluster, and where the report of it is read from.

    cluster: Name of the cluster in its policy.
    """

    dag_prefix: str
    cluster: str
    lake: str

    @property
    def name(self) -> str:
        """The cluster among those of all policies."""
        return f"{self.dag_prefix}{self.cluster}"

    @property
    def dag_id(self) -> str:
        """The DAG that authorizes access to the report."""
        return f"{self.dag_prefix}lag_rebalance__{self.cluster}"


def find_sources(environ: Mapping[str, str] | None = None) -> dict[str, ReportSource]:
    """Return the clusters that have a report.

    environ: The environment; that of the process if None.
    """
    environ = os.environ if environ is None else environ
    if text := environ.get(LAKES_VARIABLE, "").strip():
        found = list(_clusters_of(_parse(text)))
    else:
        from evenlag.policy.loader import load_policy

        policy = load_policy().policy
        found = [ReportSource("", cluster, policy.lake) for cluster in policy.clusters]
    return {source.name: source for source in sorted(found, key=lambda source: source.name)}


def _parse(text: str) -> dict[str, str]:
    try:
        lakes = json.loads(text)
    except ValueError:
        lakes = None
    if not isinstance(lakes, dict) or not all(isinstance(lake, str) and lake for lake in lakes.values()):
        raise PolicyError(
            f"{LAKES_VARIABLE} is no JSON object of lakes by the prefixes of their DAG ids: set it as in "
            """{"": "s3a://bucket/lake", "team_b_": "/srv/lake"}"""
        )
    return lakes


def _clusters_of(lakes: Mapping[str, str]) -> Iterator[ReportSource]:
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import SNAPSHOTS

    errors = []
    for prefix, lake in lakes.items():
        try:
            clusters = LakeReader(lake).clusters(SNAPSHOTS)
        except JobError as error:
            # The reports of the other lakes are still of use.
            _LOG.warning("the lake %s cannot be read: %s", lake, error)
            errors.append(error)
            continue
        for cluster in clusters:
            yield ReportSource(prefix, cluster, lake)
    if errors and len(errors) == len(lakes):
        raise errors[0]
