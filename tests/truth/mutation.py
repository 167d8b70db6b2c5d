"""One fault to put into the product, and the kinds of faults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    name: What is wrong then.
    file: The file of the product, from the root of the repository.
    old, new: Text that occurs there exactly once, and what replaces it.
    """

    name: str
    kind: str
    file: str
    old: str
    new: str


FILTER, UNIT, CLOCK, NULL, SUM = "filter", "unit", "clock", "null check", "sum"
SIGN, STEP, SIDE, ORDER, JOIN, SNAPSHOT = "sign", "off by one", "side", "order", "join", "snapshot"
