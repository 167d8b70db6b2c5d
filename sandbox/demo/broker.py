"""The demo's broker, for a group of the classic or of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sandbox.kafka.broker import Broker
from sandbox.kafka.jvm_jars import ASSIGNOR_CLASS, build_plugin

if TYPE_CHECKING:
    from pathlib import Path

CONSUMER: Final = "consumer"
PROTOCOLS: Final = ("classic", CONSUMER)
JAVA: Final = "java"
CLIENTS: Final = ("python", JAVA)
# Kafka's defaults suit groups of thousands: members receive a target within five seconds.
_PROPERTIES: Final = {
    "group.consumer.assignors": f"uniform,range,{ASSIGNOR_CLASS}",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}


def start_demo_broker(folder: Path, protocol: str) -> Broker:
    """Start the demo's broker in its own folder."""
    if protocol != CONSUMER:
        return Broker.start(folder / "broker")
    jar = build_plugin(folder / "plugin")
    return Broker.start(folder / "broker", properties=_PROPERTIES, class_path=[jar])
