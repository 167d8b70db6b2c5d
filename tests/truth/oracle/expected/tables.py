"""`evenlag lake status`: sizes, days and logs, from the tables' folders only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.truth.oracle.delta_files import LOG_FOLDER, live_files, table_names
from tests.truth.oracle.forms import number

if TYPE_CHECKING:
    from pathlib import Path

    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.session import Session

COMMAND: Final = "lake status"
_KB, _MB = 1024, 1024 * 1024


def check_tables(session: Session) -> None:
    """Compare the list of tables, in any order."""
    lake, cluster = session.rows.lake, session.rows.cluster
    expected = {name: _table_row(session, lake / name) for name in table_names(lake)}
    shown = session.ask(COMMAND)
    if shown is None:
        return
    session.same(COMMAND, "cluster", shown["cluster"], cluster)
    unhealthy = {check["table_name"] for check in shown["checks"] if not check["is_ok"]}
    for name, row in expected.items():
        row["is_healthy"] = name not in unhealthy
    session.same(COMMAND, "tables", {row["table"]: row for row in shown["tables"]}, expected)
    for check in shown["checks"]:
        if check["check_name"] == "LOG":
            commits = expected[check["table_name"]]["commits_since_checkpoint"]
            size = sum(
                p.stat().st_size for p in (lake / check["table_name"] / LOG_FOLDER).iterdir() if p.is_file()
            )
            message = f"{commits:,} commits since the last checkpoint, {size / _MB:,.1f} MB"
            session.same(COMMAND, f"log of {check['table_name']}", check["observed"], message)
    tables, _ = session.printed(COMMAND)
    printed = {row[0]: row[1:6] for row in tables[0].rows} if tables else None
    session.same(COMMAND, "printed", printed, {name: _cells(row) for name, row in expected.items()})


def _table_row(session: Session, folder: Path) -> Row:
    own = [file for file in live_files(folder) if file.partition_values["cluster"] == session.rows.cluster]
    days = sorted(row["day"].isoformat() for row in session.rows.rows(folder.name))
    versions = [int(path.stem) for path in (folder / LOG_FOLDER).glob("*.json") if path.stem.isdigit()]
    return {
        "table": folder.name,
        # Counted from the files, not read from the log.
        "num_rows": len(session.rows.rows(folder.name)),
        "num_files": len(own),
        "size_bytes": sum(file.path.stat().st_size for file in own),
        "first_day": days[0] if days else None,
        "last_day": days[-1] if days else None,
        "commits_since_checkpoint": max(versions) - _last_checkpoint(folder),
    }


def _last_checkpoint(folder: Path) -> int:
    pointer = folder / LOG_FOLDER / "_last_checkpoint"
    return int(json.loads(pointer.read_text(encoding="utf-8"))["version"]) if pointer.is_file() else -1


def _cells(row: dict[str, Any]) -> list[str]:
    size = row["size_bytes"]
    return [
        number(row["num_rows"]),
        number(row["num_files"]),
        f"{size / _MB:,.1f} MB" if size >= _MB else f"{size / _KB:,.1f} kB",
        f"{row['first_day']}..{row['last_day']}" if row["first_day"] else "-",
        number(row["commits_since_checkpoint"]),
    ]
