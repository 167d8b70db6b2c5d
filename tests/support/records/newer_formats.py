"""Orders of hints in known and newer formats, and which one counts at the end, for every reader."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

AHEAD_MS: Final = 400_000


@dataclass(frozen=True)
class Step:
    """One record: its format, sequence and time of issue, in milliseconds relative to the first."""

    version: int
    sequence: int
    at_ms: int


OLD, NEWER, NEXT = Step(1, 1, 0), Step(2, 2, 10), Step(1, 3, 20)
ORDERS: Final[tuple[tuple[str, tuple[Step, ...], Step | None], ...]] = (
    ("it withdraws an older one", (OLD, NEWER), None),
    ("an older one does not come back", (OLD, NEWER, OLD), None),
    ("an older one does not come after it", (NEWER, OLD), None),
    ("a later one follows by sequence", (OLD, NEWER, Step(1, 3, 10)), Step(1, 3, 10)),
    ("a later one follows by time", (OLD, NEWER, Step(1, 1, 11)), Step(1, 1, 11)),
    ("twice, and a later one", (NEWER, NEWER, NEXT, NEWER), NEXT),
    ("a replay withdraws nothing", (Step(1, 2, 10), Step(2, 1, 0)), Step(1, 2, 10)),
    ("the future withdraws nothing yet", (OLD, Step(2, 2, AHEAD_MS)), OLD),
    ("the future blocks nothing", (OLD, Step(2, 2, AHEAD_MS), NEXT), NEXT),
)


def as_format(value: bytes, version: int) -> bytes:
    """Return an unsigned hint with another number of its format and, in a newer one, a payload of its own."""
    head, _, payload = value.partition(b"\n")
    envelope = json.loads(head) | {"version": version}
    if version > 1:
        payload = b"of a later version: " + payload
    return json.dumps(envelope, sort_keys=True, separators=(",", ":")).encode() + b"\n" + payload
