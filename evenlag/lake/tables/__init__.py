"""Contracts of the lake's tables, as data: columns with types and descriptions, key, partitioning.

Without Spark, so that the CLI, the DAG files and the documentation use the same contracts as the jobs. All
moments are UTC timestamps. Units are part of the name: `_ms`, `_records`. Evolution only adds columns.
"""

from typing import Final

from evenlag.lake.tables.audit import AUDITED_SNAPSHOTS, MEMBERSHIPS, OWNERSHIP
from evenlag.lake.tables.contract import CLUSTER_AND_DAY, CLUSTER_AND_MONTH, Column, Table
from evenlag.lake.tables.observation import (
    COMMITS,
    FORECASTS,
    HOURLY_RATES,
    LAG,
    MEMBERS,
    OFFSETS,
    SNAPSHOTS,
    SPEEDS,
)
from evenlag.lake.tables.operations import (
    ALERTS,
    APPROVAL_REQUESTS,
    CONTROL_ACTIONS,
    DOWNSAMPLED_DAYS,
    POLICIES,
    QUALITY_RESULTS,
    RUNS,
    TABLE_HEALTH,
)
from evenlag.lake.tables.planning import (
    ADVICE,
    DECISIONS,
    GATE_RESULTS,
    OUTCOMES,
    PLAN_ASSIGNMENTS,
    PLAN_EVALUATIONS,
    PLAN_EVENTS,
    PLANS,
)
from evenlag.lake.tables.simulation import COMPARISONS, CONTINUOUS_REPLAYS, REPLAYS

_TABLES: Final = (
    SNAPSHOTS, OFFSETS, COMMITS, MEMBERS, LAG, HOURLY_RATES, FORECASTS, SPEEDS, ADVICE, PLANS,
    PLAN_ASSIGNMENTS, DECISIONS, PLAN_EVENTS, APPROVAL_REQUESTS, CONTROL_ACTIONS, ALERTS, GATE_RESULTS,
    OUTCOMES, PLAN_EVALUATIONS, COMPARISONS, REPLAYS, CONTINUOUS_REPLAYS, QUALITY_RESULTS, POLICIES, RUNS,
    MEMBERSHIPS, OWNERSHIP, AUDITED_SNAPSHOTS, DOWNSAMPLED_DAYS, TABLE_HEALTH,
)  # fmt: skip
TABLES: Final = {table.name: table for table in _TABLES}

# Tables that a snapshot writes before its marker.
SNAPSHOT_TABLES: Final = (OFFSETS, COMMITS, MEMBERS, LAG)

__all__ = [
    "ADVICE", "ALERTS", "APPROVAL_REQUESTS", "AUDITED_SNAPSHOTS", "CLUSTER_AND_DAY", "CLUSTER_AND_MONTH",
    "COMMITS", "COMPARISONS", "CONTINUOUS_REPLAYS", "CONTROL_ACTIONS", "DECISIONS", "DOWNSAMPLED_DAYS",
    "FORECASTS", "GATE_RESULTS", "HOURLY_RATES", "LAG", "MEMBERS", "MEMBERSHIPS", "OFFSETS", "OUTCOMES",
    "OWNERSHIP", "PLANS", "PLAN_ASSIGNMENTS", "PLAN_EVALUATIONS", "PLAN_EVENTS", "POLICIES",
    "QUALITY_RESULTS", "REPLAYS", "RUNS", "SNAPSHOTS", "SNAPSHOT_TABLES", "SPEEDS", "TABLES", "TABLE_HEALTH",
    "Column", "Table",
]  # fmt: skip
