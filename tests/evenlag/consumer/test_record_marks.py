"""Which hints and loads count: the newest by sequence or time, none from the future, and no replay twice."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assignor_core.hint import HintPayload, encode_hint
from assignor_core.loads import LoadsPayload, encode_loads
from assignor_core.record import topic_id_text
from evenlag.consumer import HintCache, Reason
from evenlag.consumer.hint_arrays import FlatHint
from tests.support.each import for_each
from tests.support.records.newer_formats import AHEAD_MS, ORDERS, Step, as_format

if TYPE_CHECKING:
    from assignor_core.hint import Hint
    from assignor_core.loads import Loads
    from evenlag.consumer.cache import HintView

NOW_MS = 1_800_000_000_000
FIVE_MINUTES_MS = 300_000
T_ID = topic_id_text("00000000-0000-0000-0000-00000000000b")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> HintCache:
    made = HintCache("g", now_ms=clock)
    made.mark_ready()
    return made


def view(cache: HintCache) -> HintView:
    return cache.view


def hint(sequence: int, issued_at_ms: int = NOW_MS, plan: str = "s") -> bytes:
    payload = HintPayload("c", "g", plan, "0" * 64, {}, 0, 0).encode()
    return encode_hint(payload, sequence=sequence, issued_at_ms=issued_at_ms, expires_at_ms=issued_at_ms + 1)


def loads(measured_at_ms: int = NOW_MS, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "cluster_id": "c", "group_id": "g", "snapshot_id": "s", "measured_at_ms": measured_at_ms,
        "valid_until_ms": measured_at_ms + 10, "loads": {T_ID: [3, None, 1]}, "capacities": {},
        "default_capacity": 1, "count_slack": 0, "max_moves": 1,
    }  # fmt: skip
    return encode_loads(LoadsPayload(**{**fields, **changes}).encode())


def current(cache: HintCache) -> Hint:
    found = view(cache).hint
    assert found is not None
    return found


def measured(cache: HintCache) -> Loads:
    found = view(cache).loads
    assert found is not None
    return found


@for_each(ORDERS, name=lambda case: case[0])
def test_a_hint_in_a_newer_format_withdraws_older_ones_and_blocks_no_later_one(
    case: tuple[str, tuple[Step, ...], Step | None],
) -> None:
    _, steps, wanted = case
    cache = HintCache("g", now_ms=Clock())
    for step in steps:
        cache.apply_hint(as_format(hint(step.sequence, NOW_MS + step.at_ms), step.version))
    found = view(cache).hint
    assert (found and (found.sequence, found.issued_at_ms - NOW_MS)) == (
        wanted and (wanted.sequence, wanted.at_ms)
    )


def test_a_hint_in_a_newer_format_withdraws_when_its_time_comes_and_only_if_it_is_signed(
    clock: Clock, cache: HintCache
) -> None:
    cache.apply_hint(hint(1))
    cache.apply_hint(as_format(hint(2, NOW_MS + AHEAD_MS), 2))
    assert view(cache).hint is not None
    clock.now_ms += AHEAD_MS
    cache.promote()
    assert view(cache).hint is None
    assert cache.counts == {Reason.READY: 1, Reason.RECEIVED: 1, Reason.FUTURE: 1, Reason.NEWER_FORMAT: 1}
    signed = HintCache("g", group_key=b"key", now_ms=clock)
    signed.apply_hint(as_format(hint(2), 2))
    assert signed.counts == {Reason.BAD_SIGNATURE: 1}


def test_two_hints_of_a_slower_clock_are_not_taken_alternately_for_ever(cache: HintCache) -> None:
    """The sequence goes up and the time goes down: either is newer than the other by one of them."""
    early, late = hint(1, NOW_MS, "early"), hint(2, NOW_MS - 60_000, "late")
    for _ in range(10):
        cache.apply_hint(early)
        cache.apply_hint(late)
    assert cache.counts[Reason.RECEIVED] == 2
    assert cache.counts[Reason.REPLAYED] == 9, "the current one again is no replay"
    assert current(cache).payload.snapshot_id == "late"


@pytest.mark.parametrize("seed", range(20))
def test_replays_of_any_records_end(seed: int) -> None:
    """Each of n records is taken at most once, whatever the order in which they are replayed."""
    chance = random.Random(seed)  # noqa: S311  # repeatable
    values = [hint(chance.randrange(6), NOW_MS - chance.randrange(6), f"s{i}") for i in range(8)]
    made = HintCache("g", now_ms=lambda: NOW_MS)
    taken = [made.view.hint]
    for value in chance.choices(values, k=400):
        made.apply_hint(value)
        taken.append(made.view.hint)
    changes = [after for before, after in pairwise(taken) if after is not before]
    assert len(changes) == len({id(after) for after in changes}) <= len(values)


def test_a_repeat_of_the_current_hint_restores_it_after_an_outage_and_not_after_a_withdrawal(
    cache: HintCache,
) -> None:
    cache.apply_hint(hint(1))
    cache.mark_unavailable("gone", forget=True)
    assert view(cache).hint is None
    cache.apply_hint(hint(1))
    assert view(cache).hint is not None
    cache.apply_hint(None)
    cache.apply_hint(hint(1))
    assert view(cache).hint is None


def test_a_hint_from_the_future_waits_and_raises_no_mark(cache: HintCache, clock: Clock) -> None:
    ahead = hint(2**53, NOW_MS + FIVE_MINUTES_MS + 1, "ahead")
    cache.apply_hint(hint(1))
    cache.apply_hint(ahead)
    assert cache.counts[Reason.FUTURE] == 1
    cache.promote()
    assert current(cache).sequence == 1
    clock.now_ms += 1
    cache.promote()
    assert current(cache).payload.snapshot_id == "ahead"


@pytest.mark.parametrize("sequence", [1, 2], ids=["the current one again", "a newer one"])
def test_what_is_accepted_later_replaces_what_waits_as_it_does_on_the_topic(
    cache: HintCache, clock: Clock, sequence: int
) -> None:
    """A consumer that starts later reads the last record of each key, and follows no other hint."""
    cache.apply_hint(hint(1))
    cache.apply_hint(hint(2**53, NOW_MS + 2 * FIVE_MINUTES_MS, "ahead"))
    cache.apply_loads(loads())
    cache.apply_loads(loads(NOW_MS + 2 * FIVE_MINUTES_MS))
    last = hint(sequence), loads(NOW_MS - 1 + sequence)
    cache.apply_hint(last[0])
    cache.apply_loads(last[1])
    assert current(cache).sequence == sequence, "the one ahead has not raised the marks"
    clock.now_ms += FIVE_MINUTES_MS
    cache.promote()
    later = HintCache("g", now_ms=clock)
    later.apply_hint(last[0])
    later.apply_loads(last[1])
    assert (view(cache).hint, view(cache).loads) == (view(later).hint, view(later).loads)


def test_a_withdrawal_takes_what_waits_along(cache: HintCache, clock: Clock) -> None:
    cache.apply_hint(hint(1, NOW_MS + 2 * FIVE_MINUTES_MS))
    cache.apply_loads(loads(NOW_MS + 2 * FIVE_MINUTES_MS))
    cache.apply_hint(None)
    cache.apply_loads(None)
    clock.now_ms += 2 * FIVE_MINUTES_MS
    cache.promote()
    assert view(cache).hint is None
    assert view(cache).loads is None


def test_newer_loads_replace_older_ones_and_a_withdrawal_is_final(cache: HintCache, clock: Clock) -> None:
    cache.apply_loads(loads())
    cache.apply_loads(loads())  # the same bytes again
    cache.apply_loads(loads(NOW_MS - 1))
    cache.apply_loads(loads(max_moves=2))  # other loads of the same time
    assert cache.counts == {Reason.READY: 1, Reason.LOADS_RECEIVED: 1, Reason.REPLAYED: 2}
    cache.apply_loads(loads(NOW_MS + 5))
    assert measured(cache).payload.measured_at_ms == NOW_MS + 5
    cache.apply_loads(None)
    cache.apply_loads(loads(NOW_MS + 5))
    assert view(cache).loads is None
    cache.apply_loads(loads(NOW_MS + FIVE_MINUTES_MS + 6))
    assert view(cache).loads is None, "from the future"
    clock.now_ms += 6
    cache.promote()
    assert view(cache).loads is not None


def test_a_stop_hides_loads_too(cache: HintCache) -> None:
    cache.apply_loads(loads())
    cache.apply_stop(b"")
    assert view(cache).usable_loads is None
    cache.apply_stop(None)
    assert view(cache).usable_loads is not None


@pytest.mark.parametrize("value", [b"", b"{}\n{}", hint(1), loads(group_id="other"), loads()[:-1]])
def test_no_bytes_but_loads_of_the_group_are_taken_as_loads(cache: HintCache, value: bytes) -> None:
    cache.apply_loads(value)
    assert view(cache).loads is None
    assert cache.counts.keys() & {Reason.MALFORMED, Reason.FOREIGN}


def test_another_topic_of_the_same_name_begins_without_hint_loads_marks_and_stop(cache: HintCache) -> None:
    cache.start_topic("first")
    cache.apply_hint(hint(9))
    cache.apply_loads(loads())
    cache.apply_stop(b"")
    cache.start_topic("first")
    cache.start_topic(None)  # brokers that do not say
    assert current(cache).sequence == 9
    cache.start_topic("second")
    assert view(cache).is_cold
    assert (view(cache).hint, view(cache).loads, view(cache).is_stopped) == (None, None, False)
    cache.apply_hint(hint(1, NOW_MS - 5))
    cache.apply_loads(loads(NOW_MS - 5))
    assert current(cache).sequence == 1
    assert cache.counts[Reason.TOPIC_RECREATED] == 1


def test_a_hint_of_millions_of_partitions_stays_as_small_as_its_bytes() -> None:
    payload = HintPayload("c", "g", "s", "0" * 64, {"m:a": {T_ID: range(1_999_999)}}, 0, 0)
    flat = FlatHint.of(payload)
    assert (flat.first.tolist(), flat.last.tolist()) == ([0], [1_999_998])


@pytest.mark.parametrize("seed", range(20))
def test_ranges_mean_the_same_partitions(seed: int) -> None:
    chance = np.random.default_rng(seed)
    numbers = tuple(sorted(chance.choice(40, size=int(chance.integers(1, 30)), replace=False).tolist()))
    flat = FlatHint.of(HintPayload("c", "g", "s", "0" * 64, {"m:a": {T_ID: numbers}}, 0, 0))
    spans = zip(flat.first.tolist(), flat.last.tolist(), strict=True)
    assert tuple(n for first, last in spans for n in range(first, last + 1)) == numbers
    given = {n for n in range(40) if flat.gives_to_another("m:b", [(T_ID, n)])}
    assert given == set(numbers)
    assert not flat.gives_to_another("m:a", [(T_ID, n) for n in range(40)])
