"""Shows that ``poll()`` returns no records during a cooperative rebalance: give it the bootstrap servers."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from itertools import pairwise

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

NAME = f"poll-during-rebalance-{uuid.uuid4()}"
PROCESSING_S = 10.0


def consume(servers: str, processing_s: float, times: list[float]) -> None:
    """Poll permanently; note when records were returned."""
    consumer = KafkaConsumer(
        NAME,
        bootstrap_servers=servers,
        group_id=NAME,
        heartbeat_interval_ms=500,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )
    while True:
        if consumer.poll(timeout_ms=1000):
            times.append(time.monotonic())
            time.sleep(processing_s)


def produce(servers: str) -> None:
    """Send ten records a second to each partition permanently."""
    producer = KafkaProducer(bootstrap_servers=servers)
    while True:
        for partition in range(3):
            producer.send(NAME, b"x", partition=partition)
        time.sleep(0.1)


def start(*arguments: object) -> list[float]:
    """Start a thread that consumes; return the list of times that it fills."""
    times: list[float] = []
    threading.Thread(target=consume, args=(*arguments, times), daemon=True).start()
    return times


def main(servers: str) -> None:
    """Let a third consumer join a fast one and a slow one, and print how long the fast one got nothing."""
    KafkaAdminClient(bootstrap_servers=servers).create_topics([NewTopic(NAME, 3, 1)])
    threading.Thread(target=produce, args=(servers,), daemon=True).start()
    fast = start(servers, 0.0)
    slow = start(servers, PROCESSING_S)
    while not slow[1:]:  # both are members, and the slow one has just got a batch
        time.sleep(0.1)
    joined_s = time.monotonic()
    newcomer = start(servers, 0.0)
    while not newcomer or fast[-1] < newcomer[0]:
        time.sleep(0.1)
    seen = [joined_s, *(at_s for at_s in list(fast) if at_s > joined_s)]
    longest_s = max(after - before for before, after in pairwise(seen))
    sys.stdout.write(f"no records for {longest_s:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1])
