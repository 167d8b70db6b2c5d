"""Keeps the hint cache up to date: one thread with one connection."""

from __future__ import annotations

import threading
import time
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition

from assignor_core.hint import STOP_KEY, hint_key
from assignor_core.loads import loads_key
from assignor_core.topic_reading import READER_CONFIG, records_until, skip_compressed
from evenlag.consumer._kafka_consumer import (
    fetch_partition_count,
    hint_partition,
    known_cluster_id,
    known_topic_id,
)
from evenlag.consumer.events import Reason, named_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlag.consumer.cache import HintCache

_log = named_logger(__name__)

DEFAULT_HINT_TOPIC = "evenlag-hints"
_STOP_KEY = STOP_KEY.encode()
_TICK_S = 0.2
_CHECK_EVERY_S = 15.0
_TIMEOUT_MS = 10_000
# How long the first reading may make no progress.
_STALL_S = 30.0
# A fetch waits this long at the broker. It returns at once when a hint arrives, and costs little otherwise.
_FETCH_WAIT_MS = 5_000
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 1.0, 30.0
# How long a hint outlives the connection to its topic: it covers a broker restart, not a lost permission.
_FORGET_AFTER_S = 30.0
# Settings that the watcher's own connection copies from the consumer.
_SHARED_CONFIG = (
    "bootstrap_servers", "client_dns_lookup", "security_protocol", "ssl_context", "ssl_check_hostname",
    "ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers",
    "sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_kerberos_name",
    "sasl_kerberos_service_name", "sasl_kerberos_domain_name", "sasl_oauth_token_provider", "proxy_url",
    "socks5_proxy", "socket_options", "api_version", "reconnect_backoff_ms", "reconnect_backoff_max_ms",
)  # fmt: skip


class _TopicMissingError(Exception):
    """Raised when the hint topic does not exist."""


class HintWatcher:
    """Reads its group's partition of the hint topic from the start, committed records only.

    Hint and loads of the group count in that partition only. Compressed batches are skipped. It is in no
    group, creates no topic, and survives the restart of a broker. If the topic cannot be read for half a
    minute, or does not exist, the group continues without a hint, as if it did not use evenlag.

    Parameters
    ----------
    cache
        The cache that it updates.
    config
        The consumer's configuration; the connection settings are copied.
    topic
        The hint topic's name.
    on_tick
        Called about five times a second on the watcher's thread, with or without a connection.
    check_every_s
        Interval between checks that the topic still exists and is the same, in seconds.
    forget_after_s
        How long a hint outlives the connection to its topic, in seconds.
    """

    def __init__(
        self,
        cache: HintCache,
        config: Mapping[str, Any],
        *,
        topic: str = DEFAULT_HINT_TOPIC,
        on_tick: Callable[[], None] | None = None,
        check_every_s: float = _CHECK_EVERY_S,
        forget_after_s: float = _FORGET_AFTER_S,
    ) -> None:
        self.cache = cache
        self.topic = topic
        self._config = {name: config[name] for name in _SHARED_CONFIG if name in config}
        self._on_tick = on_tick
        self._check_every_s = check_every_s
        self._forget_after_s = forget_after_s
        self._key = hint_key(cache.group_id)
        # The loads are in the partition of the hint's key, not in that of their own.
        self._apply = {
            _STOP_KEY: cache.apply_stop,
            loads_key(cache.group_id): cache.apply_loads,
            self._key: cache.apply_hint,
        }
        self._stopping = threading.Event()
        self._last_contact_s = time.monotonic()
        self._has_read = False
        self._thread = threading.Thread(target=self._run, name=f"evenlag-hints-{cache.group_id}", daemon=True)

    @property
    def age_s(self) -> float | None:
        """Seconds since the watcher last verified that it has read all hints; None before the first time."""
        return time.monotonic() - self._last_contact_s if self._has_read else None

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop the thread and close its connection.

        Parameters
        ----------
        timeout_s
            How long to wait for the thread, in seconds.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                self._read_topic()
            except _TopicMissingError as error:
                self.cache.mark_unavailable(str(error), forget=True)
            except Exception as error:  # noqa: BLE001  # any error of the client: retry later
                forget = time.monotonic() - self._last_contact_s > self._forget_after_s
                self.cache.mark_unavailable(f"{type(error).__name__}: {error}", forget=forget)
            if time.monotonic() - started > _MAX_BACKOFF_S:
                backoff_s = _FIRST_BACKOFF_S
            self._wait(backoff_s)
            backoff_s = min(2 * backoff_s, _MAX_BACKOFF_S)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._stopping.wait(_TICK_S):
            self._tick()

    def _tick(self) -> None:
        self.cache.promote()
        if self._on_tick is not None:
            try:
                self._on_tick()
            except Exception:  # noqa: BLE001  # the thread must continue
                _log.exception("asking for a rebalance failed")

    def _connect(self) -> Any:
        consumer = KafkaConsumer(
            **self._config,
            **READER_CONFIG,
            client_id=f"evenlag-hints-{self.cache.group_id}",
            exclude_internal_topics=False,
            metrics_enabled=False,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            # A hint can be as large as a record may be; there are few hints.
            max_poll_records=50,
        )
        skip_compressed(consumer, self._note_compressed)
        return consumer

    def _note_compressed(self, _partition: int, offset: int) -> None:
        why = f"the batch at offset {offset} is compressed and skipped: set compression.type=uncompressed"
        self.cache.note(Reason.COMPRESSED, None, f"{why} on topic {self.topic!r}")

    def _read_topic(self) -> None:
        """Read until the watcher is stopped or the topic changes (returns), or fails (raises)."""
        consumer = self._connect()
        try:
            num_partitions = self._num_partitions(consumer)
            topic_id = known_topic_id(consumer, self.topic)
            self.cache.start_topic(topic_id)
            partition = TopicPartition(self.topic, hint_partition(self._key, num_partitions))
            consumer.assign([partition])
            consumer.seek_to_beginning(partition)
            self.cache.cluster_id = known_cluster_id(consumer) or self.cache.cluster_id
            self._catch_up(consumer, partition, topic_id)
            self._follow(consumer, partition, num_partitions, topic_id)
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)

    def _catch_up(self, consumer: Any, partition: Any, topic_id: str | None) -> None:
        """Read to the end before any record is applied: only the last record of a key counts."""
        end = self._end_offset(consumer, partition)
        newest: dict[bytes, bytes | None] = {}
        for records in records_until(consumer, {partition: end}, stall_s=_STALL_S):
            newest.update(self._own(records))
            self._tick()
            if self._stopping.is_set():
                break
        if self._stopping.is_set() or self._is_other_topic(consumer, topic_id):
            return
        for key, apply in self._apply.items():
            apply(newest.get(key))
        self._has_read = True
        self.cache.mark_ready()

    def _follow(self, consumer: Any, partition: Any, num_partitions: int, topic_id: str | None) -> None:
        next_check_s = time.monotonic() + self._check_every_s
        while not self._stopping.is_set():
            batches = consumer.poll(timeout_ms=int(_TICK_S * 1000)).values()
            if self._is_other_topic(consumer, topic_id):
                return  # the topic was deleted and created again: its records are read from the start
            for key, value in self._own(chain.from_iterable(batches)):
                self._apply[key](value)
            self._tick()
            if time.monotonic() >= next_check_s:
                if self._num_partitions(consumer) != num_partitions:
                    return  # the group's hints may be in another partition now: read again
                if self._end_offset(consumer, partition) < consumer.position(
                    partition, timeout_ms=_TIMEOUT_MS
                ):
                    return  # the topic was deleted and created again, without topic ids
                next_check_s = time.monotonic() + self._check_every_s

    def _is_other_topic(self, consumer: Any, topic_id: str | None) -> bool:
        known = known_topic_id(consumer, self.topic)
        # Metadata without an id are those of a restarting broker, or of a topic that the next check misses.
        is_other = known not in (None, topic_id)
        if is_other:
            self.cache.start_topic(known)
        return is_other

    def _own(self, records: Iterable[Any]) -> list[tuple[bytes, bytes | None]]:
        """Return the records of this group's keys and the stop, in order."""
        return [(record.key, record.value) for record in records if record.key in self._apply]

    def _num_partitions(self, consumer: Any) -> int:
        count = fetch_partition_count(consumer, self.topic, timeout_ms=_TIMEOUT_MS)
        if not count:
            raise _TopicMissingError(f"there is no topic {self.topic!r}: no hints")
        return count

    def _end_offset(self, consumer: Any, partition: Any) -> int:
        end = int(consumer.end_offsets([partition], timeout_ms=_TIMEOUT_MS)[partition])
        self._last_contact_s = time.monotonic()
        return end
