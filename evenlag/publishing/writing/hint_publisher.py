"""Writing to the hint topic: one transaction at a time, by one publisher per Kafka cluster and hint topic.

The transactional id consists of Kafka's own cluster id and the topic, so the command and Airflow fence each
other whatever their policies call the cluster. A publisher that hangs and resumes is fenced by the newer one,
and writes nothing.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, NamedTuple

import kafka.errors
from kafka import KafkaProducer

from assignor_core.hint import STOP_KEY, hint_key
from assignor_core.loads import loads_key
from evenlag.errors import FencedPublisherError, JobError, PublishError, UnknownOutcomeError
from evenlag.kafka.connection import kafka_client_settings, kafka_errors
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.hint_topic import is_committed, own_partition

_LOG = named_logger(__name__)

_PROBE_KEY: Final = b"control/probe"
_STOP: Final = STOP_KEY.encode()
_ID_PREFIX: Final = "evenlag-publisher-"
# How long the transaction coordinator may be away, and how long one producer waits for it.
_COORDINATOR_S: Final = 60.0
_ATTEMPT_S: Final = 10.0

# (partition, key) → offset of the record that was written.
Written = dict[tuple[int, bytes], int]


class _Record(NamedTuple):
    partition: int
    key: bytes
    value: bytes | None


def publisher_id(kafka_cluster_id: str, hint_topic: str) -> str:
    """Return the transactional id of the publisher of a hint topic."""
    return f"{_ID_PREFIX}{kafka_cluster_id}-{hint_topic}"


class HintPublisher:
    """A transactional producer for one cluster's hint topic, from :func:`hint_publisher`."""

    def __init__(self, kafka_cluster_id: str, cluster: ClusterSettings) -> None:
        self._id = publisher_id(kafka_cluster_id, cluster.hint_topic)
        self._cluster = cluster
        self._topic = cluster.hint_topic
        self._timeout_s = cluster.request_timeout_ms / 1000
        self._producer = self._connect()

    def write(self, values: Mapping[str, bytes | None]) -> None:
        """Write hints by group (None: a tombstone) in one transaction, each to its group's partition."""
        self._write(_Record(self._own(name), hint_key(name), value) for name, value in values.items())

    def write_loads(self, values: Mapping[str, bytes | None]) -> None:
        """Write records of loads by group, as :meth:`write` does hints."""
        self._write(_Record(self._own(name), loads_key(name), value) for name, value in values.items())

    def withdraw(self, group_id: str) -> Written:
        """Write tombstones for a group's hint and loads."""
        own = self._own(group_id)
        return self.write_tombstones([(own, hint_key(group_id)), (own, loads_key(group_id))])

    def write_tombstones(self, keys: Iterable[tuple[int, bytes]]) -> Written:
        """Write tombstones in one transaction."""
        return self._write(_Record(partition, key, None) for partition, key in keys)

    def write_stop(self, value: bytes | None) -> Written:
        """Write ``control/stop`` (None: a tombstone) to all partitions."""
        return self._write(_Record(number, _STOP, value) for number in range(self._num_partitions()))

    def check_fence(self) -> None:
        """Check that no other publisher has taken over, by a transaction that is aborted."""
        with self._aborted_on_error("the hint topic does not answer"):
            self._producer.begin_transaction()
            self._send([_Record(0, _PROBE_KEY, None)])
            self._producer.abort_transaction()

    def close(self) -> None:
        """Close the producer."""
        self._producer.close(timeout=self._timeout_s)

    def _connect(self) -> Any:
        """Open a producer and fence the earlier one, whose transaction is completed or aborted.

        kafka-python 3.0 forgets its request when the coordinator that the brokers name does not listen, as
        in the seconds after a node has died, and waits until its time-out. Another producer asks again.
        """
        deadline = time.monotonic() + _COORDINATOR_S
        while True:
            producer = self._new_producer()
            try:
                producer.init_transactions()
            except kafka.errors.KafkaTimeoutError as error:
                producer.close(timeout=0)
                if time.monotonic() >= deadline:
                    raise PublishError(
                        f"no coordinator of the transactional id {self._id} has answered for "
                        f"{_COORDINATOR_S:.0f} s, nothing written: check that enough brokers run for "
                        "__transaction_state, and run again"
                    ) from error
            except BaseException:
                producer.close(timeout=self._timeout_s)
                raise
            else:
                return producer

    def _new_producer(self) -> Any:
        return KafkaProducer(
            **kafka_client_settings(self._cluster),
            transactional_id=self._id,
            acks="all",
            # Readers skip what is compressed.
            compression_type=None,
            allow_auto_create_topics=False,
            max_request_size=16 * 1024 * 1024,
            max_block_ms=int(_ATTEMPT_S * 1000),
        )

    def _num_partitions(self) -> int:
        return len(self._producer.partitions_for(self._topic))

    def _own(self, group_id: str) -> int:
        return own_partition(group_id, self._num_partitions())

    def _write(self, records: Iterable[_Record]) -> Written:
        wanted = list(records)
        if not wanted:
            return {}
        with self._aborted_on_error("the hints could not be written"):
            self._producer.begin_transaction()
            written = self._send(wanted)
        self._commit(written)
        return written

    @contextmanager
    def _aborted_on_error(self, message: str) -> Iterator[None]:
        """Abort the transaction after an error of Kafka: nothing of it is visible."""
        try:
            yield
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedPublisherError(
                "another publisher of this hint topic has taken over; nothing written"
            ) from error
        except kafka.errors.KafkaError as error:
            # What cannot be aborted the coordinator aborts after its timeout.
            with suppress(kafka.errors.KafkaError):
                self._producer.abort_transaction()
            raise PublishError(f"{message}: {type(error).__name__}: {error}") from error

    def _send(self, records: Sequence[_Record]) -> Written:
        futures = [
            self._producer.send(self._topic, key=record.key, value=record.value, partition=record.partition)
            for record in records
        ]
        self._producer.flush(timeout=self._timeout_s)
        return {
            (record.partition, record.key): future.get(timeout=self._timeout_s).offset
            for record, future in zip(records, futures, strict=True)
        }

    def _commit(self, written: Written) -> None:
        """Commit; without an answer, find out what became of the transaction."""
        answers: list[Exception | None] = [kafka.errors.KafkaTimeoutError("no answer to the commit")]

        def commit() -> None:
            try:
                self._producer.commit_transaction()
                answers.append(None)
            except Exception as error:  # noqa: BLE001 - judged below, in the thread that waits
                answers.append(error)

        # kafka-python waits without a limit.
        waiting = threading.Thread(target=commit, name="commit of hints", daemon=True)
        waiting.start()
        waiting.join(2 * self._timeout_s)
        error = answers[-1]
        if error is None:
            return
        if isinstance(error, (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError)):
            raise FencedPublisherError(
                "another publisher of this hint topic has taken over; it has found out what was written"
            ) from error
        if not isinstance(error, kafka.errors.KafkaError):
            raise error
        _LOG.warning("the commit of hints has an unknown outcome: %s: %s", type(error).__name__, error)
        if not self._was_committed(written, error):
            raise PublishError(
                f"the hints were not written: the commit failed ({type(error).__name__}: {error}) and was "
                "taken back"
            ) from error

    def _was_committed(self, written: Written, error: Exception) -> bool:
        """Fence the own transaction, which completes or aborts it, then look for one of its records."""
        (partition, _), offset = next(iter(written.items()))
        try:
            with kafka_errors(self._cluster):
                self.close()
                self._producer = self._connect()
                return is_committed(self._cluster, partition, offset)
        except JobError as unresolved:
            raise UnknownOutcomeError(
                f"whether the hints were written is unknown: the commit had no answer "
                f"({type(error).__name__}: {error}), and then {unresolved}. The next run finds out"
            ) from error


@contextmanager
def hint_publisher(kafka_cluster_id: str, cluster: ClusterSettings) -> Iterator[HintPublisher]:
    """Build the publisher of a hint topic, fence the earlier one, and close it after the block."""
    with kafka_errors(cluster), closing(HintPublisher(kafka_cluster_id, cluster)) as publisher:
        yield publisher
