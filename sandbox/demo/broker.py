"""The demo's broker: one whose clients assign partitions among themselves, or one that assigns itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sandbox.kafka.broker import Broker
from sandbox.kafka.broker_plugin import ASSIGNOR_CLASS, build_plugin

if TYPE_CHECKING:
    from pathlib import Path

CONSUMER: Final = "consumer"
PROTOCOLS: Final = ("classic", CONSUMER)
# Kafka's own defaults are for groups of thousands: members hear of a target within five seconds.
_PROPERTIES: Final = {
    "group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


def start_demo_broker(folder: Path, protocol: str) -> Broker:
    """Start the demo's broker in a folder of its own.

    Parameters
    ----------
    folder
        The demo's.
    protocol
        What the demo's consumers speak; for ``consumer`` the broker has evenlag's plug-in, built for it.

    Raises
    ------
    BrokerError, JarsError
        When it does not start, or the plug-in cannot be built.
    """
    if protocol != CONSUMER:
        return Broker.start(folder / "broker")
    jar = build_plugin(folder / "plugin")
    return Broker.start(folder / "broker", properties=_PROPERTIES, class_path=[jar])
