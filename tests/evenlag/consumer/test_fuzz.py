"""For any record in the hint topic and any claim of a member: no exception, and a valid assignment."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.hint import HintPayload, derive_group_key, encode_hint, fingerprint
from assignor_core.record import topic_id_text
from evenlag.consumer import HintAssignor, HintCache, Reason
from evenlag.consumer._wire_format import read_members
from tests.evenlag.consumer.test_assignor import Cluster, member, pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = derive_group_key(b"master", "g")
IDS = {"t": uuid.UUID(int=11), "u": uuid.UUID(int=12)}
COUNTS = {"t": 4, "u": 2}
TEXT = {name: topic_id_text(each) for name, each in IDS.items()}
FAR = 2**53
NUM_EXAMPLES = 100


def value_of(payload: HintPayload, *, sequence: int = 1, key: bytes | None = KEY) -> bytes:
    return encode_hint(
        payload.encode(), sequence=sequence, issued_at_ms=sequence, expires_at_ms=FAR, group_key=key
    )


def payload_for(assignment: Mapping[str, Mapping[str, Any]], **changes: Any) -> HintPayload:
    identity = fingerprint(
        [(key, list(TEXT.values())) for key in assignment], {TEXT[n]: c for n, c in COUNTS.items()}
    )
    fields: dict[str, Any] = {
        "cluster_id": "A" * 21 + "Q",
        "group_id": "g",
        "snapshot_id": "s",
        "fingerprint": identity,
        "assignment": assignment,
        "count_slack": 100,
        "max_moves": 100,
    }
    return HintPayload(**{**fields, **changes})


VALID = value_of(payload_for({"m:m0": {TEXT["t"]: (0, 1, 2, 3), TEXT["u"]: (0, 1)}}))
ENVELOPE, PAYLOAD = (json.loads(line) for line in VALID.split(b"\n"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=10,
)


def json_line(content: Any) -> bytes:
    return json.dumps(content).encode("utf-8", "surrogatepass")


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid hint, with bytes turned, cut, repeated or put in."""
    value = bytearray(VALID)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(value) - 1)))
        kind = draw(st.sampled_from(["turn", "cut", "repeat", "put"]))
        if kind == "turn" and value:
            value[at] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del value[at:]
        elif kind == "repeat":
            value += value[at:]
        else:
            value[at:at] = draw(st.binary(max_size=40))
    return bytes(value)


@st.composite
def other_json(draw: st.DrawFn) -> bytes:
    """Two lines of JSON in which a field of either, or all of it, is something else."""
    head, body = dict(ENVELOPE), dict(PAYLOAD)
    for content in (head, body):
        for name in draw(st.lists(st.sampled_from(sorted(content)), max_size=2)):
            content[name] = draw(json_values)
        if draw(st.booleans()):
            content[draw(st.text(max_size=8))] = draw(json_values)
    lines = (draw(st.just(head) | json_values), draw(st.just(body) | json_values))
    return b"\n".join(map(json_line, lines))


records = st.one_of(st.binary(max_size=400), mutated(), other_json(), st.none())


@settings(max_examples=NUM_EXAMPLES, deadline=None)
@given(st.lists(records, max_size=4))
def test_with_a_key_no_bytes_but_the_publishers_become_a_hint(values: list[bytes | None]) -> None:
    cache = HintCache("g", group_key=KEY)
    for number, value in enumerate(values, start=1):
        cache.apply_hint(value)
        # A malformed record after the publisher's own leaves that one as it is.
        assert cache.view.hint is None or VALID in values[:number]
    cache.apply_hint(value_of(payload_for({"m:m0": {}}), sequence=2))
    assert cache.view.hint is not None, "what came before does not stand in the way of a good one"


@settings(max_examples=NUM_EXAMPLES, deadline=None)
@given(values=st.lists(records, max_size=4))
def test_without_a_key_nothing_but_well_formed_hints_for_the_group_are_taken(
    values: list[bytes | None],
) -> None:
    cache = HintCache("g")
    cache.mark_ready()
    assignor = HintAssignor(cache, now_ms=lambda: 1)
    for value in values:
        cache.apply_hint(value)
        assert cache.view.hint is None or cache.view.hint.payload.group_id == "g"
        given_out = assignor.assign(Cluster(COUNTS, dict(IDS)), [member("m0", COUNTS), member("m1", COUNTS)])
        held = [pair for each in given_out.values() for pair in pairs(each)]
        assert sorted(held) == sorted((t, n) for t, count in COUNTS.items() for n in range(count))
    assert not cache.counts.get(Reason.INTERNAL_ERROR)


def test_a_value_that_is_too_large_is_not_even_read() -> None:
    cache = HintCache("g")
    cache.apply_hint(VALID + b" " * (33 * 1024 * 1024))
    assert cache.view.hint is None
    assert cache.counts == {Reason.MALFORMED: 1}


topics = st.sampled_from(["t", "u", "gone"])
claims = st.lists(st.tuples(topics, st.integers(-2, 6)), max_size=8)
someone = st.tuples(st.lists(topics, max_size=3), claims, st.integers(-1, 4))
hinted = st.dictionaries(
    st.sampled_from(["m:m0", "m:m1", "m:m2", "m:m3", "m:stranger", "i:m0"]),
    st.dictionaries(
        st.sampled_from([*TEXT.values(), topic_id_text(uuid.UUID(int=99))]),
        st.lists(st.integers(0, 9), max_size=5, unique=True).map(lambda n: tuple(sorted(n))),
        max_size=3,
    ),
    max_size=4,
)


def once_each(assignment: Mapping[str, Mapping[str, tuple[int, ...]]]) -> dict[str, dict[str, Any]]:
    """Leave each partition with the first that has it: a payload with two owners cannot be written."""
    seen: set[tuple[str, int]] = set()
    kept: dict[str, dict[str, Any]] = {}
    for key, by_topic in assignment.items():
        kept[key] = {
            topic: tuple(n for n in numbers if (topic, n) not in seen) for topic, numbers in by_topic.items()
        }
        seen |= {(topic, n) for topic, numbers in by_topic.items() for n in numbers}
    return kept


@settings(max_examples=NUM_EXAMPLES, deadline=None)
@given(st.lists(someone, min_size=1, max_size=4), hinted, st.booleans())
def test_no_hint_and_no_claims_lead_to_an_exception_or_two_owners(
    people: list[tuple[list[str], list[tuple[str, int]], int]],
    assignment: dict[str, dict[str, tuple[int, ...]]],
    fits: bool,
) -> None:
    members = [member(f"m{i}", ts, owned, generation) for i, (ts, owned, generation) in enumerate(people)]
    cache = HintCache("g")
    cache.mark_ready()
    changes: dict[str, Any] = {}
    if fits:  # so that it is looked into, not put aside for its fingerprint
        changes["fingerprint"] = fingerprint(
            [(f"m:m{i}", [TEXT[t] for t in ts if t in TEXT]) for i, (ts, _, _) in enumerate(people)],
            {TEXT[n]: c for n, c in COUNTS.items()},
        )
    cache.apply_hint(value_of(payload_for(once_each(assignment), **changes), key=None))
    assignor = HintAssignor(cache, now_ms=lambda: 1)
    answer = assignor.assign(Cluster(COUNTS, dict(IDS)), members)
    given_out = {name: pairs(each) for name, each in answer.items()}
    assert not cache.counts.get(Reason.INTERNAL_ERROR)
    assert set(given_out) == {m.member_id for m in members}
    handed = [pair for held in given_out.values() for pair in held]
    assert len(handed) == len(set(handed))
    by_id = {m.member_id: m for m in read_members(members)}
    for name, held in given_out.items():
        others = {pair for other, m in by_id.items() if other != name for pair in m.owned}
        assert {topic for topic, _ in held} <= set(by_id[name].topics)
        assert not (held - set(by_id[name].owned)) & others
