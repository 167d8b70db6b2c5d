"""Group coordinators: which broker coordinates a group, and requests about groups to them."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kafka.protocol.metadata import FindCoordinatorRequest

from evenlag.kafka.broker_requests import Answer, Batch, BrokerCalls, Call
from evenlag.kafka.topic_metadata import error_name

# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: find it and try again.
COORDINATOR_ERRORS: Final = frozenset({14, 15, 16})
_KEYS_PER_REQUEST: Final = 500
# The first version of FindCoordinator that accepts several keys (KIP-699).
_BATCH_VERSION: Final = 4


def find_coordinators(calls: BrokerCalls, group_ids: Sequence[str]) -> dict[str, int | str]:
    """Find the coordinators of groups."""
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


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """Requests about groups, to their coordinators.

    kind_of: Returns what kind of request a group needs.
    make: Returns, for a kind, how many groups a request takes, and what builds it for some of them.
    take: Takes the row of a group and when it was read; returns why it is unreadable, and its error code.
    missing: Why a group is unknown that a response does not have.
    rows_of: Returns the groups of a response to a request for these names, each with its row.
    """

    kind_of: Callable[[str], Hashable]
    make: Callable[[Any], tuple[int, Callable[[Sequence[str]], Any]]]
    take: Callable[[str, Any, datetime], tuple[str | None, int]]
    missing: str
    rows_of: Callable[[Sequence[str], Any], Iterable[tuple[str, Any]]] = lambda _names, response: [
        (row.group_id, row) for row in response.groups or ()
    ]


def ask_coordinators(
    calls: BrokerCalls, coordinators: Mapping[str, int | str], requests: GroupRequests
) -> dict[str, str]:
    """Ask for each group; where its coordinator has changed, or may have, find it and ask again.

    Returns why groups could not be read, by group id.
    """
    failed: dict[str, str] = {}
    pending, again = dict(coordinators), list[str]()
    for attempt in calls.rounds():
        waiting: list[str] = []
        if attempt:
            pending, waiting = _refresh(calls, again)
        failed |= {group_id: node for group_id, node in pending.items() if isinstance(node, str)}
        again = _ask_once(calls, pending, requests, failed) + waiting
        if not again:
            break
        calls.failover.begin()
    return failed


def _ask_once(
    calls: BrokerCalls,
    coordinators: Mapping[str, int | str],
    requests: GroupRequests,
    failed: dict[str, str],
) -> list[str]:
    """Send each request once; return the groups whose coordinator has changed, or may have."""
    by_node: dict[tuple[int, Any], list[str]] = defaultdict(list)
    for group_id, node in sorted(coordinators.items()):
        if isinstance(node, int):
            by_node[node, requests.kind_of(group_id)].append(group_id)
    batches = []
    for (node, kind), names in sorted(by_node.items()):
        size, make = requests.make(kind)
        batches += [Batch(node, names[first : first + size], make) for first in range(0, len(names), size)]
    again: list[str] = []
    for batch, answer in calls.run_batches(batches):
        if answer.response is None:
            failed.update(dict.fromkeys(batch.names, str(answer.error)))
            again += [] if answer.failed_node is None else batch.names
            continue
        left = set(batch.names)
        for group_id, row in requests.rows_of(batch.names, answer.response):
            if group_id not in left:
                continue
            left.remove(group_id)
            failed.pop(group_id, None)
            error, code = requests.take(group_id, row, answer.at)
            failed |= {} if error is None else {group_id: error}
            again += [group_id] if code in COORDINATOR_ERRORS else []
        failed.update(dict.fromkeys(left, requests.missing))
    return again


def _refresh(calls: BrokerCalls, group_ids: Collection[str]) -> tuple[dict[str, int | str], list[str]]:
    """Find coordinators again; apart, the groups whose coordinator is skipped wait for another one."""
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
