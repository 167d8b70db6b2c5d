"""Make the archive of a broker's classes: ``python -m sandbox.kafka.class_archive_training``.

It runs a broker for a few requests; the JVM writes the archive when it ends.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

from evenlag.safe_text import printable_lines
from sandbox.jars import JarsError
from sandbox.kafka.broker import Broker, BrokerError
from sandbox.kafka.class_archive import QUIET, archive_file

_TIMEOUT_S: Final = 60


def main() -> int:
    """Make the archive, unless it exists.

    Returns 0 when the archive exists; 1 when no broker can be started, or it wrote none.
    """
    try:
        archive = archive_file()
        if not archive.is_file():
            _make(archive)
    except (JarsError, BrokerError) as error:
        print(f"no class archive of the broker: {printable_lines(str(error))}", file=sys.stderr)
        return 1
    return 0 if archive.is_file() else 1


def _make(archive: Path) -> None:
    # Beside the archive: a file is renamed within one disk only.
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".kafka-classes-") as folder:
        fresh = Path(folder) / "broker.jsa"
        options = [f"-XX:ArchiveClassesAtExit={fresh}", *QUIET]
        with Broker.start(Path(folder) / "node", sasl_ssl=True, jvm_options=options) as broker:
            for login in broker.logins.values():
                _use(login.client_config())
        if fresh.is_file():
            fresh.chmod(0o444)
            fresh.replace(archive)


def _use(config: dict[str, str]) -> None:
    """Send what nearly every test sends: a topic, a record, a group that reads and commits it."""
    admin = KafkaAdminClient(**config)
    admin.create_topics([NewTopic("t", num_partitions=2, replication_factor=1)])
    producer = KafkaProducer(**config, acks="all")
    producer.send("t", b"x", partition=0).get(timeout=_TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        "t", **config, group_id="g", auto_offset_reset="earliest", consumer_timeout_ms=_TIMEOUT_S * 1_000
    )
    next(consumer)
    consumer.commit()
    admin.describe_groups(["g"])
    consumer.close()
    admin.close()


if __name__ == "__main__":
    sys.exit(main())
