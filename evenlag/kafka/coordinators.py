"""Group coordinators: which broker coordinates a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.broker_requests import Call
from evenlag.kafka.topic_metadata import error_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from evenlag.kafka.broker_requests import Answer, BrokerCalls

# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find it and try again.
COORDINATOR_ERRORS: Final = frozenset({14, 15, 16})
_KEYS_PER_REQUEST: Final = 500
# The first version of FindCoordinator that accepts several keys (KIP-699).
_BATCH_VERSION: Final = 4


def find_coordinators(calls: BrokerCalls, group_ids: Sequence[str]) -> dict[str, int | str]:
    """Find the coordinators of groups."""
    from kafka.protocol.metadata import FindCoordinatorRequest

    size = _KEYS_PER_REQUEST if calls.api_version(FindCoordinatorRequest) >= _BATCH_VERSION else 1

    def make(names: Sequence[str]) -> Callable[[], Any]:
        if size == 1:
            return lambda: FindCoordinatorRequest(key=names[0], key_type=0, max_version=_BATCH_VERSION - 1)
        return lambda: FindCoordinatorRequest(
            key_type=0, coordinator_keys=list(names), min_version=_BATCH_VERSION
        )

    found: dict[str, int | str] = {}
    pending = list(group_ids)
    for _ in calls.rounds():
        batches = [pending[first : first + size] for first in range(0, len(pending), size)]
        answers = calls.run([Call(None, make(batch)) for batch in batches])
        pending = []
        for names, answer in zip(batches, answers, strict=True):
            found.update(_coordinators(names, answer, is_single=size == 1, retry=pending))
        if not pending:
            break
        calls.failover.begin()
    return found


def refresh_coordinators(
    calls: BrokerCalls, group_ids: Collection[str]
) -> tuple[dict[str, int | str], list[str]]:
    """Find coordinators again.

    Returns as :func:`find_coordinators`, without the groups whose coordinator is skipped; and these groups,
    which wait for another coordinator.
    group_ids: Groups whose last request failed with an error of :data:`COORDINATOR_ERRORS`.
    """
    found = find_coordinators(calls, sorted(group_ids))
    waiting = [group_id for group_id, node in found.items() if node in calls.broken]
    return {group_id: node for group_id, node in found.items() if node not in calls.broken}, waiting


def _coordinators(
    names: Sequence[str], answer: Answer, *, is_single: bool, retry: list[str]
) -> Iterable[tuple[str, int | str]]:
    if answer.response is None:
        return [(name, str(answer.error)) for name in names]
    rows = (
        [(names[0], answer.response)]
        if is_single
        else [(row.key, row) for row in answer.response.coordinators]
    )
    retry += [name for name, row in rows if row.error_code in COORDINATOR_ERRORS]
    return [(name, error_name(row.error_code) if row.error_code else row.node_id) for name, row in rows]
