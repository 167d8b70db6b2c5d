"""One consumer's group in a reader of the hint topic: what is read for it goes into its hint cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from assignor_core.hint import STOP_KEY, hint_key
from assignor_core.loads import loads_key
from evenlag.consumer.cache import HintCache


class WatchedGroup:
    """Called by a `HintReader` on its thread.

    source: The hint topic, how to connect, and the interval between two checks of the topic, in seconds.
        Groups of one process with equal ones have one reader.
    on_tick: Called about twice a second and after each record, with or without a connection.
    forget_after_s: How long a hint outlives the connection to its topic, in seconds.
    """

    def __init__(
        self,
        cache: HintCache,
        source: tuple[str, Mapping[str, Any], float],
        on_tick: Callable[[], None] | None,
        forget_after_s: float,
    ) -> None:
        self.cache, self.source, self.forget_after_s = cache, source, forget_after_s
        # The loads are in the partition of the hint's key, not in that of their own.
        self.key = hint_key(cache.group_id)
        self._on_tick = on_tick
        self._apply = {
            STOP_KEY.encode(): cache.apply_stop,
            loads_key(cache.group_id): cache.apply_loads,
            self.key: cache.apply_hint,
        }
        self._last_contact_s = time.monotonic()
        self.has_read = False

    @property
    def keys(self) -> Iterable[bytes]:
        """The keys of the records that count for the group."""
        return self._apply

    @property
    def age_s(self) -> float:
        """Seconds since the brokers last confirmed the topic."""
        return time.monotonic() - self._last_contact_s

    def tick(self) -> None:
        """Do what is due with or without a connection."""
        self.cache.promote()
        if self._on_tick is not None:
            self._on_tick()

    def start_topic(self, topic_id: str | None, cluster_id: str | None) -> None:
        """Record which topic is read next."""
        self.cache.start_topic(topic_id)
        self.cache.cluster_id = cluster_id or self.cache.cluster_id

    def apply_all(self, values: Mapping[bytes, bytes | None]) -> None:
        """Apply the last value of each key: the topic is read to its end."""
        for key, apply in self._apply.items():
            apply(values[key])
        self.has_read = True
        self.cache.mark_ready()

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a record."""
        self._apply[key](value)

    def note_contact(self, ago_s: float) -> None:
        """Record that the topic was there so many seconds ago."""
        self._last_contact_s = max(self._last_contact_s, time.monotonic() - ago_s)

    def note_failure(self, why: str) -> None:
        """Record that the topic cannot be read."""
        self.cache.mark_unavailable(why, forget=self.age_s > self.forget_after_s)
