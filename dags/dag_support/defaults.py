"""Who owns the DAGs, how they are tagged, how often and how long their tasks are tried."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

OWNER: Final = "evenlag"


class Tag(StrEnum):
    """The tags a DAG of ours may carry; a test refuses others."""

    EVENLAG = "evenlag"
    KAFKA = "kafka"
    REBALANCE = "rebalance"
    MAINTENANCE = "maintenance"
    COMPARISON = "comparison"
    AUDIT = "audit"


# A cycle of 2,000 groups takes minutes; what takes longer hangs.
SPARK_TIMEOUT: Final = timedelta(minutes=20)
# A day of 2,000 groups under four policies.
COMPARE_TIMEOUT: Final = timedelta(hours=2)
COMPARE_RUN_TIMEOUT: Final = timedelta(hours=12)
# The first run on a lake that was never looked after goes over every day of it; what it does not get to, the
# next one does.
MAINTENANCE_TIMEOUT: Final = timedelta(hours=6)
MAINTENANCE_RUN_TIMEOUT: Final = timedelta(hours=8)
PUBLISH_TIMEOUT: Final = timedelta(minutes=3)
RUN_TIMEOUT: Final = timedelta(hours=1)
# Longer than the longest approval_timeout_s, so that the plan's own limit is what ends the waiting.
APPROVAL_RUN_TIMEOUT: Final = timedelta(days=8)
# Runs that wait for a person cost no worker; a cycle asks about this many plans at the most.
MAX_OPEN_APPROVALS: Final = 1_000
MAX_NEW_APPROVALS: Final = 100

DEFAULT_ARGS: Final[dict[str, Any]] = {
    "owner": OWNER,
    "depends_on_past": False,
    "retries": 2,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=5),
}
