"""Mutated hints and loads, and what the Python codecs make of them.

``python -m tests.support.records.mutations --records 1000000`` decodes that many. A test of another codec
takes the same records from `mutated_records` and compares with `verdict`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assignor_core.errors import HintError
from assignor_core.hint import HintPayload, decode_hint, derive_broker_key, encode_hint, hint_key
from assignor_core.loads import LoadFlow, LoadRacks, LoadsPayload, decode_loads, encode_loads, loads_key

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP_ID, CLUSTER_ID, MASTER_KEY = "orders-é", "cluster", "a master key for tests"
ACCEPTED = "ACCEPTED"
_A, _B = "AAAAAAAAAAAAAAAAAAAAAQ", "vPeOCWypqUOSepEvx0cbog"
_SIGNS = b'"\\{}[],:0123456789abcdefimuntrl- \n\x00\x7f\xc3\xa9\xff'
# What a byte alone seldom becomes: numbers at bounds, half a surrogate pair, ranges of millions.
_TOKENS = (
    *(str(number).encode() for number in (0, -1, 1000, 1001, 2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63)),
    *(b"null", b"true", b"1.0", b"1e3", b"-0", b"01", b"9" * 400, b"{}", b"[]", b'""', b"[[[[", b"NaN"),
    *(
        b'"\\ud800"',
        b'"\\ude00\\ud83d"',
        b'"\\ud83d\\ude00"',
        b'"\\u0061"',
        b'"\xed\xa0\x80"',
        b"\xef\xbb\xbf",
    ),
    *(
        b'"0-1999999"',
        b'"0-2000000"',
        b'"0-2147483647"',
        b'"0,2,4"',
        b'"3-1"',
        b'"0-0"',
        b'"1-2,3"',
        b'"m:a"',
    ),
    *(b'"hmac":null,', b'"version":1,', b'"kind":"loads",', b'"sequence":1,', b'"loads"', b'"group_id":"x",'),
)


@dataclass(frozen=True)
class MutatedRecord:
    """A record with some bytes changed.

    is_loads: Whether it was a record of loads, else a hint.
    is_signed: Whether it was signed with the broker's key of `MASTER_KEY`, and the reader asks for
        signatures.
    """

    is_loads: bool
    value: bytes
    is_signed: bool

    @property
    def key(self) -> bytes:
        """The record's key."""
        return loads_key(GROUP_ID) if self.is_loads else hint_key(GROUP_ID)


def mutated_records(count: int, seed: int = 20) -> Iterator[MutatedRecord]:
    """Yield so many records, repeatable by the seed; a few are not changed at all."""
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    sound = {
        (is_loads, is_signed): [_sound(is_loads, is_signed, number) for number in range(3)]
        for is_loads in (False, True)
        for is_signed in (False, True)
    }
    for _ in range(count):
        is_loads, is_signed = chance.random() < 0.5, chance.random() < 0.2
        value = bytearray(chance.choice(sound[is_loads, is_signed]))
        for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
            _mutate(chance, value)
        yield MutatedRecord(is_loads, bytes(value), is_signed)


def verdict(record: MutatedRecord) -> str:
    """Return ACCEPTED or the reason of the refusal; any other exception than `HintError` is raised."""
    group_key = derive_broker_key(MASTER_KEY.encode(), GROUP_ID) if record.is_signed else None
    decode = decode_loads if record.is_loads else decode_hint
    try:
        decoded = decode(record.value, group_id=GROUP_ID, group_key=group_key, cluster_id=CLUSTER_ID)
    except HintError as error:
        return error.reason
    if decoded.payload.encode() != decoded.payload_bytes:
        raise AssertionError(f"not canonical, but accepted: {record.value!r}")
    return ACCEPTED


def _sound(is_loads: bool, is_signed: bool, number: int) -> bytes:
    key = derive_broker_key(MASTER_KEY.encode(), GROUP_ID) if is_signed else None
    if is_loads:
        return encode_loads(_loads(number).encode(), group_key=key)
    data = _hint(number).encode()
    return encode_hint(data, sequence=7, issued_at_ms=10**12, expires_at_ms=2 * 10**12, group_key=key)


def _hint(number: int) -> HintPayload:
    shares = {"i:pod-0": {_A: [0, 2, 3, 4], _B: [1]}, "m:\U0001f600-2": {_A: [1, 5]}, "m:b": {_B: [0]}}
    return HintPayload(
        cluster_id=CLUSTER_ID,
        group_id=GROUP_ID,
        snapshot_id="s-1",
        fingerprint="0123456789abcdef" * 4,
        assignment=dict(list(shares.items())[: number + 1]),
        count_slack=1,
        max_moves=100,
        member_ids={"i:pod-0": "pod-0-5f"} if number else None,
        together=[[_A, _B]] if number > 1 else None,
    )


def _loads(number: int) -> LoadsPayload:
    flow = LoadFlow({_A: [3, 0, 9], _B: [1, 1]}, {_A: [1, None, 0], _B: [0, 1]}, [70, 0], 10, 5)
    loads: dict[str, list[int | None]] = {_A: [7, None, 2**31 - 1], _B: [0, 1]}
    return LoadsPayload(
        cluster_id=CLUSTER_ID,
        group_id=GROUP_ID,
        snapshot_id="s-1",
        measured_at_ms=10**12,
        valid_until_ms=10**12 + 10**6,
        loads=dict(list(loads.items())[:number]),
        capacities={"i:pod-0": 250, "m:\U0001f600-2": 1000},
        default_capacity=100,
        count_slack=0,
        max_moves=4,
        member_ids=["a", "b-é"] if number else None,
        racks=LoadRacks([["r"], ["r", "é"]], {_A: [0, None, 1]}, 20) if number > 1 else None,
        together=[[_A, _B]] if number > 1 else None,
        flow=flow if number > 1 else None,
    )


def _mutate(chance: random.Random, value: bytearray) -> None:
    at = chance.randrange(len(value) + 1)
    kind = chance.randrange(6)
    if kind == 0:
        value[at : at + 1] = bytes([chance.choice(_SIGNS)])
    elif kind == 1:
        value[at:at] = bytes([chance.choice(_SIGNS)])
    elif kind == 2:
        del value[at : at + chance.choice([1, 1, 2, 9, 60])]
    elif kind == 3:
        _replace_token(chance, value, at)
    elif kind == 4:
        part = value[at : at + chance.randint(1, 40)]
        to = chance.randrange(len(value) + 1)
        value[to:to] = part
    else:
        del value[at:]
        value += b"" if chance.random() < 0.5 else chance.choice(_TOKENS)


def _replace_token(chance: random.Random, value: bytearray, at: int) -> None:
    """Replace the number or text around a place, or else insert a token there."""
    start = at
    while start and chr(value[start - 1]) not in '{}[],:"\n':
        start -= 1
    end = at
    while end < len(value) and chr(value[end]) not in '{}[],:"\n':
        end += 1
    quoted = start > 0 and end < len(value) and value[start - 1 : start] == b'"' == value[end : end + 1]
    if quoted:
        start, end = start - 1, end + 1
    value[start:end] = chance.choice(_TOKENS)


def main() -> int:
    """Decode records and report the verdicts."""
    parser = argparse.ArgumentParser(description="Decode mutated records of the hint topic.")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many")
    parser.add_argument("--seed", type=int, default=20, help="of the mutations")
    options = parser.parse_args()
    verdicts = Counter(verdict(record) for record in mutated_records(options.records, options.seed))
    sys.stdout.write(f"{options.records} records: {dict(sorted(verdicts.items()))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
