"""A cluster's rows of a lake as they were written, to compute the expected output of commands."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from tests.truth.oracle.delta_files import read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

Row = dict[str, Any]


class LakeRows:
    """Rows of one cluster."""

    def __init__(self, lake: Path, cluster: str) -> None:
        self.lake, self.cluster = lake, cluster
        self._tables: dict[str, list[Row]] = {}

    def rows(self, table: str) -> list[Row]:
        """Return all rows of a table for the cluster; ``month``, which only partitions, is in no row."""
        if table not in self._tables:
            self._tables[table] = [
                {name: value for name, value in row.items() if name != "month"}
                for row in read_rows(self.lake, table)
                if row["cluster"] == self.cluster
            ]
        return self._tables[table]

    def where(self, table: str, **values: Any) -> list[Row]:
        """Return the rows of a table with these values."""
        return [row for row in self.rows(table) if all(row[name] == value for name, value in values.items())]

    def assigned(self, plan: Row) -> list[Row]:
        """Return the partitions of a plan."""
        return self.where("plan_assignments", plan_id=plan["plan_id"])

    def client_names(self) -> dict[str, str]:
        """Return the instance id, else the client id, of each member of any snapshot."""
        return {
            row["member_id"]: row["group_instance_id"] or row["client_id"] or ""
            for row in self.rows("members")
        }

    def one(self, table: str, **values: Any) -> Row | None:
        """Return the row of a table with these values; None if there is none."""
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
        """Events of plans."""
        return self.rows("plan_events")

    @cached_property
    def groups(self) -> list[str]:
        """Groups with lag in any snapshot."""
        return sorted({row["group_id"] for row in self.rows("lag")})

    @cached_property
    def _lag_by_snapshot(self) -> dict[str, list[Row]]:
        return by(self.rows("lag"), "snapshot_id")

    def lag_of(self, snapshot_id: str, group_id: str | None = None) -> list[Row]:
        """Return the lag rows of a snapshot."""
        rows = self._lag_by_snapshot.get(snapshot_id, [])
        return [row for row in rows if group_id is None or row["group_id"] == group_id]


def by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Group rows by the values of columns; the key of a single column is the value itself."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        found.setdefault(key, []).append(row)
    return found


def counted(lag: Iterable[Row]) -> list[Row]:
    """Return the rows of ``lag`` that totals contain: of topics that a member subscribes to."""
    return [row for row in lag if row["status"] != "NOT_SUBSCRIBED"]


def known_sum(rows: Iterable[Row]) -> int | None:
    """Return the sum of the known lags; None if none is known."""
    known = [row["lag_records"] for row in rows if row["lag_records"] is not None]
    return sum(known) if known else None


def largest(values: Iterable[Any], key: Callable[[Any], Any] | None = None) -> Any:
    """Return the largest known value; None if none is known."""
    known = [value for value in values if value is not None]
    return max(known, key=key) if known else None
