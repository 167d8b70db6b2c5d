"""A cluster's rows of a lake as they were written, for computing what a command has to answer."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from sandbox.truth.delta_files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Row = dict[str, Any]


class LakeRows:
    """Rows of one cluster.

    Parameters
    ----------
    lake
        The root of the lake.
    cluster
        The cluster.
    """

    def __init__(self, lake: Path, cluster: str) -> None:
        self.lake, self.cluster = lake, cluster
        self._tables: dict[str, list[Row]] = {}

    def rows(self, table: str) -> list[Row]:
        """All rows of a table that are the cluster's."""
        if table not in self._tables:
            self._tables[table] = [
                row for row in read_rows(self.lake, table) if row["cluster"] == self.cluster
            ]
        return self._tables[table]

    def where(self, table: str, **values: Any) -> list[Row]:
        """Rows of a table whose columns have these values."""
        return [row for row in self.rows(table) if all(row[name] == value for name, value in values.items())]

    def one(self, table: str, **values: Any) -> Row | None:
        """The row of a table whose columns have these values; None when there is none."""
        found = self.where(table, **values)
        if len(found) > 1:
            raise ValueError(f"{table} has {len(found)} rows with {values}")
        return found[0] if found else None

    @cached_property
    def snapshots(self) -> list[Row]:
        """Finished snapshots by slot."""
        return sorted(self.rows("snapshots"), key=lambda row: row["slot"])

    @property
    def newest(self) -> Row:
        """The newest finished snapshot."""
        return self.snapshots[-1]

    @cached_property
    def events(self) -> list[Row]:
        """What happened to plans, whoever wrote it."""
        return [*self.rows("plan_events"), *self.rows("control_events")]

    @cached_property
    def groups(self) -> list[str]:
        """Groups with lag in any snapshot."""
        return sorted({row["group_id"] for row in self.rows("lag")})

    @cached_property
    def _lag_by_snapshot(self) -> dict[str, list[Row]]:
        return by(self.rows("lag"), "snapshot_id")

    def lag_of(self, snapshot_id: str, group_id: str | None = None) -> list[Row]:
        """Lag of a snapshot, of all its groups or of one."""
        rows = self._lag_by_snapshot.get(snapshot_id, [])
        return [row for row in rows if group_id is None or row["group_id"] == group_id]


def by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Rows by the values of columns: by the value itself where it is one column."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        found.setdefault(key, []).append(row)
    return found


def known_sum(rows: Iterable[Row], name: str = "lag_records") -> int | None:
    """The sum of what is known; None when nothing is."""
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known else None


def largest(values: Iterable[Any], key: Callable[[Any], Any] | None = None) -> Any:
    """The largest of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return max(known, key=key) if known else None
