"""What `evenlag audit owner` says, against what the consumers wrote down when they were told."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.command_in_process import run_in_process
from tests.support.journal_owners import owners
from tests.truth.oracle.lake_rows import LakeRows
from tests.truth.recorded_lakes import each_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.support.journal_owners import Owned
    from tests.truth.recorded_lakes import RecordedLake

# From the coordinator's decision to the consumer's own note of it.
DELAY = timedelta(seconds=3)
SESSION = timedelta(seconds=30)
MOST = 6


def _moments(rows: LakeRows) -> list[datetime]:
    """Moments in the middle between snapshots, over the whole time."""
    audited = sorted(rows.rows("audited_snapshots"), key=lambda row: row["started_at"])
    pairs = list(itertools.pairwise(audited))
    chosen = pairs[:: max(1, len(pairs) // MOST)]
    return [one["finished_at"] + (other["started_at"] - one["finished_at"]) / 2 for one, other in chosen]


def _ask(rows: LakeRows, group_id: str, at: datetime) -> dict[str, Any] | None:
    where = ("--lake", str(rows.lake), "--cluster", rows.cluster, "--json")
    done = run_in_process(["audit", "owner", group_id, "--at", at.isoformat(), *where])
    if done.returncode == 4:
        return None
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _compare(found: Mapping[tuple[str, int], list[Owned]], shown: dict[str, Any], at: datetime) -> int:
    """Whoever is named owned it between the snapshots; who owned it all the time is named."""
    around = shown["group"]
    edges = [each for each in (around["before"], around["after"]) if each]
    first = min([datetime.fromisoformat(each["started_at"]) for each in edges] + [at]) - DELAY
    last = max([datetime.fromisoformat(each["finished_at"]) for each in edges] + [at]) + DELAY
    num_certain = 0
    # Some consumers have a client id that is not the name in their journal.
    known = {each.name for stretches in found.values() for each in stretches} | {None}
    for partition, stretches in found.items():
        rows = [row for row in shown["partitions"] if (row["topic"], row["partition"]) == partition]
        if any(row["client_id"] not in known for row in rows):
            continue
        named = {row["client_id"] for row in rows if row["state"] == "OWNED"}
        possible = {each.name for each in stretches if each.since <= last and each.until >= first}
        assert named <= possible, (at, partition, named, possible)
        num_certain += _check_certain(stretches, rows, named, (first, last))
    return num_certain


def _check_certain(
    stretches: Sequence[Owned], rows: Sequence[Any], named: set[str], window: tuple[datetime, datetime]
) -> int:
    whole = [each.name for each in stretches if each.since <= window[0] and each.until >= window[1]]
    if not whole or {row["state"] for row in rows} != {"OWNED"}:
        return 0
    assert named == {whole[0]}
    return 1


@pytest.mark.parametrize("name", each_lake())
def test_named_owners_are_those_that_noted_it(
    name: str, recorded_lake: Callable[[str], RecordedLake]
) -> None:
    lake = recorded_lake(name)
    num_certain = 0
    noted = {key: owners(journal, SESSION) for key, journal in lake.journals.items()}
    audited = [
        rows for cluster in lake.clusters if (rows := LakeRows(lake.root, cluster)).rows("audited_snapshots")
    ]
    for rows in audited:
        for at in _moments(rows):
            for key, found in noted.items():
                shown = _ask(rows, lake.about["groups"][key]["group_id"], at)
                num_certain += _compare(found, shown, at) if shown else 0

    assert num_certain >= (30 if name == "hints" else 0)
