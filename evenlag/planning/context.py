"""What all plans of a run share, and what earlier snapshots show of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date, datetime

    from evenlag.logging_setup import WorkerLog
    from evenlag.policy.settings import Policy


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What earlier snapshots show of a group.

    breaches: Number of consecutive snapshots, up to the previous one, that asked for a change.
    backs_off: Why the group backs off for now; None when it does not.
    """

    breaches: int = 0
    backs_off: str | None = None


@dataclass(frozen=True, slots=True)
class PlanContext:
    """What all plans of a run share; it is pickled to the executors and contains no secret.

    cluster, kafka_cluster_id: Name in the policy, id from the brokers.
    finished_at: End time of that snapshot: the time of all decisions from it.
    attempt_id: Names the rows of plans that an attempt writes; the step sets it for each attempt.
    history: By group id; a group that is missing has none.
    log: How executors log, and with which fields; None: they do not.
    """

    policy: Policy
    policy_hash: str
    cluster: str
    kafka_cluster_id: str
    snapshot_id: str
    slot: datetime
    day: date
    finished_at: datetime
    run_id: str
    attempt_id: str | None = None
    history: Mapping[str, GroupHistory] = field(default_factory=dict)
    log: WorkerLog | None = None
