"""Forgeries of a lake of sealed plans, as somebody makes them who can write the lake and has no key.

Each plan has a file of its own in each table, so that one lake has many forged plans, and others that nobody
touched. A forgery is prepared once, and applied at a moment: it rewrites the commit of a plan's file, or adds
one. Data files are written by ``deltalake``, with true statistics; the log is then edited as text.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.lake import reader as reader_module
from evenlag.lake.arrow_schema import stored_schema
from evenlag.lake.delta_log import open_table
from evenlag.lake.tables import DECISIONS, PLAN_ASSIGNMENTS, PLAN_EVENTS, PLANS, SNAPSHOTS
from tests.support.sealing.judged import changed
from tests.support.sealing.sealed_lake import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pytest

    from evenlag.lake.tables import Table

    _EditAction = Callable[[Path, dict[str, Any], "Forgery"], dict[str, Any]]

OTHER_CLUSTER: Final = "d"
OLD_MONTH: Final = "1999-01-01"
# Kinds that concern a column of a row, and kinds that concern a file.
BY_COLUMN: Final = (
    "value",
    "statistics",
    "added row",
    "added row elsewhere",
    "hidden added row",
    "checkpoint",
    "other type",
)
BY_FILE: Final = (
    "other month",
    "other cluster",
    "removed row",
    "added copy",
    "unreadable file",
    "added unreadable file",
    "broken statistics",
)
_LIES: Final = {
    "STRING": "~z",
    "INT": 2_000_000_000,
    "BIGINT": 2**60,
    "DOUBLE": 1e300,
    "DATE": "1999-01-01",
    "TIMESTAMP": "1999-01-01T00:00:00.000Z",
}


class Forgery(NamedTuple):
    """One forgery of a plan: of which row (the name of its event, or its number), and of which column."""

    kind: str
    table: Table
    row: str | int
    column: str | None = None

    def __str__(self) -> str:
        """Return a name for messages."""
        return f"{self.kind}: {self.table.name} {self.row} {self.column}"


def all_forgeries(tables: Sequence[Table], events: Sequence[str], turn: int | None = None) -> list[Forgery]:
    """All forgeries of a plan with these events; with a turn, one kind for each column."""
    found = []
    for table in tables:
        for row in events if table is PLAN_EVENTS else [0]:
            for place, name in enumerate(table.column_names):
                chosen = None if turn is None else BY_COLUMN[(place + turn) % len(BY_COLUMN)]
                found += [Forgery(kind, table, row, name) for kind in BY_COLUMN if chosen in (None, kind)]
            found += [Forgery(kind, table, row) for kind in BY_FILE]
    return found


def spread(source: Path, target: Path, plan_ids: Sequence[str]) -> None:
    """Copy what plans need of a lake, with one commit and one file for each plan in each table."""
    from deltalake import DeltaTable, write_deltalake

    shutil.copytree(source / SNAPSHOTS.name, target / SNAPSHOTS.name)
    for table in TABLES:
        if not (source / table.name).exists():
            continue
        rows = DeltaTable(str(source / table.name)).to_pyarrow_table().select(stored_schema(table).names)
        by_plan = {
            plan_id: rows.filter([one == plan_id for one in rows["plan_id"].to_pylist()])
            for plan_id in plan_ids
        }
        partitions = list(table.partition_by)
        write_deltalake(str(target / table.name), rows.schema.empty_table(), partition_by=partitions)
        for own in by_plan.values():
            if own.num_rows:
                write_deltalake(str(target / table.name), own, mode="append")


def linked(root: Path, target: Path) -> Path:
    """Copy a lake of which files are replaced, and never changed in place."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target, copy_function=os.link)
    return target


@dataclass(frozen=True)
class Edit:
    """A prepared forgery: the new text of a commit, or of one that is added."""

    forgery: Forgery
    commit: str | None
    text: str

    def apply(self, root: Path) -> Callable[[], None]:
        """Apply it to a copy of the lake that it was prepared for; returns what undoes it."""
        log = root / self.forgery.table.name / "_delta_log"
        if (log / f"{0:020d}.json").exists():
            # Readers would go by it, and not by the commits before it.
            for path in (*log.glob("*.checkpoint*"), *log.glob("_last_checkpoint")):
                path.unlink()
        name = self.commit or f"{1 + max(int(path.stem) for path in log.glob('*.json')):020d}.json"
        before = (log / name).read_text(encoding="utf-8") if self.commit else json.dumps({"commitInfo": {}})
        _replace(log / name, self.text)
        return lambda: _replace(log / name, before)

    def is_read(self, root: Path, plan_id: str) -> bool:
        """Whether a forged row or file is among what is read of a plan; unused statistics are not."""
        kind, table, _, column = self.forgery
        adds = [json.loads(line)["add"] for line in self.text.split("\n") if '"add"' in line]
        if kind == "statistics":
            return f"null_count.{column}" in _described(root / table.name)
        if self.commit is not None:
            # Without statistics, a file is read. No partition column is in it.
            return kind != "broken statistics" and (kind, column) != ("other type", "cluster")
        is_elsewhere = any(add["partitionValues"]["cluster"] != "c" for add in adds)
        return not is_elsewhere and self._is_added_seen(plan_id)

    def _is_added_seen(self, plan_id: str) -> bool:
        kind, table, _, column = self.forgery
        if kind == "added unreadable file":
            # Of other tables, it hides no row that may forbid.
            return table is PLAN_EVENTS
        if kind == "added row elsewhere":
            return column != "plan_id"
        if table is PLAN_ASSIGNMENTS:
            # Statistics choose among its files: the hash holds for the rest.
            return kind != "hidden added row" and column != "plan_id"
        # All rows of the newest snapshot are of interest, whatever plan they name.
        is_of_plan = plan_id in self.text or table in (PLANS, DECISIONS)
        return is_of_plan and kind != "added copy"


@cache
def prepare(root: Path, forgery: Forgery, plan_id: str) -> Edit:
    """Prepare a forgery of a plan, once; new data files are not in the log yet."""
    table, folder = forgery.table, root / forgery.table.name
    commit, own = _commit_of(folder, plan_id)
    actions = [json.loads(line) for line in own.split("\n") if line]
    add = next(action["add"] for action in actions if "add" in action)
    rows, place = _rows(folder, table, add, forgery.row)

    def rewritten(new: list[dict[str, Any]]) -> Edit:
        return Edit(forgery, commit, "\n".join(_adds(folder, table, new)) + "\n")

    if forgery.kind in ("value", "checkpoint"):
        rows[place] = _with_change(table, rows[place], forgery.column)
        return rewritten(rows)
    if forgery.kind == "removed row":
        return rewritten([row for row in rows if row is not rows[place]])
    if forgery.kind in ("added unreadable file", *_EDITED_ACTION):
        edited = _EDITED_ACTION.get(forgery.kind, _EDITED_ACTION["unreadable file"])(folder, add, forgery)
        return Edit(
            forgery,
            None if forgery.kind == "added unreadable file" else commit,
            json.dumps({"add": edited}) + "\n",
        )
    new = rows[place] if forgery.kind == "added copy" else _with_change(table, rows[place], forgery.column)
    (line,) = _adds(folder, table, [new])
    added = json.loads(line)["add"]
    if forgery.kind == "added row elsewhere":
        added = _moved(added, "other month")
    if forgery.kind == "hidden added row":
        added = _misdescribed(added, table, "plan_id")
    return Edit(forgery, None, json.dumps({"add": added}) + "\n")


def add_row(
    root: Path, table: Table, row: dict[str, Any], *, is_hidden: bool = False, is_old: bool = False
) -> None:
    """Add a row, behind statistics of other plans, or in a partition of another month."""
    folder = root / table.name
    stored = row | {"month": row["day"].replace(day=1)}
    (line,) = _adds(folder, table, [stored])
    added = json.loads(line)["add"]
    if is_hidden:
        added = _misdescribed(added, table, "plan_id")
    if is_old:
        added = _moved(added, "other month")
    Edit(Forgery("added", table, 0), None, json.dumps({"add": added}) + "\n").apply(root)


def write_checkpoint(folder: Path) -> None:
    """Replace a table's log by a checkpoint."""
    from deltalake import DeltaTable

    delta = DeltaTable(str(folder))
    delta.create_checkpoint()
    for path in (folder / "_delta_log").glob("*.json"):
        if int(path.stem) < delta.version():
            path.unlink()


def _described(folder: Path) -> list[str]:
    import pyarrow as pa
    from deltalake import DeltaTable

    return list(pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True)).column_names)


class Reads:
    """Counts how often the log of each table is opened for a read.

    A forgery changes the log of one table, and no data file of it: so all moments between two openings of
    this log are the same to a reader, whatever it reads in between.
    """

    def __init__(self) -> None:
        self.count: Counter[Table] = Counter()
        self.before: dict[tuple[Table, int], list[Callable[[], None]]] = {}

    @contextmanager
    def counted(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        """Count the openings of a block."""

        def opened(paths: Any, table: Table) -> Any:
            self.count[table] += 1
            for act in self.before.pop((table, self.count[table]), ()):
                act()
            return open_table(paths, table)

        with patch.context() as inner:
            inner.setattr(reader_module, "open_table", opened)
            yield


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{secrets.token_hex(4)}")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def _commit_of(folder: Path, plan_id: str) -> tuple[str, str]:
    for path in sorted((folder / "_delta_log").glob("*.json")):
        text = path.read_text(encoding="utf-8")
        if plan_id in text:
            return path.name, text
    raise LookupError(f"{folder.name} has no file of {plan_id}")


def _rows(
    folder: Path, table: Table, add: dict[str, Any], wanted: str | int
) -> tuple[list[dict[str, Any]], int]:
    import pyarrow.parquet as pq

    stored = pq.ParquetFile(folder / add["path"]).read().to_pylist()
    month = date.fromisoformat(add["partitionValues"]["month"])
    rows = [row | {"cluster": add["partitionValues"]["cluster"], "month": month} for row in stored]
    order = sorted(rows, key=lambda row: [str(row[name]) for name in table.key])
    if isinstance(wanted, int):
        return order, wanted
    return order, next(place for place, row in enumerate(order) if row["event"] == wanted)


def _with_change(table: Table, row: dict[str, Any], column: str | None) -> dict[str, Any]:
    (name, kind) = next((one.name, one.type) for one in table.columns if one.name == column)
    return row | {name: OTHER_CLUSTER if name == "cluster" else changed(row[name], kind)}


def _adds(folder: Path, table: Table, rows: list[dict[str, Any]]) -> list[str]:
    """Write data files; returns the lines of the log that would add them."""
    import pyarrow as pa
    from deltalake import write_deltalake

    if not rows:
        return [json.dumps({"commitInfo": {}})]
    other = folder.with_name(f"new-{secrets.token_hex(4)}")
    data = pa.Table.from_pylist(rows, schema=stored_schema(table))
    write_deltalake(str(other), data, partition_by=list(table.partition_by))
    (log,) = (other / "_delta_log").glob("*.json")
    lines = [line for line in log.read_text(encoding="utf-8").split("\n") if '"add"' in line]
    for line in lines:
        path = json.loads(line)["add"]["path"]
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (other / path).rename(folder / path)
    shutil.rmtree(other)
    return lines


def _misdescribed(add: dict[str, Any], table: Table, column: str | None) -> dict[str, Any]:
    """The same file, with statistics of a column that its rows are not within."""
    kind = next(one.type for one in table.columns if one.name == column)
    stats = json.loads(add["stats"])
    if kind in _LIES:
        for bound in ("minValues", "maxValues"):
            stats[bound][column] = _LIES[kind]
        stats["nullCount"][column] = 0
    elif column is not None and not isinstance(stats["nullCount"].get(column), dict):
        stats["nullCount"][column] = 0 if stats["nullCount"].get(column) else stats["numRecords"]
    return add | {"stats": json.dumps(stats)}


def _unreadable(folder: Path, add: dict[str, Any]) -> dict[str, Any]:
    """A file with the same description that is no Parquet file."""
    path = f"{add['path'].rpartition('/')[0]}/{secrets.token_hex(8)}.parquet"
    (folder / path).write_bytes(b"PAR1 no more PAR1")
    return add | {"path": path}


def _retyped(folder: Path, add: dict[str, Any], column: str | None) -> dict[str, Any]:
    """The same file, in which a column has a type that no reader can convert."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(folder / add["path"]).read()
    if column in rows.column_names:
        is_nested = pa.types.is_nested(rows.schema.field(column).type)
        other = pa.array([7 if is_nested else [7]] * rows.num_rows)
        rows = rows.set_column(rows.schema.get_field_index(column), column, other)
    path = f"{add['path'].rpartition('/')[0]}/{secrets.token_hex(8)}.parquet"
    pq.write_table(rows, folder / path)
    return add | {"path": path}


# What replaces the description of a plan's file in the log, by kind.
_EDITED_ACTION: Final[Mapping[str, _EditAction]] = {
    "statistics": lambda _folder, add, forgery: _misdescribed(add, forgery.table, forgery.column),
    "other month": lambda _folder, add, _forgery: _moved(add, "other month"),
    "other cluster": lambda _folder, add, _forgery: _moved(add, "other cluster"),
    "broken statistics": lambda _folder, add, _forgery: add | {"stats": '{"numRecords": 1, "minVal'},
    "unreadable file": lambda folder, add, _forgery: _unreadable(folder, add),
    "other type": lambda folder, add, forgery: _retyped(folder, add, forgery.column),
}


def _moved(add: dict[str, Any], kind: str) -> dict[str, Any]:
    values = {"other month": {"month": OLD_MONTH}, "other cluster": {"cluster": OTHER_CLUSTER}}[kind]
    return add | {"partitionValues": add["partitionValues"] | values}
