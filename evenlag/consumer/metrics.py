"""What hints do, as metrics in kafka-python's own registry, beside the consumer's others."""

from __future__ import annotations

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
    """Add the metrics to a consumer's; does nothing when its metrics are switched off.

    ``hint-<reason>-total`` counts each `Reason` (lower case, with hyphens), so ``hint-followed-total`` and
    ``hint-asked-total``, the rebalances that this member asked for. ``hint-ignored-total`` sums those for
    which a hint was not followed, ``hint-cache-age-seconds`` is the time since the watcher last made sure
    that it has read all hints (-1: it never did), and ``hint-sequence`` the sequence of the hint that
    counts (-1: none).

    Parameters
    ----------
    consumer
        The `KafkaConsumer`; its ``metrics()`` shows them under ``consumer-hint-metrics``.
    cache, watcher
        Its own.
    """

    def count_of(*reasons: Reason) -> float:
        counts = cache.counts
        return float(sum(counts.get(reason, 0) for reason in reasons))

    def sequence() -> float:
        hint = cache.view.usable_hint
        return _UNKNOWN if hint is None else float(hint.sequence)

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
