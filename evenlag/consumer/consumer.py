"""`HintedConsumer`: a `KafkaConsumer` that follows hints."""

import random
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kafka import KafkaConsumer

from evenlag.consumer._kafka_consumer import ConsumerPort, add_metric, ignore_slow_steps
from evenlag.consumer._kafka_coordinator import Membership
from evenlag.consumer.assignor import HintAssignor
from evenlag.consumer.busy_clock import BusyClock
from evenlag.consumer.cache import HintCache
from evenlag.consumer.events import IGNORED, HintEvent, Reason
from evenlag.consumer.processed_offsets import ProcessedOffsets
from evenlag.consumer.rejoin_requests import RejoinRequests
from evenlag.consumer.watcher import DEFAULT_HINT_TOPIC, HintWatcher

_SYNC_S_PER_MEMBER = 0.01
_SYNC_S_AT_LEAST = 0.05
METRICS_GROUP = "consumer-hint-metrics"
_UNKNOWN = -1.0


class HintedConsumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python ships no types
    """A `KafkaConsumer` whose group follows evenlag's hints and loads; everything else is unchanged.

    Parameters
    ----------
    *topics
        Topics to subscribe to at once; call `subscribe` for patterns.
    group_id
        The group; required.
    hint_topic
        The hint topic.
    hint_key
        The group's signing key (``assignor_core.hint.derive_group_key``), or several during a key rotation.
        With a key, hints and loads that are unsigned or have a wrong signature are ignored.
    required_signing
        Whether `hint_key` is required: without a key, unsigned hints are followed.
    listener
        A rebalance listener for `topics`.
    on_hint_event
        Called with every `HintEvent`; it must return at once.
    report_busy_time
        Whether commits without metadata of their own report how long the application has processed records
        (`assignor_core.busy_time`). Not for an application whose records are processed by other threads than
        the one that polls. Clients of librdkafka may fail on reading any metadata of commits (its issue
        4649).
    partition_assignment_strategy
        Further assignors, for a rolling change from or to them; evenlag's comes first.
    **configs
        As for `KafkaConsumer`.

    Attributes
    ----------
    hint_cache, hint_assignor, hint_watcher
        The parts, for inspection.

    Raises
    ------
    ValueError
        If `group_id` is empty, or a key is, or a required key is missing.

    Examples
    --------
    >>> consumer = hinted_consumer("orders", group_id="billing", bootstrap_servers="...")  # doctest: +SKIP
    """

    def __init__(
        self,
        *topics: str,
        group_id: str,
        hint_topic: str = DEFAULT_HINT_TOPIC,
        hint_key: bytes | Sequence[bytes] | None = None,
        required_signing: bool = False,
        listener: Any = None,
        on_hint_event: Callable[[HintEvent], None] | None = None,
        report_busy_time: bool = False,
        partition_assignment_strategy: Sequence[Any] = (),
        **configs: Any,
    ) -> None:
        if not group_id:
            raise ValueError("hints are for groups: group_id must be given")
        self.hint_cache = HintCache(
            group_id, group_key=hint_key, required_signing=required_signing, on_event=on_hint_event
        )
        self.hint_assignor = HintAssignor(self.hint_cache, client_rack=configs.get("client_rack"))
        self.hint_topic = hint_topic
        self._busy_clock = BusyClock()
        super().__init__(
            group_id=group_id,
            partition_assignment_strategy=[self.hint_assignor, *partition_assignment_strategy],
            **configs,
        )
        ignore_slow_steps(self)
        membership = Membership(
            self,
            on_commit_refused=self._note_refused_commit,
            settle_s=self._settle_s,
            on_join=self._note_join,
            commit_text=(lambda: self._busy_clock.read().text) if report_busy_time else str,
        )
        self._port = ConsumerPort(self, membership)
        self.hint_assignor.attach(self._port)
        # The random waits spread requests over members; they are not security relevant.
        self._requests = RejoinRequests(self.hint_cache, self.hint_assignor, self._port, random.uniform)
        self.hint_watcher = HintWatcher(
            self.hint_cache, self.config, topic=hint_topic, on_tick=self._maybe_ask
        )
        _register_metrics(self, self.hint_cache, self.hint_watcher, self._busy_clock)
        if topics:
            self.subscribe(topics=topics, listener=listener)
        self.hint_watcher.start()

    def subscribe(self, topics: Sequence[str] = (), pattern: Any = None, listener: Any = None) -> None:
        """Subscribe as `KafkaConsumer` does; a pattern never matches the hint topic.

        Parameters
        ----------
        topics
            Names of topics.
        pattern
            A regular expression for names of topics.
        listener
            A rebalance listener. A `ProcessedOffsets` is attached to this consumer.
        """
        if pattern is not None:
            pattern = _pattern_without(self.hint_topic, re.compile(pattern))
        if isinstance(listener, ProcessedOffsets):
            listener.attach(self)
        super().subscribe(topics=topics, pattern=pattern, listener=listener)

    def poll(
        self, timeout_ms: int = 0, max_records: int | None = None, update_offsets: bool = True
    ) -> dict[Any, list[Any]]:
        """Poll as `KafkaConsumer` does; the time until the next call counts as busy if there are records.

        Parameters
        ----------
        timeout_ms, max_records, update_offsets
            As for `KafkaConsumer`, whose iterator calls this method, too.

        Returns
        -------
        dict of TopicPartition to list of ConsumerRecord
            The records.
        """
        self._busy_clock.stop()
        records: dict[Any, list[Any]] = super().poll(timeout_ms, max_records, update_offsets)
        if records:
            self._busy_clock.start()
        return records

    def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """Stop the watcher and close the consumer.

        Parameters
        ----------
        autocommit
            Whether to commit consumed offsets if auto-commit is on.
        timeout_ms
            Time limit in milliseconds; None for kafka-python's default.
        """
        self.hint_watcher.stop()
        super().close(autocommit=autocommit, timeout_ms=timeout_ms)

    def _settle_s(self) -> float:
        """Return an estimate of how long all members need to fetch an assignment, in seconds."""
        hint = self.hint_cache.view.usable_hint
        num_members = 0 if hint is None else len(hint.payload.assignment)
        longest = self._port.heartbeat_interval_s / 2
        return min(max(_SYNC_S_AT_LEAST, _SYNC_S_PER_MEMBER * num_members), longest)

    def _note_refused_commit(self, partitions: list[tuple[str, int]]) -> None:
        names = ", ".join(f"{topic}-{number}" for topic, number in partitions)
        self.hint_cache.note(Reason.COMMIT_REFUSED, None, names)

    def _maybe_ask(self) -> None:
        """Request a rebalance if one is required; runs on the watcher's thread."""
        self._requests.step(time.monotonic(), time.time_ns() // 1_000_000)

    def _note_join(self) -> None:
        """Record what a join is sent with; runs on the I/O thread, and not before the first subscription."""
        self._requests.note_join()


# The name by which applications make one.
hinted_consumer = HintedConsumer


def _pattern_without(topic: str, pattern: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern that matches what another one does, but not a topic."""
    # Flags may stand at the start only, in verbose patterns after spaces and comments; `flags` has them.
    ignored, end = (r"\s|#.*|", "\n") if pattern.flags & re.VERBOSE else ("", "")
    text = re.sub(rf"^(?:{ignored}\(\?[aiLmsux]+\))+", "", pattern.pattern)
    # The new line ends a comment at the end.
    return re.compile(rf"(?!{re.escape(topic)}\Z)(?:{text}{end})", pattern.flags)


def _register_metrics(consumer: Any, cache: HintCache, watcher: HintWatcher, clock: BusyClock) -> None:
    """Add the hint metrics to a consumer's; does nothing if its metrics are disabled.

    ``hint-<reason>-total`` counts each `Reason` (lower case, with hyphens): ``hint-followed-total``, or
    ``hint-asked-total``, the rebalances that this member requested. ``hint-ignored-total`` sums the reasons
    for which a hint was not followed. ``hint-cache-age-seconds`` is the time since the watcher last verified
    that it has read all hints (-1: never). ``hint-sequence`` is the sequence of the current hint (-1: none).
    ``hint-loads-age-seconds`` is the time since the current loads were measured (-1: none).
    ``hint-busy-seconds-total`` is how long the application has processed records.
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

    def cache_age_s() -> float:
        return _UNKNOWN if watcher.age_s is None else watcher.age_s

    add = partial(add_metric, consumer, METRICS_GROUP)
    for reason in Reason:
        name = reason.lower().replace("_", "-")
        add(f"hint-{name}-total", f"How often {reason} was noted", partial(count_of, reason))
    add("hint-ignored-total", "Hints not followed, for any reason", partial(count_of, *IGNORED))
    last_read = "Time since the hint topic was last known to be read to its end"
    add("hint-cache-age-seconds", last_read, cache_age_s)
    add("hint-sequence", "The sequence of the hint that counts", sequence)
    add("hint-loads-age-seconds", "Time since the current loads were measured", loads_age_s)
    processed = "Time in which records were processed"
    add("hint-busy-seconds-total", processed, lambda: clock.read().busy_ms / 1000)
