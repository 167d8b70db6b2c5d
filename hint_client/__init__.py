"""Let a Kafka consumer group follow evenlag's hints: one line to adopt, no Spark, no Airflow.

>>> from hint_client import hinted_consumer
>>> consumer = hinted_consumer("orders", group_id="billing", bootstrap_servers="...")  # doctest: +SKIP
"""

from __future__ import annotations

from hint_client.assignor import HintAssignor
from hint_client.cache import HintCache
from hint_client.consumer import HintedConsumer, hinted_consumer
from hint_client.events import HintEvent, Reason
from hint_client.listener import ProcessedOffsets
from hint_client.watcher import HintWatcher

__all__ = [
    "HintAssignor",
    "HintCache",
    "HintEvent",
    "HintWatcher",
    "HintedConsumer",
    "ProcessedOffsets",
    "Reason",
    "hinted_consumer",
]
