"""The last step of the demo: compares the lag that ``evenlag lag`` shows with the lake's files.

They are read here by deltalake alone, so an error of evenlag's reader shows.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, Final

from sandbox.demo.result import Promise

Runner = Callable[[Sequence[str]], CompletedProcess[str]]
"""Runs the command with arguments, without its name."""

_MAX_DIFFERENCES: Final = 10
# (group, member) -> (partitions, lag in records); member None: the group as a whole.
_Lag = dict[tuple[str, str | None], tuple[int, int | None]]


def run_command(arguments: Sequence[str]) -> CompletedProcess[str]:
    """Run the command in a process of its own, as users do."""
    command = [sys.executable, "-P", "-m", "evenlag", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def check_shown_lag(lake: Path, cluster: str, run: Runner) -> Promise:
    """Compare the lag by group and member in the newest snapshot of a lake's only cluster."""
    expected = _lag_in_files(lake)
    shown = _shown_lag(run, ("--lake", str(lake), "--cluster", cluster, "--json"))
    different = [
        f"{group_id}, {member_id or 'total'}: shown {shown.get((group_id, member_id))}, "
        f"the lake has {expected.get((group_id, member_id))} (partitions, records)"
        for group_id, member_id in sorted(expected.keys() | shown.keys(), key=str)
        if shown.get((group_id, member_id)) != expected.get((group_id, member_id))
    ]
    seen = f"{len(expected)} lags of groups and members compared: all the same"
    if different:
        seen = f"{len(different)} of {len(expected)} differ: {'; '.join(different[:_MAX_DIFFERENCES])}"
    return Promise("the command shows the lag that the lake holds", not different, seen)


def _shown_lag(run: Runner, options: Sequence[str]) -> _Lag:
    groups = json.loads(run(("lag", *options)).stdout)["groups"]
    found: _Lag = {}
    for group in groups:
        group_id = group["group_id"]
        found[group_id, None] = (group["num_partitions"], group["lag_records"])
        for member in json.loads(run(("lag", group_id, *options)).stdout)["members"]:
            found[group_id, member["member_id"]] = (member["num_partitions"], member["lag_records"])
    return found


def _lag_in_files(lake: Path) -> _Lag:
    newest = max(_rows(lake / "snapshots"), key=lambda row: row["slot"])["snapshot_id"]
    known: dict[tuple[str, str | None], list[int | None]] = {}
    for row in _rows(lake / "members"):
        if row["snapshot_id"] == newest and row["member_id"] is not None:
            known[row["group_id"], row["member_id"]] = []
            known[row["group_id"], None] = []
    for row in _rows(lake / "lag"):
        if row["snapshot_id"] == newest and row["status"] != "NOT_SUBSCRIBED":
            for member_id in {None, row["owner_member_id"]}:
                known.setdefault((row["group_id"], member_id), []).append(row["lag_records"])
    return {key: (len(lags), _total(lags)) for key, lags in known.items()}


def _total(lags: Sequence[int | None]) -> int | None:
    """Their sum; None if none of them is known. A member without partitions has none."""
    numbers = [lag for lag in lags if lag is not None]
    return None if lags and not numbers else sum(numbers)


def _rows(folder: Path) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    return rows
