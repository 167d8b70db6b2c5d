"""Compares and counts values: the output of a command against the content of the lake."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import CompletedProcess
from typing import Any, Final

# For floats that were summed in another order.
RELATIVE_TOLERANCE: Final = 1e-9


Runner = Callable[[Sequence[str]], CompletedProcess[str]]
"""Runs the command with arguments (without its name) and returns what it gave."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that a command shows differently from the lake."""

    command: str
    value: str
    shown: Any
    expected: Any

    def __str__(self) -> str:
        return f"{self.command}: {self.value}: shown {self.shown!r}, the lake has {self.expected!r}"


@dataclass(slots=True)
class Checks:
    """All comparisons for one lake.

    differences: Values that differ.
    num_compared: Number of compared values by command.
    """

    differences: list[Difference] = field(default_factory=list)
    num_compared: Counter[str] = field(default_factory=Counter)

    def same(self, command: str, value: str, shown: Any, expected: Any) -> None:
        """Compare two values, nested ones leaf by leaf; floats with :data:`RELATIVE_TOLERANCE`."""
        if isinstance(expected, Mapping) and isinstance(shown, Mapping):
            for key in sorted({*expected, *shown}, key=str):
                self.same(command, f"{value}.{key}", shown.get(key, MISSING), expected.get(key, MISSING))
            return
        if _is_list(expected) and _is_list(shown):
            self.same(command, f"len({value})", len(shown), len(expected))
            for number, (one, other) in enumerate(zip(shown, expected, strict=False)):
                self.same(command, f"{value}[{number}]", one, other)
            return
        self.num_compared[command] += 1
        if not _is_same(shown, expected):
            self.differences.append(Difference(command, value, shown, expected))

    def has(self, command: str, value: str, found: Any) -> bool:
        """Return whether something exists, and record a difference if it does not."""
        self.same(command, value, bool(found), True)  # the expected value
        return bool(found)


class _Missing:
    """A missing key; unlike None, which can be a value on both sides."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING: Final = _Missing()


def parse_json_strictly(text: str) -> Any:
    """Parse JSON according to RFC 8259."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"an object has a key twice: {[key for key, _ in pairs]}")
    return found


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_same(shown: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isinstance(shown, (int, float)) and not isinstance(shown, bool):
        return math.isclose(shown, expected, rel_tol=RELATIVE_TOLERANCE, abs_tol=1e-12)
    return type(shown) is type(expected) and bool(shown == expected)
