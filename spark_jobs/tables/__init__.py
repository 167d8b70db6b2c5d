"""The contracts of the lake's tables, as data: columns with types and meaning, key, partitioning.

No Spark here, so that the command, the DAG files and the documentation read the same contracts as the
jobs. All moments are UTC timestamps; all durations are milliseconds and say so; all counts of records say
so. Evolution adds columns only.
"""

from __future__ import annotations

from typing import Final

from spark_jobs.tables.audited import AUDITED_SNAPSHOTS, MEMBERSHIPS, OWNERSHIP
from spark_jobs.tables.compared import COMPARISONS, CONTINUOUS_REPLAYS, REPLAYS
from spark_jobs.tables.contract import CLUSTER_AND_DAY, Column, Table
from spark_jobs.tables.operated import (
    ALERTS,
    APPROVAL_REQUESTS,
    CONTROL_ACTIONS,
    POLICIES,
    RUNS,
    TABLE_HEALTH,
    THINNED_DAYS,
)
from spark_jobs.tables.planned import (
    CONTROL_EVENTS,
    DECISIONS,
    GATE_RESULTS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    SCORES,
)
from spark_jobs.tables.seen import COMMITS, LAG, MEMBERS, OFFSETS, SNAPSHOTS

TABLES: Final = {
    table.name: table
    for table in (
        SNAPSHOTS,
        OFFSETS,
        COMMITS,
        MEMBERS,
        LAG,
        PLANS,
        PLAN_ASSIGNMENTS,
        DECISIONS,
        PLAN_EVENTS,
        CONTROL_EVENTS,
        APPROVAL_REQUESTS,
        CONTROL_ACTIONS,
        ALERTS,
        GATE_RESULTS,
        OUTCOMES,
        SCORES,
        COMPARISONS,
        REPLAYS,
        CONTINUOUS_REPLAYS,
        POLICIES,
        RUNS,
        MEMBERSHIPS,
        OWNERSHIP,
        AUDITED_SNAPSHOTS,
        THINNED_DAYS,
        TABLE_HEALTH,
    )
}

__all__ = [
    "ALERTS",
    "APPROVAL_REQUESTS",
    "AUDITED_SNAPSHOTS",
    "CLUSTER_AND_DAY",
    "COMMITS",
    "COMPARISONS",
    "CONTINUOUS_REPLAYS",
    "CONTROL_ACTIONS",
    "CONTROL_EVENTS",
    "DECISIONS",
    "GATE_RESULTS",
    "LAG",
    "MEMBERS",
    "MEMBERSHIPS",
    "OFFSETS",
    "OUTCOMES",
    "OWNERSHIP",
    "PLANS",
    "PLAN_ASSIGNMENTS",
    "PLAN_EVENTS",
    "POLICIES",
    "REPLAYS",
    "RUNS",
    "SCORES",
    "SNAPSHOTS",
    "TABLES",
    "TABLE_HEALTH",
    "THINNED_DAYS",
    "Column",
    "Table",
]
