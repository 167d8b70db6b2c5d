"""What the tasks of a distributed read share: their specification, their share of the work, their errors."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from evenlag.errors import KafkaUnreachableError, LakeError
from evenlag.kafka.admin_client import open_admin_client
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.rate_limit import RequestBudget, RequestLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from evenlag.policy.pseudonymize import Pseudonymizer


@dataclass(frozen=True, slots=True)
class ReadTaskSpec:
    """What an executor needs to read; it travels in a task's closure and nowhere else.

    client_settings: Settings of kafka-python's clients with resolved secrets; not part of ``repr``.
    limits: Limits of the whole read; each task has its share of the request rate.
    head: The snapshot's columns.
    broken: Brokers to skip, with the error.
    pseudonymizer: Hashes or drops members' columns as the policy says; None: changes nothing.
    reset_policies: Reset policies of the cluster's groups.
    open_client: Opens an admin client with these settings.
    """

    client_settings: Mapping[str, Any] = field(repr=False)
    limits: RequestLimits
    head: Mapping[str, Any]
    broken: Mapping[int, str] = field(default_factory=dict)
    pseudonymizer: Pseudonymizer | None = None
    reset_policies: frozenset[str] = frozenset()
    open_client: Callable[[Mapping[str, Any]], AbstractContextManager[Any]] = open_admin_client

    @contextmanager
    def calls(self, num_tasks: int) -> Iterator[BrokerCalls]:
        """Open a connection with one task's share of the request rate.

        num_tasks: Tasks that run at the same time.
        """
        with self.open_client(self.client_settings) as client:
            # Starts empty: the driver, which took the inventory, has used the budget's burst.
            budget = RequestBudget(self.limits.requests_per_s / num_tasks, is_full=False)
            yield BrokerCalls.within(client, self.limits, budget=budget, broken=self.broken)


def partition_work(
    owner: NDArray[np.int64], num_tasks: int, max_shares: int, min_size: int
) -> list[NDArray[np.int64]]:
    """Divide rows among tasks so that few tasks share a broker and all have about equal work.

    Returns rows of each task, ascending; at most ``num_tasks``, none empty. The largest shares are placed
    first, each with the task that has the fewest rows so far.
    max_shares: Tasks that may send requests to the same broker.
    min_size: Rows below which a broker's share is not divided further.

    Examples
    --------
    >>> brokers = np.array([1, 1, 2, 1])
    >>> [rows.tolist() for rows in partition_work(brokers, num_tasks=2, max_shares=1, min_size=1)]
    [[0, 1, 3], [2]]
    """
    shares: list[NDArray[np.int64]] = []
    for node in np.unique(owner).tolist():
        rows = np.flatnonzero(owner == node)
        shares += np.array_split(rows, max(1, min(max_shares, num_tasks, len(rows) // min_size)))
    sizes = [0] * min(num_tasks, len(shares))
    tasks: list[list[NDArray[np.int64]]] = [[] for _ in sizes]
    for share in sorted(shares, key=len, reverse=True):
        smallest = sizes.index(min(sizes))
        tasks[smallest].append(share)
        sizes[smallest] += len(share)
    return [np.sort(np.concatenate(rows)) for rows in tasks if rows]


@contextmanager
def task_errors() -> Iterator[None]:
    """Convert the errors that Spark raises when its tasks cannot reach Kafka."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (LakeError, PySparkException, Py4JJavaError) as error:
        text = str(error.__cause__ if isinstance(error, LakeError) else error)
        causes = [line.strip() for line in text.splitlines() if line.strip().startswith("kafka.errors.")]
        if not causes:
            raise
        raise KafkaUnreachableError(
            f"executors could not read Kafka: {causes[-1]}: they need the same network access and "
            "certificates as the driver"
        ) from error
