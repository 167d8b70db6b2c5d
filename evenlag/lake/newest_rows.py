"""Search for the newest rows of a table by its files' statistics, without reading its history."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from evenlag.lake.file_pruning import bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter


class NewestSearch:
    """Decides which files of a table to read next, until no other file can have newer rows.

    files: Files that may match, as :func:`~evenlag.lake.file_pruning.may_match` returns them.
    kind: Its type: a date, a timestamp or an integer.
    filters: The query's filters: those on `by` lower the bounds.
    limit: Number of rows to find.
    is_oldest: Search for the smallest values.
    rows: The newest rows of the files that were read, the newest first; None before the first file.

    Raises
    ------
    ValueError
        For a type without exact bounds, or a limit below 1.
    """

    def __init__(
        self,
        files: pa.Table,
        by: str,
        kind: pa.DataType,
        filters: Sequence[Filter],
        limit: int,
        *,
        is_oldest: bool = False,
    ) -> None:
        import pyarrow as pa

        if not (pa.types.is_temporal(kind) or pa.types.is_integer(kind)) or limit < 1:
            raise ValueError(f"no search for the {limit} newest rows by {by} ({kind})")
        self.rows: pa.Table | None = None
        self._by, self._limit, self._is_oldest = by, limit, is_oldest
        found = bounds(files, by, kind)
        ends: list[Any] = [None] * files.num_rows
        if found is not None:
            ends = found[0 if is_oldest else 1].to_pylist()
        for column, operator, value in filters:
            if column == by and operator in (("=", ">", ">=") if is_oldest else ("=", "<", "<=")):
                ends = [None if end is None else (max if is_oldest else min)(end, value) for end in ends]
        places = range(files.num_rows)
        unknown = [place for place in places if ends[place] is None]
        known = sorted(
            (place for place in places if ends[place] is not None),
            key=lambda place: ends[place],
            reverse=not is_oldest,
        )
        self._files = files.take(pa.array(unknown + known, pa.int64()))
        self._ends = [ends[place] for place in known]
        self._num_unknown = len(unknown)
        self._num_read, self._num_next = 0, 1

    def next_files(self) -> pa.Table | None:
        """Return the files to read next; None if the search is over."""
        start = self._num_read
        if start == 0:
            # A file without statistics may have any value.
            stop = max(1, self._num_unknown)
        elif self._limit_is_reached():
            last = self._last_value()
            stop = start
            while stop < self._files.num_rows and not self._is_beyond(stop, last):
                stop += 1
        else:
            self._num_next *= 2
            stop = self._stop_within_reach(start)
        stop = min(stop, self._files.num_rows)
        if stop == start:
            return None
        self._num_read = stop
        return self._files.slice(start, stop - start)

    def add(self, rows: pa.Table) -> None:
        """Add the matching rows of the files that were read."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = rows.filter(pc.is_valid(rows[self._by]))
        rows = rows if self.rows is None else pa.concat_tables([self.rows, rows])
        rows = rows.sort_by([(self._by, "ascending" if self._is_oldest else "descending")])
        if rows.num_rows > self._limit:
            last = rows[self._by][self._limit - 1]
            compare = pc.less_equal if self._is_oldest else pc.greater_equal
            rows = rows.filter(compare(rows[self._by], last))
        self.rows = rows

    def _stop_within_reach(self, start: int) -> int:
        """End of the next files while too few rows are found: more each time, but not much further back.

        A file of an old month is large. So no step goes further back in time than twice as far as the search
        has come, or than a day.
        """
        ends = self._ends[start - self._num_unknown :][: self._num_next]
        if not ends or not isinstance(ends[0], date):
            return start + self._num_next
        reach = max(abs(self._ends[0] - ends[0]), timedelta(days=1))
        return start + len([end for end in ends if abs(ends[0] - end) <= reach])

    def _limit_is_reached(self) -> bool:
        return self.rows is not None and self.rows.num_rows >= self._limit

    def _last_value(self) -> Any:
        return None if self.rows is None else self.rows[self._by][self._limit - 1].as_py()

    def _is_beyond(self, place: int, last: Any) -> bool:
        """Whether a file has no value as new as one that was found; all values of later files are older."""
        end = self._ends[place - self._num_unknown]
        beyond: bool = end > last if self._is_oldest else end < last
        return beyond
