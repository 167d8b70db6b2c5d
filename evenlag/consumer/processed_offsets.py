"""Commit processed offsets, and clean up only partitions that really left (KIP-54's advice to listeners)."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafka import AsyncConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from evenlag.consumer._kafka_consumer import commit_offsets
from evenlag.consumer.events import named_logger

_log = named_logger(__name__)


class ProcessedOffsets(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """A rebalance listener that tracks processed offsets and commits them before a partition is revoked.

    The application calls `processed` after each record or batch and `commit` from time to time, both from the
    thread that polls. Offsets that are processed and not committed when partitions are revoked are committed
    then, so a planned move loses and repeats nothing. A sync listener of kafka-python cannot do that:
    ``commit()`` and ``position()`` raise there. Offsets of lost partitions are dropped: another member
    processes these partitions already. Auto-commit must be off, or it commits offsets that are fetched and
    not yet processed.

    An eager rebalance revokes everything and assigns most of it again. State of a partition is therefore
    dropped when the next owner is known, not when the partition is revoked.

    Parameters
    ----------
    on_gained, on_left
        Called on kafka-python's I/O thread with the partitions (a set of `TopicPartition`) that are new to
        this member, and with those that another member owns now. They must return soon.
    commit_timeout_ms
        Time limit of a commit before partitions are revoked without it; their last records are then
        repeated.

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
        # The next offset by partition: processed, and not confirmed as committed.
        self._next: dict[Any, int] = {}
        self._mine: set[Any] = set()
        self._undecided: set[Any] = set()

    def attach(self, consumer: Any) -> None:
        """Set the consumer. A `HintedConsumer` does this when it receives the listener.

        Parameters
        ----------
        consumer
            The `KafkaConsumer`.
        """
        self._consumer = consumer

    def processed(self, *records: Any) -> None:
        """Mark records as processed.

        Parameters
        ----------
        *records
            `ConsumerRecord` objects, those of a partition in their order.
        """
        for record in records:
            self.processed_to(TopicPartition(record.topic, record.partition), record.offset + 1)

    def processed_to(self, partition: Any, next_offset: int) -> None:
        """Mark all records of a partition before an offset as processed.

        Parameters
        ----------
        partition
            The `TopicPartition`.
        next_offset
            The first offset that is not processed.
        """
        with self._lock:
            self._next[partition] = next_offset

    def commit(self, *, timeout_ms: int | None = None) -> dict[Any, int]:
        """Commit the processed offsets of the owned partitions.

        Parameters
        ----------
        timeout_ms
            Time limit in milliseconds; None for `commit_timeout_ms`.

        Returns
        -------
        dict of TopicPartition to int
            The committed offsets.

        Raises
        ------
        KafkaError
            If the commit fails. The next commit, or the revocation, repeats it.
        """
        held = self._consumer.assignment()
        with self._lock:
            offsets = {tp: offset for tp, offset in self._next.items() if tp in held}
        if offsets:
            self._consumer.commit(_with_metadata(offsets), timeout_ms=timeout_ms or self._commit_timeout_ms)
            self._forget(offsets)
        return offsets

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Commit the processed offsets of the revoked partitions.

        Parameters
        ----------
        revoked
            `TopicPartition` objects.
        """
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
        # In a cooperative rebalance they left already; in an eager one the next assignment decides.
        still_there = set(revoked) & self._consumer.assignment()
        self._undecided |= still_there
        self._leave(set(revoked) - still_there)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Drop the partitions that really left, and add the new ones.

        Parameters
        ----------
        assigned
            `TopicPartition` objects.
        """
        left, self._undecided = self._undecided - set(assigned), set()
        self._leave(left)
        gained = set(assigned) - self._mine
        self._mine |= gained
        # A batch in hand when they were lost may have been marked since; the next owner was further.
        self._forget(dict.fromkeys(gained))
        if gained and self._on_gained is not None:
            self._on_gained(gained)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Drop partitions that other members process already.

        Parameters
        ----------
        lost
            `TopicPartition` objects.
        """
        self._forget(dict.fromkeys(lost))
        self._undecided -= set(lost)
        self._leave(set(lost))

    def committed(self, offsets: Mapping[Any, int]) -> None:
        """Do nothing. Override it to receive the offsets that were committed at a revocation.

        Parameters
        ----------
        offsets
            The committed offsets by `TopicPartition`.
        """

    def not_committed(self, offsets: Mapping[Any, int], error: KafkaError) -> None:
        """Do nothing. Override it to receive the offsets that could not be committed at a revocation.

        Parameters
        ----------
        offsets
            The offsets by `TopicPartition`.
        error
            The error of the commit.
        """

    def _leave(self, left: set[Any]) -> None:
        left &= self._mine
        self._mine -= left
        if left and self._on_left is not None:
            self._on_left(left)

    def _forget(self, offsets: Mapping[Any, int | None]) -> None:
        """Drop offsets that are done, but not those processed since; with None as the offset, all."""
        with self._lock:
            for tp, offset in offsets.items():
                if offset is None or self._next.get(tp) == offset:
                    self._next.pop(tp, None)


def _with_metadata(offsets: Mapping[Any, int]) -> dict[Any, Any]:
    return {tp: OffsetAndMetadata(offset, "", -1) for tp, offset in offsets.items()}
