"""A consumer process of confluent-kafka, which tells what it does.

``member.py PROTOCOL SERVERS GROUP TOPIC INSTANCE``, with one of `PROTOCOLS`.

A line on standard output is ``assigned|revoked|lost|record`` and JSON: partitions or (partition, offset), and
the time on the machine's monotonic clock. ``-`` as the instance makes it a dynamic member.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from typing import Any


def tell(kind: str, content: Any) -> None:
    """Write a line at once: the process may be killed."""
    sys.stdout.write(f"{kind} {json.dumps([content, time.monotonic_ns()])}\n")
    sys.stdout.flush()


PROTOCOLS: dict[str, dict[str, str]] = {
    "--requested": {"group.protocol": "consumer", "group.remote.assignor": "evenlag"},
    "--default-assignor": {"group.protocol": "consumer"},
}


def main(protocol: str, servers: str, group_id: str, topic: str, instance: str) -> None:
    """Consume until told to end."""
    from confluent_kafka import Consumer

    ended: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda signum, _: ended.append(signum))
    config = {
        "bootstrap.servers": servers,
        "group.id": group_id,
        **PROTOCOLS[protocol],
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 2000,
    }
    consumer = Consumer(config if instance == "-" else config | {"group.instance.id": instance})
    consumer.subscribe(
        [topic],
        on_assign=lambda _, given: tell("assigned", [tp.partition for tp in given]),
        # Told before it returns: from then on another may have them.
        on_revoke=lambda _, taken: tell("revoked", [tp.partition for tp in taken]),
        on_lost=lambda _, taken: tell("lost", [tp.partition for tp in taken]),
    )
    while not ended:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            tell("record", [message.partition(), message.offset()])
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:6])
