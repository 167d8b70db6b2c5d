"""Partition numbers as hints write them, ``"0-3,7"``: few bytes can name millions, so they stay ranges."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, overload

from assignor_core.errors import HintFormatError
from assignor_core.record import MAX_NUMBER

# numpy is imported where it is used: commands read hints in processes that load no numpy.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?(?:,|\Z)", re.ASCII)


class PartitionSpans(Sequence[int]):
    """Ascending partition numbers, as large in memory as the text of their ranges.

    `firsts` and `lasts` are the ends of each range, ascending; ranges neither overlap nor touch.

    Examples
    --------
    >>> numbers = PartitionSpans.parse("0-3,7")
    >>> len(numbers), list(numbers), numbers.spans, str(numbers)
    (5, [0, 1, 2, 3, 7], ((0, 3), (7, 7)), '0-3,7')
    """

    __slots__ = ("_ends", "_firsts", "_lasts", "_size")

    def __init__(self, firsts: array[int], lasts: array[int]) -> None:
        self._firsts, self._lasts = firsts, lasts
        self._size = sum(lasts) - sum(firsts) + len(firsts)
        # How many numbers there are up to the end of each range, once a number is asked for by its place.
        self._ends: array[int] | None = None

    @classmethod
    def of(cls, numbers: Iterable[int]) -> PartitionSpans:
        """Return the ranges of partition numbers in any order; `HintFormatError` if one is repeated."""
        if isinstance(numbers, cls):
            return numbers
        if isinstance(numbers, range) and numbers.step == 1 and numbers and _is_plausible(numbers):
            return cls(array("q", numbers[:1]), array("q", numbers[-1:]))
        ascending = sorted(map(int, numbers))
        for number in (*ascending[:1], *ascending[-1:]):
            if not 0 <= number <= MAX_NUMBER:
                raise HintFormatError(f"{number} is no partition number")
        known = set(ascending)
        if len(known) < len(ascending):
            twice = next(number for number, after in pairwise(ascending) if number == after)
            raise HintFormatError(f"partition {twice} is repeated")
        firsts = [number for number in ascending if number - 1 not in known]
        lasts = [number for number in ascending if number + 1 not in known]
        return cls(array("q", firsts), array("q", lasts))

    @classmethod
    def parse(cls, text: object) -> PartitionSpans:
        """Read ranges; anything but the text that ``str`` would give raises `HintFormatError`."""
        if not isinstance(text, str):
            raise HintFormatError("a list of partition ranges is no text")
        firsts, lasts, position, before = array("q"), array("q"), 0, -2
        while match := _RANGE.match(text, position):
            first, last = int(match[1]), int(match[2] or match[1])
            if first <= before + 1 or last > MAX_NUMBER or (match[2] is not None and last <= first):
                break
            firsts.append(first)
            lasts.append(last)
            position, before = match.end(), last
            if position == len(text):
                break
        numbers = cls(firsts, lasts)
        if str(numbers) != text or not text:
            raise HintFormatError(f"{text!r:.80} is no list of partition ranges")
        return numbers

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The first and the last number of each range, ascending."""
        return tuple(self.iter_spans())

    def iter_spans(self) -> Iterator[tuple[int, int]]:
        """Return what `spans` has, one by one."""
        return zip(self._firsts, self._lasts, strict=True)

    def as_array(self) -> NDArray[np.int64]:
        """Return the first and the last number of each range: int64 [N, 2]."""
        import numpy as np

        columns = [np.array(numbers, dtype=np.int64) for numbers in (self._firsts, self._lasts)]
        return np.stack(columns, axis=1)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[int]:
        for first, last in self.iter_spans():
            yield from range(first, last + 1)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...

    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index]
        if self._ends is None:
            self._ends = array("q", accumulate(last - first + 1 for first, last in self.iter_spans()))
        span = bisect_right(self._ends, at)
        return self._lasts[span] - (self._ends[span] - 1 - at)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        span = bisect_right(self._firsts, number) - 1
        return span >= 0 and number <= self._lasts[span]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionSpans):
            return self._firsts == other._firsts and self._lasts == other._lasts
        if isinstance(other, (tuple, list, range)):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __str__(self) -> str:
        spans = self.iter_spans()
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)

    def __repr__(self) -> str:
        return f"PartitionSpans.parse({str(self)!r:.80})"


def _is_plausible(numbers: range) -> bool:
    return numbers[0] >= 0 and numbers[-1] <= MAX_NUMBER
