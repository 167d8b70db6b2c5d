"""What it costs to compute the heap of records; `tests/broker_plugin/test_budget.py` has the sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

import pytest

from assignor_core.hint import HintPayload, decode_hint, encode_hint
from assignor_core.partition_spans import PartitionSpans
from evenlag.publishing.hint_topic import TopicState
from evenlag.publishing.plugin_memory import groups_without_room, plugin_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_ranges_of_a_record_that_anybody_may_have_written_are_not_expanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each such record would cost a fraction of a second and 85 MB, and the topic holds thousands of them."""

    def expand(_: PartitionSpans) -> Iterator[Never]:
        pytest.fail("expanded")

    assignment = {"m:a": {"AAAAAAAAAAAAAAAAAAAAAQ": range(2_000_000)}}
    payload = HintPayload("c", "g", "s", "0" * 64, assignment, 0, 0, member_ids={})
    value = encode_hint(payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=2)
    hint = decode_hint(value, group_id="g")
    monkeypatch.setattr(PartitionSpans, "__iter__", expand)
    state = TopicState(exists=True, hints={"g": hint}, unreadable={})
    (size,) = plugin_bytes(state).values()
    assert size < 2_000
    assert list(groups_without_room(state, limit=1)) == ["g"]
