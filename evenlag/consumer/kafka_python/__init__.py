"""What evenlag.consumer needs of the installed kafka-python; an unsuitable version is refused at import."""

from __future__ import annotations

from evenlag.consumer.kafka_python.private_names import TESTED, check_kafka_python

__all__ = ["TESTED", "check_kafka_python"]

check_kafka_python()
