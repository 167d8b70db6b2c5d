"""Records of a run: that its steps ended, and the policy that it used."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from evenlag.lake.tables import POLICIES, RUNS
from evenlag.lake.writer import append_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy


def keep_policy(reader: LakeReader, cluster: str, slot: datetime, loaded: LoadedPolicy) -> None:
    """Store a policy's text by its hash, once per cluster.

    Parameters
    ----------
    reader, cluster
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
    known = reader.count(
        POLICIES, filters=[("cluster", "=", cluster), ("policy_hash", "=", loaded.policy_hash)]
    )
    if known:
        return
    row = {
        "cluster": cluster,
        "day": slot.date(),
        "policy_hash": loaded.policy_hash,
        "text": loaded.text,
    }
    append_once(reader.paths.root, POLICIES, [row], f"policy/{cluster}/{loaded.policy_hash}")


def record_run(
    root: str,
    marker: Mapping[str, Any],
    run_id: str,
    step: str,
    started_at: datetime,
    summary: dict[str, Any],
) -> None:
    """Record a finished step. Idempotent: a repeat of the run's step keeps the first record.

    Parameters
    ----------
    root
        Root of the lake.
    marker
        Row of ``snapshots`` of the slot's snapshot.
    run_id, step
        The run, and the name of its step.
    started_at
        When the step started.
    summary
        Result of the step, stored as JSON.

    Raises
    ------
    LakeError
        When the table cannot be written.
    """
    cluster, snapshot_id = marker["cluster"], marker["snapshot_id"]
    row = {
        "cluster": cluster,
        "day": marker["day"],
        "run_id": run_id,
        "step": step,
        "slot": marker["slot"],
        "snapshot_id": snapshot_id,
        "started_at": started_at,
        "finished_at": datetime.now(UTC),
        "summary": json.dumps(summary, sort_keys=True, default=str),
    }
    append_once(root, RUNS, [row], f"run/{cluster}/{run_id}/{step}/{snapshot_id}")
