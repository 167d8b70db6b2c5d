"""How much heap the brokers' plug-in needs for the records of groups: ``HeapSize.java``, in Python.

A test compares the two. The plug-in's limit is ``evenlag.max.bytes``, which a broker does not report.
"""

from typing import Final

from assignor_core.hint import HintPayload
from assignor_core.loads import LoadsPayload
from assignor_core.partition_spans import PartitionSpans
from evenlag.publishing.hint_topic import TopicState

_MIB: Final = 1024 * 1024
MIN_DEFAULT_BYTES: Final = 64 * _MIB
"""The default limit of a broker with a heap of up to 512 MiB; above it is an eighth of the heap."""
_SMALL: Final = 24
_UUID: Final = 32
_INDEX_ENTRY: Final = 104
_GROUP: Final = 300
_LATIN: Final = 0xFF


def groups_without_room(state: TopicState, limit: int = MIN_DEFAULT_BYTES) -> dict[str, str]:
    """Return the groups for whose hints brokers may have no room, each with the reason.

    A broker that starts keeps hints in the order of the topic, so the last ones have no room. Loads give way.
    """
    sizes = {
        group_id: (hint.issued_at_ms, _record_bytes(group_id, _hint_bytes(hint.payload)))
        for group_id in state.hints
        if (hint := state.hints[group_id]).payload.member_ids is not None
    }
    total, found = 0, {}
    for group_id in sorted(sizes, key=lambda group_id: (sizes[group_id], group_id)):
        total += sizes[group_id][1]
        if total > limit:
            found[group_id] = (
                f"brokers may have no room for its hint: it and older ones take {-(-total // _MIB):,} MiB, "
                f"evenlag.max.bytes is {limit // _MIB:,} MiB unless it is set or the heap exceeds 512 MiB"
            )
    return found


def plugin_bytes(state: TopicState) -> dict[str, int]:
    """Return the heap that the plug-in needs for each group whose records name member ids: of KIP-848."""
    found: dict[str, int] = {}
    for group_id in state.hints.keys() | state.loads.keys():
        hint, loads = state.hints.get(group_id), state.loads.get(group_id)
        size = 0
        if hint is not None and hint.payload.member_ids is not None:
            size += _hint_bytes(hint.payload)
        if loads is not None and loads.payload.member_ids is not None:
            size += _loads_bytes(loads.payload)
        if size:
            found[group_id] = _record_bytes(group_id, size)
    return found


def _record_bytes(group_id: str, size: int) -> int:
    return size + _GROUP + _text(group_id)


def _hint_bytes(payload: HintPayload) -> int:
    runs: dict[str, int] = {}
    size = 88 + 2 * _text("0" * 64) + _text(payload.group_id) + 2 * _SMALL
    for key, topics in payload.assignment.items():
        size += 48 + _text(key) + _SMALL + _map(len(topics))
        for topic, numbers in topics.items():
            # Not expanded: a record of a few bytes can name millions of partitions.
            count = len(PartitionSpans.of(numbers).spans)
            runs[topic] = runs.get(topic, 0) + count
            size += _SMALL + 2 * _array(4 * count)
        if key.startswith("m:"):
            size += _INDEX_ENTRY + _text(key)
    size += _map(len(runs)) + sum(_UUID + 32 + 2 * _array(4 * count) for count in runs.values())
    ids = payload.member_ids or {}
    return size + _map(len(ids)) + sum(_text(key) + _text(name) + _INDEX_ENTRY for key, name in ids.items())


def _loads_bytes(payload: LoadsPayload) -> int:
    # The encoding leaves out the members of default capacity.
    keys = [key for key, value in payload.capacities.items() if value != payload.default_capacity]
    size = 80 + _text("0" * 64) + _text(payload.group_id) + _map(len(keys)) + _map(len(payload.loads))
    size += sum(_text(key) + _SMALL for key in keys)
    of_loads = sum(_UUID + _array(4 * len(values)) for values in payload.loads.values())
    size += of_loads
    if payload.flow is not None:
        size += 2 * _SMALL + _array(4 * len(payload.flow.speeds)) + 2 * (_map(len(payload.loads)) + of_loads)
    ids = payload.member_ids or ()
    return size + _SMALL + _array(4 * len(ids)) + sum(_text(name) + _INDEX_ENTRY for name in ids)


def _text(text: str) -> int:
    # Java's characters are UTF-16 units.
    units = len(text.encode("utf-16-le")) // 2
    is_wide = any(ord(character) > _LATIN for character in text)
    return _SMALL + _array((2 if is_wide else 1) * units)


def _map(number: int) -> int:
    return _SMALL if number < 2 else _SMALL + _array(16 * number)  # noqa: PLR2004  # Map1 of Java


def _array(size: int) -> int:
    return (16 + size + 7) // 8 * 8
