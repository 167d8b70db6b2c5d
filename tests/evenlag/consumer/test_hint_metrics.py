"""Hints show in kafka-python's own metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from evenlag.consumer import HintCache, Reason
from evenlag.consumer.busy_clock import BusyClock
from evenlag.consumer.consumer import METRICS_GROUP, _register_metrics
from evenlag.consumer.watcher import HintWatcher
from tests.evenlag.consumer.test_record_marks import loads

if TYPE_CHECKING:
    from collections.abc import Callable


def test_what_was_noted_shows_among_the_consumers_metrics(
    offline_consumer: Callable[..., Any],
) -> None:
    consumer, cache = offline_consumer(), HintCache("g")
    watcher = HintWatcher(cache, {})
    _register_metrics(consumer, cache, watcher, BusyClock())
    cache.note(Reason.FOLLOWED, "plan")
    cache.note(Reason.ASKED, "plan")
    cache.note(Reason.FINGERPRINT, "plan")
    cache.apply_hint(b"no hint")
    shown = consumer.metrics()[METRICS_GROUP]
    assert shown["hint-followed-total"] == 1
    assert shown["hint-asked-total"] == 1
    assert shown["hint-malformed-total"] == 1
    assert shown["hint-ignored-total"] == 2
    assert shown["hint-cache-age-seconds"] == -1
    assert shown["hint-sequence"] == -1
    assert shown["hint-loads-age-seconds"] == -1
    assert shown["hint-busy-seconds-total"] == 0
    cache.apply_loads(loads(time.time_ns() // 1_000_000 - 5_000))
    assert 5 <= consumer.metrics()[METRICS_GROUP]["hint-loads-age-seconds"] < 60
    watcher._group.has_read = True
    assert 0 <= consumer.metrics()[METRICS_GROUP]["hint-cache-age-seconds"] < 60
    assert {f"hint-{reason.value.lower().replace('_', '-')}-total" for reason in Reason} <= set(shown)


def test_a_consumer_without_metrics_works_without(offline_consumer: Callable[..., Any]) -> None:
    consumer, cache = offline_consumer(metrics_enabled=False), HintCache("g")
    _register_metrics(consumer, cache, HintWatcher(cache, {}), BusyClock())
    assert consumer.metrics() is None
