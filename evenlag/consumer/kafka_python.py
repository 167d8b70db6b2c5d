"""The private names of kafka-python that `evenlag.consumer` uses, checked at its import.

kafka-python may change them in any release. Without this check a change would show in a rebalance of an
application that runs: as an exception in ``poll()``, or as a commit that is not held back. So an application
with an unsuitable version does not start, and the error names the versions that are tested.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from inspect import unwrap
from typing import Any, Final

import kafka

TESTED: Final = ("3.0.1", "3.0.12")
"""The oldest and the newest version of kafka-python that the tests run with."""

_NUM_SHOWN: Final = 3
_COORDINATOR: Final = "kafka.coordinator.consumer:ConsumerCoordinator"

PARAMETERS: Final[dict[str, dict[str, int]]] = {
    _COORDINATOR: {
        "_commit_offsets_sync_async": 2,
        "_do_heartbeat": 0,
        "_do_join_and_sync_async": 0,
        "_enable_heartbeat": 0,
        "_handle_heartbeat_response": 2,
        "_handle_offset_commit_response": 3,
        "_invoke_rebalance_listener_async": 2,
        "_lookup_assignor": 1,
        "_maybe_auto_commit_offsets_async": 0,
        "_on_close_prepare_async": 0,
        "_on_join_complete_async": 4,
        "_on_join_prepare_async": 3,
        "_process_join_group_response": 2,
        "_send_offset_commit_request": 1,
        "coordinator": 0,
        "ensure_coordinator_ready_async": 1,
        "generation_if_stable": 0,
        "group_metadata": 0,
        "group_protocols": 0,
        "maybe_leave_group_async": 2,
        "poll": 1,
        "poll_heartbeat": 0,
        "request_rejoin": 0,
        "reset_generation": 1,
        "stable": 0,
        "time_to_next_poll": 0,
    },
    "kafka.coordinator.base:Generation": {"is_lost": 0},
    "kafka.coordinator.heartbeat:Heartbeat": {"received_heartbeat": 0, "session_timeout_expired": 0},
    "kafka.consumer.subscription_state:SubscriptionState": {
        "all_consumed_offsets": 0,
        "assign_from_subscribed": 1,
        "assigned_partitions": 0,
        "mark_pending_revocation": 1,
        "partitions_auto_assigned": 0,
    },
    "kafka.cluster:ClusterMetadata": {
        "broker_metadata": 1,
        "brokers": 0,
        "partitions_for_topic": 1,
        "request_update": 0,
        "set_topics": 1,
        "topic_id": 1,
    },
    "kafka.net.manager:KafkaConnectionManager": {"wait_for": 2},
    "kafka.consumer.fetcher:Fetcher": {"close": 0, "in_flight_fetches": 0},
    "kafka.consumer.group:KafkaConsumer": {"poll": 3},
}
"""Methods that are called or replaced, with the number of their parameters besides ``self``."""

ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "kafka.consumer.group:KafkaConsumer": (
        *("_cluster", "_coordinator", "_fetcher", "_manager", "_metrics", "_net", "_subscription", "config"),
    ),
    "kafka.coordinator.base:BaseCoordinator": (
        *("_generation", "_manager", "_net", "coordinator_id", "heartbeat", "rejoin_needed", "rejoining"),
    ),
    _COORDINATOR: (
        *(
            "_async_commit_fenced",
            "_is_leader",
            "_offset_fetch_futures",
            "_rebalance_protocol",
            "_subscription",
        ),
    ),
    "kafka.consumer.subscription_state:SubscriptionState": (
        *("rebalance_listener", "subscription", "subscription_type"),
    ),
    "kafka.consumer.fetcher:Fetcher": ("_completed_fetches", "_next_partition_records"),
    "kafka.net.manager:KafkaConnectionManager": ("_net",),
}
"""Attributes that the constructor of a class sets."""

OTHERS: Final = (
    "kafka.consumer.fetcher:Fetcher.PartitionRecords._unpack_records",
    "kafka.consumer.subscription_state:SubscriptionType.USER_ASSIGNED",
    "kafka.coordinator.assignors.abstract:RebalanceProtocol.COOPERATIVE",
    "kafka.metrics:AnonMeasurable",
    "kafka.net.manager:KafkaConnectionManager.call_soon",
    "kafka.net.manager:KafkaConnectionManager.run",
    "kafka.net.selector:NetworkSelector.poll",
    "kafka.net.selector:NetworkSelector.stop",
    "kafka.partitioner.default:murmur2",
    "kafka.protocol.consumer.metadata:ConsumerProtocolAssignment.decode",
    "kafka.util:Timer",
)
"""Names that only have to exist."""


def missing_names() -> list[str]:
    """Return what the installed kafka-python lacks or has otherwise, sorted; empty: nothing."""
    return sorted({*_missing_methods(), *_missing_attributes(), *_missing_others()})


def check_kafka_python() -> None:
    """Refuse a kafka-python that is older than tested, or lacks a name that `evenlag.consumer` needs."""
    if _numbers(kafka.__version__) < _numbers(TESTED[0]):
        _refuse(f"it is older than {TESTED[0]}")
    missing = missing_names()
    if missing:
        more = f" and {len(missing) - _NUM_SHOWN} more" if len(missing) > _NUM_SHOWN else ""
        _refuse(f"{', '.join(missing[:_NUM_SHOWN])}{more} are missing or differ")


def _refuse(why: str) -> None:
    raise ImportError(
        f"evenlag.consumer cannot work with kafka-python {kafka.__version__}: {why}. "
        f"Install a tested version: kafka-python>={TESTED[0]},<={TESTED[1]}"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def _missing_methods() -> Iterator[str]:
    for owner, methods in PARAMETERS.items():
        for name, count in methods.items():
            method = _find(f"{owner}.{name}")
            code = None if method is None else unwrap(method).__code__
            if code is None or code.co_argcount + code.co_kwonlyargcount != count + 1:
                yield _short(f"{owner}.{name}")


def _missing_attributes() -> Iterator[str]:
    for owner, names in ATTRIBUTES.items():
        made = _find(f"{owner}.__init__")
        # A constructor has the names of the attributes that it sets, as all that it looks up.
        known = () if made is None else unwrap(made).__code__.co_names
        cls = _find(owner)
        yield from (
            _short(f"{owner}.{name}") for name in names if name not in known and not hasattr(cls, name)
        )


def _missing_others() -> Iterator[str]:
    return (_short(path) for path in OTHERS if _find(path) is None)


def _find(path: str) -> Any:
    """Return the object of a path ``module:name.name``; None if it does not exist."""
    module, _, names = path.partition(":")
    try:
        found: Any = import_module(module)
    except ImportError:
        return None
    for name in names.split("."):
        found = getattr(found, name, None)
    return found


def _short(path: str) -> str:
    return path.partition(":")[2]


check_kafka_python()
