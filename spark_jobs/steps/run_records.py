"""Records of a run: that its steps ended, and the policy that it used."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import POLICIES, RUNS

if TYPE_CHECKING:
    from evenlag.policy.loader import LoadedPolicy
    from spark_jobs.runtime.delta_lake import Lake


def keep_policy(lake: Lake, cluster: str, slot: datetime, loaded: LoadedPolicy) -> None:
    """Store a policy's text by its hash, once per cluster.

    Parameters
    ----------
    lake, cluster
        The tables, and the cluster's name in the policy.
    slot
        Slot of the run: its day is the partition of the row.
    loaded
        The policy.

    Raises
    ------
    LakeError
        When the table cannot be written.
    """
    from pyspark.sql import functions as sf

    known = lake.read(POLICIES).where(
        (sf.col("cluster") == cluster) & (sf.col("policy_hash") == loaded.policy_hash)
    )
    if known.take(1):
        return
    row = [(cluster, slot.date(), loaded.policy_hash, loaded.text)]
    frame = lake.spark.createDataFrame(row, POLICIES.ddl)
    lake.append(POLICIES, frame, f"policy/{cluster}/{loaded.policy_hash}")


def record_run(
    lake: Lake,
    cluster: str,
    run_id: str,
    step: str,
    slot: datetime,
    snapshot_id: str,
    started_at: datetime,
    summary: dict[str, Any],
) -> None:
    """Record a finished step. Idempotent: a repeat of the run's step keeps the first record.

    Parameters
    ----------
    lake, cluster
        The tables, and the cluster's name in the policy.
    run_id, step, slot, snapshot_id
        The run, the name of its step, the slot, and the slot's snapshot.
    started_at
        When the step started.
    summary
        Result of the step, stored as JSON.

    Raises
    ------
    LakeError
        When the table cannot be written.
    """
    text = json.dumps(summary, sort_keys=True, default=str)
    row = [(cluster, slot.date(), run_id, step, slot, snapshot_id, started_at, datetime.now(UTC), text)]
    frame = lake.spark.createDataFrame(row, RUNS.ddl)
    lake.append(RUNS, frame, f"run/{cluster}/{run_id}/{step}/{snapshot_id}")
