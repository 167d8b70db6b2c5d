"""After publishing: have the coordinators of groups of the consumer protocol take their hints up.

A coordinator asks evenlag's plug-in when its group changes, and at no other time, so it is made to ask
(:mod:`spark_jobs.consumer_group_trigger`). The plug-in may not have read the hint by then, and nobody is told
whether a hint was followed: the group's target is looked at, and the coordinator asked again, at most three
times a plan. All of it is bounded in time, and none of it fails a publishing: the hint stands, and the
coordinator finds it when the group changes next.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spark_jobs.consumer_group_trigger import ask_coordinator
from spark_jobs.errors import JobError
from spark_jobs.kafka_connection import kafka_errors, librdkafka_settings, reading_limits
from spark_jobs.live_groups import read_live_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assignor_core.hint import HintPayload
    from spark_jobs.live_groups import LiveGroup
    from spark_jobs.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

# As a member of the classic protocol asks: at most three times a plan.
_MAX_ASKS: Final = 3
_AT_ONCE: Final = 8
# What a coordinator needs to work out a target, its pause between two of them (one second) included.
_TAKE_UP_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.5
_LEAST_LOOK_S: Final = 5.0


def ask_until_taken_up(
    client: Any, cluster: ClusterSettings, payloads: Mapping[str, HintPayload], *, timeout_s: float = 60.0
) -> dict[str, str]:
    """Ask the coordinators of groups until their targets are as hinted.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``, to look at the targets.
    cluster
        Its settings.
    payloads
        By group, what stands on the hint topic for it; all of them of the consumer protocol.
    timeout_s
        For all of them together.

    Returns
    -------
    dict
        By group, why its hint is not taken up so far; a group whose target is as hinted is left out. Nothing
        is ever raised.
    """
    waiting = dict.fromkeys(sorted(payloads), "its coordinator was not asked in time")
    if not waiting:
        return {}
    deadline = time.monotonic() + timeout_s
    try:
        # A repeat finds groups that have taken their hint up already.
        waiting = _without_taken_up(client, cluster, payloads, waiting, deadline)
        for _ in range(_MAX_ASKS):
            if not waiting or time.monotonic() >= deadline:
                break
            waiting = _ask_all(cluster, waiting, deadline)
            waiting = _wait_for_targets(client, cluster, payloads, waiting, deadline)
    except Exception as error:  # noqa: BLE001 - the hints stand, whatever is wrong here
        _LOG.exception("coordinators could not be asked")
        waiting = dict.fromkeys(waiting, f"unexpected {type(error).__name__}: {error}")
    for group_id, reason in waiting.items():
        _LOG.warning("hint not taken up so far: %s", reason, extra={"group_id": group_id})
    return waiting


def is_taken_up(payload: HintPayload, group: LiveGroup) -> bool:
    """Whether a coordinator's target is as hinted."""
    wanted = {
        key: {topic: sorted(numbers) for topic, numbers in by_topic.items() if len(numbers)}
        for key, by_topic in payload.assignment.items()
    }
    target = {
        key: {topic: sorted(numbers) for topic, numbers in by_topic.items() if numbers}
        for key, by_topic in group.held.items()
    }
    return all(target.get(key) == by_topic for key, by_topic in wanted.items() if by_topic)


def _ask_all(cluster: ClusterSettings, waiting: Mapping[str, str], deadline: float) -> dict[str, str]:
    """Ask about each group; a few at once, for each takes a second, and most of it is waiting."""
    try:
        settings = librdkafka_settings(cluster)
    except JobError as error:
        return dict.fromkeys(waiting, str(error))

    def ask(group_id: str) -> str:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return waiting[group_id]
        try:
            ask_coordinator(settings, group_id, cluster.hint_topic, timeout_s=left_s)
        except JobError as error:
            return str(error)
        return "its coordinator was asked, and its target is not as hinted"

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(waiting, pool.map(ask, waiting), strict=True))


def _wait_for_targets(
    client: Any,
    cluster: ClusterSettings,
    payloads: Mapping[str, HintPayload],
    waiting: dict[str, str],
    deadline: float,
) -> dict[str, str]:
    """What is left after a moment; looks once even when the time is over."""
    until = min(deadline, time.monotonic() + _TAKE_UP_S)
    while True:
        waiting = _without_taken_up(client, cluster, payloads, waiting, deadline)
        if not waiting or time.monotonic() >= until:
            return waiting
        time.sleep(_LOOK_EVERY_S)


def _without_taken_up(
    client: Any,
    cluster: ClusterSettings,
    payloads: Mapping[str, HintPayload],
    waiting: dict[str, str],
    deadline: float,
) -> dict[str, str]:
    limits = reading_limits(cluster)
    left_s = max(_LEAST_LOOK_S, deadline - time.monotonic())
    limits = replace(limits, deadline_s=left_s, request_timeout_s=min(limits.request_timeout_s, left_s))
    try:
        with kafka_errors(cluster):
            live = read_live_groups(client, (), of_brokers=waiting, limits=limits)
    except JobError as error:
        return dict.fromkeys(waiting, f"its target cannot be seen: {error}")
    return {
        group_id: reason
        for group_id, reason in waiting.items()
        if not is_taken_up(payloads[group_id], live[group_id])
    }
