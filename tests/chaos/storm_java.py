"""Consumers of Kafka's Java client among those of a storm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sandbox.workload.journal import read_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# Evenlag's assignor, which notes what it hands out as leader.
_NOTING_ASSIGNOR = "evenlag.sandbox.NotingAssignor"
# Of four consumers: a static member, and a dynamic one with a slow listener.
_STATIC, _SLOW = 0, 3


def is_java(name: str) -> bool:
    """Return whether a consumer is to be in Java."""
    return _number(name) in (_STATIC, _SLOW)


def java_fields(name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a consumer in Java; the dynamic ones ask for the rebalance of a hint."""
    settings = {**extra, "partition_assignment_strategy": _NOTING_ASSIGNOR}
    return {"language": "java", "asks": _number(name) == _SLOW, "extra": settings}


def _number(name: str) -> int:
    return int(name.rpartition("-")[2]) % 4


def figures_of_java(directory: Path, is_java: Callable[[str], bool]) -> dict[str, int]:
    """Return, from their journals, how often members in Java led the group, and how many records they did."""
    events = [
        event
        for path in directory.glob("consumer-*.jsonl")
        if is_java(path.stem)
        for event in read_journal(path)[0]
    ]
    return {
        "led_by_java": sum(event["event"] == "led" for event in events),
        "followed_by_java": sum(event.get("reason") == "FOLLOWED" for event in events),
        "records_processed_by_java": sum(
            event["last"] - event["first"] + 1 for event in events if event["event"] == "processed"
        ),
    }
