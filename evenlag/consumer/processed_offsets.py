"""Commit what was processed, and clean up only what really left (KIP-54's advice to listeners)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from kafka import AsyncConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from evenlag.consumer._kafka_consumer import commit_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)


class ProcessedOffsets(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """A rebalance listener that knows what was processed and commits it before a partition goes.

    The application calls `processed` after each record or batch and `commit` from time to time, both from
    the thread that polls. What is processed and not committed when partitions are revoked is committed
    then, so a planned move loses and repeats nothing. In a sync listener of kafka-python that is not
    possible: there ``commit()`` and ``position()`` raise. What is lost is forgotten: another member works
    on it already. Auto-commit must be off, or it commits what is fetched and not yet processed.

    An eager rebalance revokes everything and gives most of it back. State that belongs to a partition is
    therefore dropped when it is known who has it next, not when it is revoked.

    Parameters
    ----------
    on_gained, on_left
        Called on kafka-python's I/O thread with the partitions (a set of `TopicPartition`) that are new to
        this member, and with those that are another's now; they must return soon.
    commit_timeout_ms
        How long a commit may take before partitions go without it; their last records are then repeated.

    Examples
    --------
    >>> offsets = ProcessedOffsets()
    >>> consumer = hinted_consumer("orders", group_id="billing", listener=offsets,
    ...                            enable_auto_commit=False, bootstrap_servers="...")  # doctest: +SKIP
    >>> for record in consumer:  # doctest: +SKIP
    ...     handle(record)
    ...     offsets.processed(record)
    """

    def __init__(
        self,
        *,
        on_gained: Callable[[set[Any]], None] | None = None,
        on_left: Callable[[set[Any]], None] | None = None,
        commit_timeout_ms: int = 5000,
    ) -> None:
        self._on_gained, self._on_left = on_gained, on_left
        self._commit_timeout_ms = commit_timeout_ms
        self._consumer: Any = None
        self._lock = threading.Lock()
        # The next offset by partition: processed, and not known to be committed.
        self._next: dict[Any, int] = {}
        self._mine: set[Any] = set()
        self._undecided: set[Any] = set()

    def attach(self, consumer: Any) -> None:
        """Say which consumer it is for; a `HintedConsumer` does so when it is given the listener."""
        self._consumer = consumer

    def processed(self, *records: Any) -> None:
        """Note that records (`ConsumerRecord`, of one partition in their order) are done."""
        for record in records:
            self.processed_to(TopicPartition(record.topic, record.partition), record.offset + 1)

    def processed_to(self, partition: Any, next_offset: int) -> None:
        """Note that all records of a partition before `next_offset` are done."""
        with self._lock:
            self._next[partition] = next_offset

    def commit(self, *, timeout_ms: int | None = None) -> dict[Any, int]:
        """Commit what is processed of partitions held; return the offsets.

        Raises
        ------
        KafkaError
            When it failed; what was to be committed is committed the next time, or at the revocation.
        """
        held = self._consumer.assignment()
        with self._lock:
            offsets = {tp: offset for tp, offset in self._next.items() if tp in held}
        if offsets:
            self._consumer.commit(_with_metadata(offsets), timeout_ms=timeout_ms or self._commit_timeout_ms)
            self._forget(offsets)
        return offsets

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Commit what is processed of partitions that go."""
        with self._lock:
            offsets = {tp: self._next[tp] for tp in revoked if tp in self._next}
        if offsets:
            try:
                await commit_offsets(self._consumer, _with_metadata(offsets), self._commit_timeout_ms)
                self.committed(offsets)
            except KafkaError as error:
                _log.warning("offsets of revoked partitions were not committed: %r", error)
                self.not_committed(offsets, error)
            self._forget(dict.fromkeys(offsets))
        # In a cooperative rebalance they are gone already; in an eager one it is seen later who gets them.
        still_there = set(revoked) & self._consumer.assignment()
        self._undecided |= still_there
        self._leave(set(revoked) - still_there)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Drop what really left, and take what is new."""
        left, self._undecided = self._undecided - set(assigned), set()
        self._leave(left)
        gained = set(assigned) - self._mine
        self._mine |= gained
        if gained and self._on_gained is not None:
            self._on_gained(gained)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Forget what others work on already."""
        self._forget(dict.fromkeys(lost))
        self._undecided -= set(lost)
        self._leave(set(lost))

    def committed(self, offsets: Mapping[Any, int]) -> None:
        """Do nothing; to override by who wants to know what was committed at a revocation."""

    def not_committed(self, offsets: Mapping[Any, int], error: KafkaError) -> None:
        """Do nothing; to override by who wants to know what could not be committed at a revocation."""

    def _leave(self, left: set[Any]) -> None:
        left &= self._mine
        self._mine -= left
        if left and self._on_left is not None:
            self._on_left(left)

    def _forget(self, offsets: Mapping[Any, int | None]) -> None:
        """Forget what is done, but not what was processed since; with None as the offset, all."""
        with self._lock:
            for tp, offset in offsets.items():
                if offset is None or self._next.get(tp) == offset:
                    self._next.pop(tp, None)


def _with_metadata(offsets: Mapping[Any, int]) -> dict[Any, Any]:
    return {tp: OffsetAndMetadata(offset, "", -1) for tp, offset in offsets.items()}
