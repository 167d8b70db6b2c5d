"""Hint metrics in kafka-python's own registry, next to the consumer's other metrics."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from evenlag.consumer._kafka_consumer import add_metric
from evenlag.consumer.events import IGNORED, Reason

if TYPE_CHECKING:
    from typing import Any

    from evenlag.consumer.cache import HintCache
    from evenlag.consumer.watcher import HintWatcher

GROUP = "consumer-hint-metrics"
_UNKNOWN = -1.0


def register_metrics(consumer: Any, cache: HintCache, watcher: HintWatcher) -> None:
    """Add the hint metrics to a consumer's; does nothing if its metrics are disabled.

    ``hint-<reason>-total`` counts each `Reason` (lower case, with hyphens): ``hint-followed-total``, or
    ``hint-asked-total``, the rebalances that this member requested. ``hint-ignored-total`` sums the reasons
    for which a hint was not followed. ``hint-cache-age-seconds`` is the time since the watcher last verified
    that it has read all hints (-1: never). ``hint-sequence`` is the sequence of the current hint (-1: none).
    ``hint-loads-age-seconds`` is the time since the current loads were measured (-1: none).
    """

    def count_of(*reasons: Reason) -> float:
        counts = cache.counts
        return float(sum(counts.get(reason, 0) for reason in reasons))

    def sequence() -> float:
        hint = cache.view.usable_hint
        return _UNKNOWN if hint is None else float(hint.sequence)

    def loads_age_s() -> float:
        loads = cache.view.usable_loads
        return _UNKNOWN if loads is None else max(0.0, time.time() - loads.payload.measured_at_ms / 1000)

    for reason in Reason:
        name = f"hint-{reason.value.lower().replace('_', '-')}-total"
        add_metric(consumer, GROUP, name, f"How often {reason.value} was noted", partial(count_of, reason))
    add_metric(
        consumer,
        GROUP,
        "hint-ignored-total",
        "Hints not followed, for any reason",
        lambda: count_of(*IGNORED),
    )
    add_metric(
        consumer,
        GROUP,
        "hint-cache-age-seconds",
        "Time since the hint topic was last known to be read to its end",
        lambda: _UNKNOWN if watcher.age_s is None else watcher.age_s,
    )
    add_metric(consumer, GROUP, "hint-sequence", "The sequence of the hint that counts", sequence)
    add_metric(
        consumer, GROUP, "hint-loads-age-seconds", "Time since the current loads were measured", loads_age_s
    )
