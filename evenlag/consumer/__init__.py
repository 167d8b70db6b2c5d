"""Kafka consumer groups that follow evenlag's hints. One line to adopt, without Spark or Airflow."""

# First: the other modules import what an unsuitable kafka-python may lack.
from evenlag.consumer.kafka_python import TESTED as TESTED_KAFKA_PYTHON

# isort: split
from evenlag.consumer.assignor import HintAssignor
from evenlag.consumer.cache import HintCache
from evenlag.consumer.consumer import HintedConsumer, hinted_consumer
from evenlag.consumer.events import HintEvent, Reason
from evenlag.consumer.processed_offsets import ProcessedOffsets
from evenlag.consumer.watcher import HintWatcher

__all__ = [
    "TESTED_KAFKA_PYTHON",
    "HintAssignor",
    "HintCache",
    "HintEvent",
    "HintWatcher",
    "HintedConsumer",
    "ProcessedOffsets",
    "Reason",
    "hinted_consumer",
]
