"""The cache takes good hints, ignores bad ones with a reason, and never raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.hint import HintPayload, derive_group_key, encode_hint
from evenlag.consumer import HintCache, HintedConsumer, HintEvent, Reason

if TYPE_CHECKING:
    from assignor_core.hint import Hint
    from evenlag.consumer.cache import HintView

KEY = derive_group_key(b"master", "g")


def view(cache: HintCache) -> HintView:
    """Return the view; through a call, as mypy takes an attribute that was looked at for settled."""
    return cache.view


def hint_of(cache: HintCache) -> Hint:
    hint = cache.view.hint
    assert hint is not None
    return hint


def make(*, sequence: int = 1, issued_at_ms: int = 0, key: bytes | None = None, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "cluster_id": "c", "group_id": "g", "snapshot_id": "s", "fingerprint": "f" * 64, "assignment": {},
        "count_slack": 3, "max_moves": 1,
    }  # fmt: skip
    payload = HintPayload(**{**fields, **changes}).encode()
    times = {"issued_at_ms": issued_at_ms, "expires_at_ms": issued_at_ms + 1}
    return encode_hint(payload, sequence=sequence, group_key=key, **times)


@pytest.fixture
def events() -> list[HintEvent]:
    return []


@pytest.fixture
def cache(events: list[HintEvent]) -> HintCache:
    made = HintCache("g", on_event=events.append)
    made.cluster_id = "c"
    return made


def test_only_what_was_usable_at_the_first_reading_was_there_first() -> None:
    """Not what a recreated topic, a resumption, or an end of denied access brings."""
    read, recreated, stopped, denied = (HintCache("g") for _ in range(4))
    read.apply_hint(make())
    read.mark_ready()
    assert read.first_plan_id == hint_of(read).plan_id
    read.apply_hint(make(sequence=2, snapshot_id="other"))
    assert read.first_plan_id != hint_of(read).plan_id
    for topic_id in ("one", "two"):
        recreated.start_topic(topic_id)
        recreated.apply_hint(make() if topic_id == "two" else None)
        recreated.mark_ready()
    stopped.apply_stop(b"stop")
    stopped.apply_hint(make())
    stopped.mark_ready()
    stopped.apply_stop(None)
    denied.mark_unavailable("denied", forget=False)
    denied.mark_unavailable("denied", forget=True)
    denied.apply_hint(make())
    denied.mark_ready()
    assert [cache.first_plan_id for cache in (recreated, stopped, denied)] == [None] * 3
    assert all(cache.view.usable_hint for cache in (recreated, stopped, denied))


def test_a_new_cache_is_cold_until_the_topic_was_read(cache: HintCache) -> None:
    assert view(cache).is_cold
    cache.apply_hint(make())
    assert view(cache).is_cold
    cache.mark_ready()
    assert not view(cache).is_cold


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", Reason.MALFORMED),
        (b"{}\n{}", Reason.MALFORMED),
        (make(group_id="other"), Reason.FOREIGN),
        (make(cluster_id="other"), Reason.FOREIGN),
    ],
)
def test_a_bad_record_changes_nothing_and_is_counted(
    cache: HintCache, events: list[HintEvent], value: bytes, reason: Reason
) -> None:
    cache.apply_hint(make())
    before = view(cache)
    cache.apply_hint(value)
    assert view(cache) is before
    assert cache.counts[reason] == 1
    assert events[-1].reason is reason


def test_with_a_key_only_signed_hints_count() -> None:
    cache = HintCache("g", group_key=KEY)
    cache.apply_hint(make())
    cache.apply_hint(make(key=derive_group_key(b"master", "h")))
    assert view(cache).hint is None
    assert cache.counts == {Reason.BAD_SIGNATURE: 2}
    cache.apply_hint(make(key=KEY))
    assert hint_of(cache).signed


def test_an_older_hint_does_not_come_back_and_a_repeat_is_no_news(cache: HintCache) -> None:
    old, new = make(sequence=1, issued_at_ms=10), make(sequence=2, issued_at_ms=20, snapshot_id="new")
    for value in (old, new, old, new):
        cache.apply_hint(value)
    assert hint_of(cache).sequence == 2
    assert cache.counts == {Reason.RECEIVED: 2, Reason.REPLAYED: 1}
    cache.apply_hint(None)
    assert view(cache).hint is None
    cache.apply_hint(new)
    assert view(cache).hint is None, "a replay revived a withdrawn hint"
    # A publisher whose sequence restarted, and one whose clock stepped back.
    cache.apply_hint(make(sequence=1, issued_at_ms=30))
    cache.apply_hint(make(sequence=3, issued_at_ms=5))
    assert hint_of(cache).sequence == 3


def test_a_stop_hides_the_hint_until_it_is_lifted(cache: HintCache) -> None:
    cache.apply_hint(make())
    cache.apply_stop(b"")
    assert view(cache).usable_hint is None
    cache.apply_stop(None)
    assert view(cache).usable_hint is not None


def test_losing_the_topic_forgets_the_hint_only_when_told(cache: HintCache) -> None:
    cache.mark_unavailable("connection refused", forget=False)
    assert view(cache).is_cold
    cache.apply_hint(make())
    cache.mark_unavailable("connection refused", forget=False)
    assert view(cache).hint is not None
    cache.mark_unavailable("no topic", forget=True)
    assert view(cache).hint is None
    assert not view(cache).is_cold


def test_the_end_of_every_outage_is_told(cache: HintCache, caplog: pytest.LogCaptureFixture) -> None:
    """Also of one that began before the topic was ever read, and of one after which no hint is left."""
    caplog.set_level("INFO")
    for forget in (True, False, True):
        cache.mark_unavailable("connection refused", forget=forget)
        cache.mark_unavailable("connection refused", forget=False)
        cache.mark_ready()
        cache.mark_ready()
    assert cache.counts == {Reason.UNAVAILABLE: 6, Reason.READY: 3}
    shown = [record.reason for record in caplog.records if hasattr(record, "reason")]
    assert shown == ["UNAVAILABLE", "READY"] * 3


def test_a_failing_callback_does_no_harm() -> None:
    def fail(_: HintEvent) -> None:
        raise RuntimeError("the application's own")

    cache = HintCache("g", on_event=fail)
    cache.apply_hint(make())
    assert view(cache).hint is not None


def test_each_thing_is_logged_once_for_a_plan(cache: HintCache, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="evenlag.consumer"):
        for _ in range(3):
            cache.note(Reason.EXPIRED, "plan", "5 s ago")
    assert len(caplog.records) == 1
    assert cache.counts[Reason.EXPIRED] == 3


@given(st.binary(max_size=300))
def test_no_bytes_ever_raise(value: bytes) -> None:
    cache = HintCache("g")
    cache.apply_hint(value)
    assert view(cache).hint is None


@given(st.integers(0, 400), st.integers(0, 255))
def test_no_damaged_hint_is_taken_when_signed(index: int, byte: int) -> None:
    value = bytearray(make(key=KEY))
    index %= len(value)
    is_same = value[index] == byte
    value[index] = byte
    cache = HintCache("g", group_key=KEY)
    cache.apply_hint(bytes(value))
    assert (view(cache).hint is not None) == is_same


def test_while_keys_are_changed_hints_of_either_key_are_taken_and_of_no_other() -> None:
    old, new, other = (derive_group_key(master, "g") for master in (b"old", b"new", b"other"))
    cache = HintCache("g", group_key=[old, new])
    for sequence, key in enumerate([old, new, other], start=1):
        payload = HintPayload(
            cluster_id="A" * 21 + "Q", group_id="g", snapshot_id="s", fingerprint="0" * 64, assignment={},
            count_slack=0, max_moves=0,
        )  # fmt: skip
        cache.apply_hint(
            encode_hint(payload.encode(), sequence=sequence, issued_at_ms=1, expires_at_ms=2, group_key=key)
        )
    assert cache.counts == {Reason.RECEIVED: 2, Reason.BAD_SIGNATURE: 1}
    for nothing in (b"", [], [b""]):
        with pytest.raises(ValueError, match="hint"):
            HintCache("g", group_key=nothing)


def test_where_signing_is_required_a_consumer_without_a_key_does_not_start() -> None:
    with pytest.raises(ValueError, match="required_signing needs a hint_key"):
        HintCache("g", required_signing=True)
    with pytest.raises(ValueError, match="required_signing needs a hint_key"):
        HintedConsumer("t", group_id="g", required_signing=True, bootstrap_servers="localhost:1")
    cache = HintCache("g", group_key=KEY, required_signing=True)
    cache.apply_hint(make())
    assert cache.counts == {Reason.BAD_SIGNATURE: 1}
    cache.apply_hint(make(key=KEY))
    assert view(cache).hint is not None
