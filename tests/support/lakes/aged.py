"""A lake made older than it is, so that what goes by the clock of the machine can be tested at once."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

_MS_PER_DAY: Final = 86_400_000
_MOMENTS: Final = frozenset(
    {"timestamp", "deletionTimestamp", "modificationTime", "createdTime", "lastUpdated"}
)


def copy_aged(lake: Path, folder: Path, days: int) -> Path:
    """Copy a lake to a folder, as if every write had been so many days earlier.

    A copy, because Delta keeps what it knows of a log by its path. Checkpoints are left out: the commits from
    the first one on are all there.
    """
    ignored = shutil.ignore_patterns("*.crc", "*.checkpoint.*", "_last_checkpoint")
    shutil.copytree(lake, folder, ignore=ignored)
    age(folder, days)
    return folder


def age(lake: Path, days: float) -> None:
    """Make every write to a lake so many days older: in logs and checkpoints, and by the files' own times."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    times = {path: path.stat().st_mtime - days * _MS_PER_DAY / 1000 for path in lake.rglob("*")}
    for log in lake.glob("*/_delta_log/*.json"):
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").split("\n") if line]
        text = "\n".join(json.dumps(_older(line, days)) for line in lines)
        log.write_text(text + "\n", encoding="utf-8")
    for checkpoint in lake.glob("*/_delta_log/*.checkpoint*.parquet"):
        found = pq.read_table(checkpoint)
        rows = [_older(row, days) for row in found.to_pylist()]
        pq.write_table(pa.Table.from_pylist(rows, found.schema), checkpoint)
    for path, seconds in times.items():
        os.utime(path, (seconds, seconds))


def _older(value: Any, days: float) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: part - round(days * _MS_PER_DAY)
        if key in _MOMENTS and isinstance(part, int)
        else _older(part, days)
        for key, part in value.items()
    }
