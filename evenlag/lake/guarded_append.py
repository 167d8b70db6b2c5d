"""Appends that depend on what a table has: the rows are chosen again if another writer was faster.

Each row has a guard, a Delta transaction id that names what its writers must not decide at the same time,
such as a plan or a group. The table is opened first, then the rows are chosen from its content, then they are
committed on the opened version: if another writer has committed one of the guards since then, the commit is
refused and the rows are chosen from the newer content. So no row is chosen by content that is older than the
last commit of its guard.

Unlike the id of :func:`evenlag.lake.writer.append_once`, a guard may be in the log already: it is compared
and not looked up, so its expiry changes nothing. It is in the log once, however often it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlag.lake.conflicts import retry_on_conflict
from evenlag.lake.writer import DeltaRsWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evenlag.lake.tables import Table

    Rows = Sequence[Mapping[str, Any]]


def append_guarded(
    root: str, table: Table, choose: Callable[[], Rows], guard_of: Callable[[Mapping[str, Any]], str]
) -> Rows:
    """Append the rows that are chosen by the lake's content, in one commit.

    Returns the rows that were appended. Empty if there were none to append; also if the store answered an
    append that it had made with an error, and the repeat found its rows.
    table: The table; its writer must be ``direct``.
    choose: Reads the lake and returns the rows to append; called again after a conflict. What it raises
        ends the append.
    guard_of: The guard of a row: all writers that must not decide beside each other use the same one.
    """
    writer = DeltaRsWriter(root, table)

    def attempt() -> Rows:
        # Opened before the rows are chosen, and never created after: an id is compared only with the
        # commits after this version.
        delta = writer.open()
        rows = choose()
        if rows:
            guards = sorted({f"{guard_of(row)}/{table.name}" for row in rows})
            writer.commit(delta, rows, guards)
        return rows

    return retry_on_conflict(attempt)
