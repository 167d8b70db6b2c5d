"""How far a reader of the hint topic reads, and when it gives up, with a simulated consumer and clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assignor_core import topic_reading
from assignor_core.topic_reading import records_until

HOUR_S = 3_600.0


class Topic:
    """A consumer of partitions that grow while they are read, each poll taking an hour."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, records: dict[str, int], *, per_poll: int = 1
    ) -> None:
        self.ends, self.per_poll = dict(records), per_poll
        self.positions = dict.fromkeys(records, 0)
        self.paused: set[str] = set()
        self.now = 0.0
        monkeypatch.setattr(topic_reading, "time", SimpleNamespace(monotonic=lambda: self.now))

    def position(self, partition: str, **_: int) -> int | None:
        return self.positions[partition]

    def pause(self, *partitions: str) -> None:
        self.paused |= set(partitions)

    def poll(self, **_: int) -> dict[str, list[Any]]:
        self.now += HOUR_S
        found: dict[str, list[Any]] = {}
        for partition in self.ends.keys() - self.paused:
            start = self.positions[partition]
            self.positions[partition] = min(start + self.per_poll, self.ends[partition])
            found[partition] = [(partition, offset) for offset in range(start, self.positions[partition])]
            self.ends[partition] += self.per_poll if found[partition] else 0
        return found


def read(topic: Topic, ends: dict[str, int], stall_s: float = 1.5 * HOUR_S) -> list[Any]:
    return [record for records in records_until(topic, ends, stall_s=stall_s) for record in records]


def test_progress_extends_the_deadline_and_the_ends_of_the_start_limit_what_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred hours, in which as much is written as is read."""
    topic = Topic(monkeypatch, {"a": 100, "b": 3})
    found = read(topic, {"a": 100, "b": 3})
    assert sorted(found) == sorted([("a", n) for n in range(100)] + [("b", n) for n in range(3)])
    assert (topic.ends["a"], topic.now) == (200, 100 * HOUR_S)


@pytest.mark.parametrize("num_records", [0, 7])
def test_a_reader_gives_up_after_it_has_made_no_progress(
    monkeypatch: pytest.MonkeyPatch, num_records: int
) -> None:
    topic = Topic(monkeypatch, {"a": num_records}, per_poll=0)
    topic.positions["a"] = num_records
    with pytest.raises(TimeoutError, match="no progress for 5400 s"):
        read(topic, {"a": 10})
    assert topic.now == 2 * HOUR_S


def test_an_empty_topic_is_read_without_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic(monkeypatch, {"a": 0})
    assert read(topic, {"a": 0}) == []
    assert topic.now == 0
