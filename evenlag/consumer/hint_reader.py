"""Reads the hint topic for all consumers of a process that connect alike: one thread, one connection."""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from assignor_core.topic_reading import READER_CONFIG, records_until, skip_compressed
from evenlag.consumer._kafka_consumer import (
    end_io_thread,
    fetch_partition_count,
    hint_partition,
    ignore_slow_steps,
    is_quiet,
    known_cluster_id,
    known_topic,
    metadata_age_s,
)
from evenlag.consumer.events import Reason, named_logger
from evenlag.consumer.watched_group import WatchedGroup

_log = named_logger(__name__)
_TICK_S = 0.4
_TIMEOUT_MS = 10_000
# How long the first reading may make no progress.
_STALL_S = 30.0
# A fetch waits this long at the broker, and a request for metadata behind it. It returns at once when a hint
# arrives, and when the topic is deleted.
_FETCH_WAIT_MS = 10_000
# How much later than they are due metadata may come.
_LATE_S = 15.0
# How often a missing topic is looked for.
_MISSING_S = 3.0
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 1.0, 30.0


@dataclass(slots=True)
class _Progress:
    """What was read of one topic.

    values: The last value of each key that groups ask for, by partition and key; None without a record.
    positions: The next offset of each partition that was read to its end.
    """

    topic_id: str | None
    cluster_id: str | None
    num_partitions: int
    values: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)

    def places(self, group: WatchedGroup) -> list[tuple[int, bytes]]:
        """Return the partition and key of each record that counts for a group."""
        number = hint_partition(group.key, self.num_partitions)
        return [(number, key) for key in group.keys]


class HintReader:
    """Reads the partitions of its groups from the start, committed records only.

    A consumer whose group is known already gets the values that are known. For another group, its partition
    is read on a new connection, because a fetch of the old one may wait at the broker.

    groups: One for each consumer; replaced as a whole. The reader's thread holds `calling` while it calls
        them.
    """

    def __init__(self, first: WatchedGroup) -> None:
        self.source = self.topic, self.config, self.check_every_s = first.source
        self.groups: tuple[WatchedGroup, ...] = (first,)
        self.calling = threading.RLock()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="evenlag-hints", daemon=True)
        self._client_id = f"evenlag-hints-{first.cache.group_id}"
        self._served: set[WatchedGroup] = set()
        self._progress: _Progress | None = None

    def _run(self) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while not self.stopping.is_set():
            try:
                is_awaited = self._read_topic()
                backoff_s = _FIRST_BACKOFF_S
                if not is_awaited:
                    self._wait(_TICK_S)
            except Exception as error:  # noqa: BLE001  # any error of the client: retry later
                backoff_s = _FIRST_BACKOFF_S if self._served else min(2 * backoff_s, _MAX_BACKOFF_S)
                self._fail(f"{type(error).__name__}: {error}", backoff_s)

    def _fail(self, why: str, backoff_s: float) -> None:
        self._progress = None
        self._call(lambda group: group.note_failure(why))
        self._wait(backoff_s)

    def _call(
        self, act: Callable[[WatchedGroup], None], only: Collection[WatchedGroup] | None = None
    ) -> None:
        """Call each group that has not stopped; what fails for one concerns no other."""
        with self.calling:
            for group in self.groups:
                try:
                    if only is None or group in only:
                        act(group)
                except Exception:  # noqa: BLE001  # the thread must continue
                    _log.exception("the hints of group %s failed", group.cache.group_id)

    def _tick(self) -> None:
        self._call(lambda group: group.tick())

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping.wait(_TICK_S):
            self._tick()

    def _read_topic(self) -> bool:
        """Read until stopped, or until another topic or group is to be read, or fails (raises).

        Returns whether a group waits to be read for.
        """
        self._served.clear()
        # Metadata show that the topic is still there, and the same.
        consumer = KafkaConsumer(
            **self.config,
            **READER_CONFIG,
            client_id=self._client_id,
            exclude_internal_topics=False,
            metrics_enabled=False,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            fetch_max_wait_ms=_FETCH_WAIT_MS,
            metadata_max_age_ms=int(self.check_every_s * 1000),
            # A hint can be as large as a record may be; there are few hints.
            max_poll_records=50,
        )
        try:
            end_io_thread(consumer)
            ignore_slow_steps(consumer)
            progress = self._begin(consumer)
            skip_compressed(consumer, partial(self._note_compressed, progress))
            return self._catch_up(consumer, progress) and self._follow(consumer, progress)
        finally:
            consumer.close(autocommit=False, timeout_ms=1000)

    def _note_compressed(self, progress: _Progress, partition: int, offset: int) -> None:
        what = f"the batch at offset {offset} is compressed and skipped"
        why = f"{what}: set compression.type=uncompressed on topic {self.topic!r}"
        takers = [each for each in self.groups if (partition, each.key) in progress.places(each)]
        self._call(lambda group: group.cache.note(Reason.COMPRESSED, None, why), takers)

    def _begin(self, consumer: Any) -> _Progress:
        """Wait for the topic, and return what was read of it so far."""
        why = f"there is no topic {self.topic!r}: no hints"
        is_sure = False  # a broker that has just started may not know its topics

        def note(group: WatchedGroup) -> None:
            group.cache.mark_unavailable(why, forget=is_sure or group.cache.view.is_cold)

        while not (count := fetch_partition_count(consumer, self.topic, timeout_ms=_TIMEOUT_MS)):
            self._call(note)
            self._wait(_MISSING_S)
            is_sure = True
            if self.stopping.is_set():
                break
        topic_id, before = known_topic(consumer, self.topic)[0], self._progress
        if before is None or (before.topic_id, before.num_partitions) != (topic_id, count):
            self._progress = before = _Progress(topic_id, known_cluster_id(consumer), count)
        return before

    def _catch_up(self, consumer: Any, progress: _Progress) -> bool:
        """Read new partitions to the end before any record is applied: only the last one of a key counts.

        Returns whether the topic is read.
        """
        groups = self.groups
        if self.stopping.is_set():
            return False
        self._call(lambda group: group.start_topic(progress.topic_id, progress.cluster_id))
        unread = self._assign(consumer, progress, groups)
        ends = consumer.end_offsets(unread, timeout_ms=_TIMEOUT_MS) if unread else {}
        for records in records_until(consumer, ends, stall_s=_STALL_S):
            self._keep(progress, records)
            self._tick()
            if self.stopping.is_set() or not self._is_same_topic(consumer, progress):
                return False
        consumer.resume(*ends)
        self._serve(progress, groups)
        return True

    def _assign(self, consumer: Any, progress: _Progress, groups: Iterable[WatchedGroup]) -> list[Any]:
        """Assign the partitions of the groups, and return those that are to be read from the start."""
        places = {place for group in groups for place in progress.places(group)}
        unread = {number for number, key in places if (number, key) not in progress.values}
        progress.values = {place: None if place[0] in unread else progress.values[place] for place in places}
        partitions = {number: TopicPartition(self.topic, number) for number, _ in places}
        consumer.assign(list(partitions.values()))
        for number, partition in partitions.items():
            if number in unread:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, progress.positions[number])
        return [partitions[number] for number in unread]

    def _keep(self, progress: _Progress, records: Iterable[Any]) -> list[Any]:
        """Keep the values of the groups' keys, and return their records."""
        kept = [each for each in records if (each.partition, each.key) in progress.values]
        progress.values |= {(each.partition, each.key): each.value for each in kept}
        return kept

    def _serve(self, progress: _Progress, groups: Collection[WatchedGroup]) -> bool:
        """Give groups what was read; return whether everything that they ask for was."""

        def give(group: WatchedGroup) -> None:
            group.start_topic(progress.topic_id, progress.cluster_id)
            group.apply_all({place[1]: progress.values[place] for place in progress.places(group)})

        is_read = all(place in progress.values for each in groups for place in progress.places(each))
        if is_read:
            self._call(give, groups)
            self._served.update(groups)
        return is_read

    def _follow(self, consumer: Any, progress: _Progress) -> bool:
        while not self.stopping.is_set():
            batches = () if is_quiet(consumer, _TICK_S) else consumer.poll(int(_TICK_S * 1000)).values()
            if not self._is_same_topic(consumer, progress):
                return False
            for record in self._keep(progress, chain.from_iterable(batches)):
                self._pass_on(progress, record)
            self._tick()
            self._served.intersection_update(self.groups)
            if not self._serve(progress, set(self.groups) - self._served):
                progress.positions = {
                    each.partition: consumer.position(each, timeout_ms=_TIMEOUT_MS)
                    for each in consumer.assignment()
                }
                return True
        return False

    def _pass_on(self, progress: _Progress, record: Any) -> None:
        place = (record.partition, record.key)
        takers = [each for each in self._served if place in progress.places(each)]
        self._call(lambda group: group.apply(record.key, record.value), takers)

    def _is_same_topic(self, consumer: Any, progress: _Progress) -> bool:
        """Return whether the topic is the one that is read; otherwise it is read from the start."""
        age_s = metadata_age_s(consumer)
        if age_s > self.check_every_s + _LATE_S:
            raise TimeoutError(f"the brokers have not answered for {age_s:.0f} s")
        is_same = known_topic(consumer, self.topic) == (progress.topic_id, progress.num_partitions)
        if is_same:
            self._call(lambda group: group.note_contact(age_s))
        else:
            self._progress = None
        return is_same


_lock = threading.Lock()
_readers: list[HintReader] = []


def join_reader(group: WatchedGroup) -> HintReader:
    """Return the process's reader for a group; the first group starts it."""
    with _lock:
        for reader in _readers:
            if reader.source == group.source:
                reader.groups = (*reader.groups, group)
                return reader
        reader = HintReader(group)
        reader.thread.start()
        _readers.append(reader)
        return reader


def leave_reader(reader: HintReader, group: WatchedGroup, timeout_s: float) -> None:
    """Take a group from a reader, which calls it no more; the last group ends the reader."""
    with _lock:
        if reader not in _readers:
            return  # it is the parent process's
        reader.groups = tuple(each for each in reader.groups if each is not group)
        is_last = not reader.groups
        if is_last:
            reader.stopping.set()
            _readers.remove(reader)
    if reader.thread is threading.current_thread():
        return
    if is_last:
        reader.thread.join(timeout_s)
    elif reader.calling.acquire(timeout=timeout_s):
        reader.calling.release()


def _start_anew() -> None:
    """Forget the readers of the parent process: a fork has none of its threads."""
    _readers.clear()
    _lock.release()


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_start_anew)
