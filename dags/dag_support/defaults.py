"""Owner, tags, timeouts and retries of the DAGs."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

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
# A day of 2,000 groups under four policies.
COMPARE_TIMEOUT: Final = timedelta(hours=2)
COMPARE_RUN_TIMEOUT: Final = timedelta(hours=12)
# The first run on a lake without maintenance so far processes all of its days; the next run continues.
MAINTENANCE_TIMEOUT: Final = timedelta(hours=6)
MAINTENANCE_RUN_TIMEOUT: Final = timedelta(hours=8)
PUBLISH_TIMEOUT: Final = timedelta(minutes=3)
RUN_TIMEOUT: Final = timedelta(hours=1)
# Longer than the largest approval_timeout_s: the limit of the plan must end the waiting.
APPROVAL_RUN_TIMEOUT: Final = timedelta(days=8)
# Runs that wait for an answer occupy no worker. A cycle opens at most MAX_NEW_APPROVALS requests.
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
