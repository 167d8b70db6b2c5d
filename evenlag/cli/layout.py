"""Layout of tables: what identifies a row is complete or cut in the middle, whatever the terminal's width."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from textwrap import wrap
from typing import Any, Final, NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from evenlag.formatting import middle_cut, number
from evenlag.safe_text import printable, printable_lines

# Digits of a plan's id in a table.
SHORT_ID: Final = 12
# Headings of columns that identify a row in any table.
KEYS: Final = frozenset({"group", "plan", "member", "topic", "topic id", "partition", "cluster", "table"})
# A longer word of a text may be broken.
_MOST_WORD: Final = 24
# Where a table does not fit, longer identities are cut in the middle, and folded where that makes two of them
# equal: one long name must not make the table of all groups unreadable.
_MOST_KEY: Final = 48
# Cells of a column in addition to its text: padding on both sides, and a line.
_AROUND: Final = 3
_BETWEEN: Final = "   "

_is_wide: ContextVar[bool] = ContextVar("_is_wide", default=False)


@contextmanager
def wide_tables() -> Iterator[None]:
    """Show all columns of tables and wrap no cell, whatever the width of the terminal."""
    token = _is_wide.set(True)
    try:
        yield
    finally:
        _is_wide.reset(token)


class Column(NamedTuple):
    """A column: its heading, and its cell of a row.

    is_number: Whether its cells are numbers, which are aligned right and keep their width.
    is_key: Whether it identifies a row, as columns with the headings of :data:`KEYS` always do.
    """

    heading: str
    cell: Callable[[Any], str | Text] = str
    is_number: bool = False
    is_key: bool = False


def numbers(heading: str, cell: Callable[[Any], str] = str) -> Column:
    """Return a column of numbers."""
    return Column(heading, cell, is_number=True)


def key(heading: str, cell: Callable[[Any], str | Text] = str) -> Column:
    """Return a column that identifies a row."""
    return Column(heading, cell, is_key=True)


class Table:
    """A table of rows, at most `limit`, that fits a terminal of any width; more rows may be added.

    If it does not fit, headings and texts wrap first, then optional columns are left out. Columns that
    identify a row and columns of numbers keep their width. If these do not fit either, a terminal shows each
    row on several lines, with the headings; without a terminal, lines are longer than the given width.

    `optional` are headings of columns that may be left out, in the order in which they are left out.
    """

    def __init__(
        self,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[Any] = (),
        *,
        optional: Sequence[str] = (),
        caption: str = "",
        limit: int | None = None,
    ) -> None:
        listed = list(rows)
        self.title, self.optional = title, tuple(optional)
        self.caption = left_out(caption, len(listed), limit)
        self.columns = tuple(column.heading for column in columns)
        self._right = frozenset(column.heading for column in columns if column.is_number)
        self._keys = KEYS | {column.heading for column in columns if column.is_key}
        self._rows: list[tuple[list[Text], str | None]] = []
        for row in listed[:limit]:
            self.add_row(*(column.cell(row) for column in columns))

    def add_row(self, *cells: str | Text, style: str | None = None) -> None:
        """Add a row of one text per column; names in them are shown literally."""
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self._rows.append(([_text(cell) for cell in cells], style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the table for a console, as rich calls it."""
        full = [max(cell_len(name), self._widest(place)) for place, name in enumerate(self.columns)]
        if _is_wide.get() or _total(full) <= options.max_width:
            yield from _as_wide(console, options, self._made(range(len(self.columns)), {}), _total(full))
            return
        least = {place: self._least_width(place) for place in range(len(self.columns))}
        left_out = []
        for name in self.optional:
            if _total(least.values()) <= options.max_width:
                break
            if name in self.columns and self.columns.index(name) in least:
                del least[self.columns.index(name)]
                left_out.append(name)
        if _total(least.values()) <= options.max_width or not console.is_terminal:
            widths = self._widen(least, full, options.max_width)
            made = self._made(list(widths), widths, left_out)
            yield from _as_wide(console, options, made, _total(widths.values()))
        else:
            yield from self._expanded(options.max_width)

    def _widen(self, least: dict[int, int], full: Sequence[int], width: int) -> dict[int, int]:
        """Give columns of texts the cells that are left, one by one to the one that lacks most."""
        widths = dict(least)
        for _ in range(width - _total(widths.values())):
            lacking = max(widths, key=lambda place: full[place] - widths[place])
            if widths[lacking] >= full[lacking]:
                break
            widths[lacking] += 1
        return widths

    def _made(
        self, places: Iterable[int], widths: Mapping[int, int], left_out: Sequence[str] = ()
    ) -> RichTable:
        note = f"Left out: {', '.join(left_out)} (-o wide shows all)" if left_out else ""
        caption = ". ".join(filter(None, (self.caption.rstrip("."), note))) if note else self.caption
        made = RichTable(
            title=_text(self.title) if self.title else None,
            title_justify="left",
            caption=Text(printable_lines(caption)) if caption else None,
            caption_justify="left",
        )
        chosen = list(places)
        shown = {place: self._cells(place, is_cut=place in widths) for place in chosen}
        for place in chosen:
            name, width = self.columns[place], widths.get(place)
            heading = name if width is None else "\n".join(wrap(name, width))
            justify: JustifyMethod = "right" if name in self._right else "left"
            made.add_column(Text(heading), justify=justify, overflow="fold", width=width)
        for row, (_, style) in enumerate(self._rows):
            made.add_row(*(shown[place][row] for place in chosen), style=style)
        return made

    def _cells(self, place: int, *, is_cut: bool) -> list[Text]:
        """Return the cells of a column; with `is_cut`, long identities without their middle."""
        cells = [cells[place] for cells, _ in self._rows]
        if not is_cut or self.columns[place] not in self._keys:
            return cells
        cut = [Text(middle_cut(cell.plain, _MOST_KEY), style=cell.style) for cell in cells]
        names, shown = {cell.plain for cell in cells}, {cell.plain for cell in cut}
        return cut if len(names) == len(shown) else cells

    def _expanded(self, width: int) -> RenderResult:
        """Yield each row as pairs of a heading and a cell, with line ends between pairs; all columns."""
        if self.title:
            yield Text(printable(self.title), style="table.title")
        for cells, style in self._rows:
            line = Text()
            for name, cell in zip(self.columns, cells, strict=True):
                if not cell.plain:
                    continue
                pair = Text.assemble((f"{name} ", "bold"), cell, style=style or "", overflow="fold")
                if line and line.cell_len + len(_BETWEEN) + pair.cell_len > width:
                    yield line
                    line = Text(overflow="fold")
                line.append_text(Text.assemble(_BETWEEN, pair) if line else pair)
            yield line
            yield Text()
        if self.caption:
            yield Text(printable_lines(self.caption), style="table.caption")

    def _widest(self, place: int) -> int:
        return max((cell_len(cells[place].plain) for cells, _ in self._rows), default=0)

    def _least_width(self, place: int) -> int:
        heading = max((cell_len(word) for word in self.columns[place].split()), default=0)
        if self.columns[place] in self._right:
            return max(heading, self._widest(place))
        if self.columns[place] in self._keys:
            return max(heading, min(_MOST_KEY, self._widest(place)))
        words = [word for cells, _ in self._rows for word in cells[place].plain.split()]
        return max(heading, min(_MOST_WORD, max(map(cell_len, words), default=0)))


def left_out(text: str, count: int, limit: int | None) -> str:
    """Return a caption with the number of rows that a limit leaves out, if it leaves out any."""
    more = f"{count - limit} more: --limit {count}" if limit is not None and count > limit else ""
    return "; ".join(filter(None, (text, more)))


# Columns of many tables, by the names that the rows have in the lake.
GROUP: Final = Column("group", lambda row: row["group_id"])
TOPIC: Final = Column("topic", lambda row: row["topic"])
PARTITION: Final = numbers("partition", lambda row: number(row["partition"]))
NUM_MEMBERS: Final = numbers("members", lambda row: number(row["num_members"]))
NUM_PARTITIONS: Final = numbers("partitions", lambda row: number(row["num_partitions"]))


def _text(cell: str | Text) -> Text:
    """Make a cell one line: a line feed in a name would look like another row."""
    if isinstance(cell, str):
        return Text(printable(cell))
    return Text(printable(cell.plain), style=cell.style)


def _as_wide(console: Console, options: ConsoleOptions, made: RichTable, width: int) -> Iterator[Segment]:
    return iter(console.render(made, options.update(width=width, max_width=width)))


def _total(widths: Iterable[int]) -> int:
    return sum(width + _AROUND for width in widths) + 1
