"""What a request wants to see of the overview: search, filters and order, from the query of its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from evenlag.enums import Mode
from evenlag.overview.model import Drain, Sign
from evenlag.safe_text import printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from evenlag.overview.model import GroupRow

ATTENTION_STATE: Final = "attention"
# A group that never drains comes after every one that does.
_NEVER_MS: Final = 10**15
_MODES: Final = tuple(Mode)

# Columns that rows can be ordered by: the value of a row, None if it has none.
SORTS: Final[Mapping[str, Callable[[GroupRow], Any]]] = {
    "group": lambda row: (row.group_id.casefold(), row.cluster),
    "lag": lambda row: row.lag_records,
    "trend": lambda row: row.change_records,
    "behind": lambda row: row.time_lag_ms if row.time_lag_ms is not None else row.time_lag_at_least_ms,
    "skew": lambda row: row.lag_skew,
    "drain": lambda row: _NEVER_MS if row.drain is Drain.NEVER else row.drain_time_ms,
    "mode": lambda row: _MODES.index(Mode(row.mode)) if row.mode in _MODES else None,
    "plan": lambda row: row.plan.slot.timestamp() if row.plan else None,
    "signs": lambda row: len(row.signs) + 100 * row.needs_attention,
}
DEFAULT_SORT: Final = "lag"
_ASCENDING: Final = frozenset({"group"})
MAX_SEARCH: Final = 300


@dataclass(frozen=True, slots=True)
class Choice:
    """Search, filters and order of the overview; the defaults show all groups, the largest lag first.

    search: Part of a group id as it is shown, in any case.
    cluster: Name of a cluster; empty: all.
    state: ``attention``, one of :class:`~evenlag.overview.model.Sign`, or a mode; empty: all.
    is_reversed: Whether the order is not the usual one of the column.
    """

    search: str = ""
    cluster: str = ""
    state: str = ""
    sort: str = DEFAULT_SORT
    is_reversed: bool = False

    @classmethod
    def from_query(cls, query: Mapping[str, str]) -> Choice:
        """Read a choice from the query of a URL; values that do not exist are ignored."""
        sort, state = query.get("sort", ""), query.get("state", "")
        states = {ATTENTION_STATE, *Sign, *Mode}
        return cls(
            search=query.get("q", "")[:MAX_SEARCH],
            cluster=query.get("cluster", ""),
            state=state if state in states else "",
            sort=sort if sort in SORTS else DEFAULT_SORT,
            is_reversed=query.get("order") == "reversed",
        )

    @property
    def is_ascending(self) -> bool:
        """Whether the smallest value comes first."""
        return (self.sort in _ASCENDING) != self.is_reversed

    def matches(self, row: GroupRow) -> bool:
        """Return whether a group is shown."""
        return (
            (not self.cluster or row.cluster == self.cluster)
            # As it is shown: who searches sees the escapes.
            and self.search.casefold() in printable_lines(row.group_id).casefold()
            and (not self.state or self.state in states_of(row))
        )

    def ordered(self, rows: Iterable[GroupRow]) -> list[GroupRow]:
        """Order groups; those without a value come last, equal ones by name."""
        value = SORTS[self.sort]
        named = sorted(rows, key=lambda row: (row.group_id, row.cluster))
        known = [row for row in named if value(row) is not None]
        known.sort(key=value, reverse=not self.is_ascending)
        return known + [row for row in named if value(row) is None]

    def link(self, sort: str) -> str:
        """Return the URL that orders by a column, or turns its order round if it is in use.

        sort: One of :data:`SORTS`.
        """
        is_reversed = sort == self.sort and not self.is_reversed
        pairs = {
            "q": self.search,
            "cluster": self.cluster,
            "state": self.state,
            "sort": sort,
            "order": "reversed" if is_reversed else "",
        }
        return f"?{urlencode({name: value for name, value in pairs.items() if value})}"


def states_of(row: GroupRow) -> list[str]:
    """Return the values of the filter by state that show a group."""
    states = [str(sign) for sign in row.signs]
    if row.mode:
        states.append(row.mode)
    return [*states, ATTENTION_STATE] if row.needs_attention else states
