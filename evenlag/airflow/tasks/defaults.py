"""Owner, tags, timeouts and retries of the DAGs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from evenlag.policy.cron import last_due

OWNER: Final = "evenlag"


class Tag(StrEnum):
    """Tags of evenlag's DAGs; a test rejects others."""

    EVENLAG = "evenlag"
    KAFKA = "kafka"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"
    COMPARISON = "comparison"
    AUDIT = "audit"


# A cycle of 2,000 groups takes minutes.
SPARK_TIMEOUT: Final = timedelta(minutes=20)
# A cycle that starts more often than every four minutes is short: a task that hangs must not cost 20 slots.
SHORTEST_SPARK_TIMEOUT: Final = timedelta(minutes=5)
_SLOTS_PER_TIMEOUT: Final = 5
# Of the run to that of one Spark task.
RUN_TIMEOUT_FACTOR: Final = 3
# The same result at each parse, whatever the time: another timeout would be another version of the DAG.
_REFERENCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
# A day of 2,000 groups under four policies.
COMPARE_TIMEOUT: Final = timedelta(hours=2)
COMPARE_RUN_TIMEOUT: Final = timedelta(hours=12)
# The first run on a lake without maintenance so far processes all of its days; the next run continues.
MAINTENANCE_TIMEOUT: Final = timedelta(hours=6)
MAINTENANCE_RUN_TIMEOUT: Final = timedelta(hours=8)
# The audit begins no other day after half of the run's time, shared among its clusters.
_AUDIT_SHARE: Final = 0.5
PUBLISH_TIMEOUT: Final = timedelta(minutes=3)
RUN_TIMEOUT: Final = RUN_TIMEOUT_FACTOR * SPARK_TIMEOUT
# Longer than the largest approval_timeout_s: the limit of the plan must end the waiting.
APPROVAL_RUN_TIMEOUT: Final = timedelta(days=8)
# Runs that wait for an answer occupy no worker. A cycle opens at most MAX_NEW_APPROVALS requests.
MAX_OPEN_APPROVALS: Final = 1_000
MAX_NEW_APPROVALS: Final = 100

# Of the Spark tasks of a cycle; all others have 1.
CYCLE_PRIORITY: Final = 10

DEFAULT_ARGS: Final[dict[str, Any]] = {
    "owner": OWNER,
    "depends_on_past": False,
    "retries": 2,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
}


def audit_budget_s(num_clusters: int) -> int:
    """Return the seconds after which the audit of a cluster begins no other day.

    Examples
    --------
    >>> audit_budget_s(1), audit_budget_s(10)
    (600, 180)
    """
    share = min(_AUDIT_SHARE * SPARK_TIMEOUT, _AUDIT_SHARE * RUN_TIMEOUT / max(num_clusters, 1))
    return int(share.total_seconds())


def cycle_timeout(schedule: str | None) -> timedelta:
    """Return the timeout of a Spark task of a cluster's cycle.

    Returns 20 minutes; with a faster schedule than every four minutes, five times its interval, but at
    least five minutes.
    schedule: Cron expression of the cluster; None: manual runs.

    Examples
    --------
    >>> cycle_timeout("*/5 * * * *"), cycle_timeout("* * * * *")
    (datetime.timedelta(seconds=1200), datetime.timedelta(seconds=300))
    """
    if schedule is None:
        return SPARK_TIMEOUT
    newest, before = last_due(schedule, _REFERENCE, 2)
    return min(SPARK_TIMEOUT, max(SHORTEST_SPARK_TIMEOUT, _SLOTS_PER_TIMEOUT * (newest - before)))
