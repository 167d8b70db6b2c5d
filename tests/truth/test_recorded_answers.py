"""Every number that a command shows of the recorded lakes, against what the lakes hold."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.delta_log import open_table
from tests.support.command_in_process import run_in_process
from tests.truth.counts import add_counts
from tests.truth.oracle.check_lake import AUDIT_PARTS, PARTS, check_part
from tests.truth.oracle.checks import Checks
from tests.truth.oracle.lake_rows import LakeRows
from tests.truth.oracle.session import Session
from tests.truth.recorded_lakes import each_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from evenlag.lake.location import LakePaths
    from evenlag.lake.tables import Table
    from tests.truth.oracle.check_lake import Part
    from tests.truth.recorded_lakes import RecordedLake

# A check that compares nothing would pass: of the lake with the most in it each compares so many values.
FLOOR = {"hints": 100}


@pytest.fixture(scope="module", autouse=True)
def opened_once() -> Iterator[None]:
    """Open each table once, for hundreds of commands: nobody writes to a recorded lake."""

    def opened(paths: LakePaths, table: Table) -> Any:
        with open_table(paths, table) as delta:
            return nullcontext(delta)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evenlag.lake.reader.open_table", cache(opened))
        yield


@pytest.fixture(scope="module")
def rows_of(recorded_lake: Callable[[str], RecordedLake]) -> Callable[[str], list[LakeRows]]:
    """Return a function from a lake's name to the rows of its clusters, read once."""
    known: dict[str, list[LakeRows]] = {}

    def get(name: str) -> list[LakeRows]:
        if name not in known:
            lake = recorded_lake(name)
            known[name] = [LakeRows(lake.root, cluster) for cluster in lake.clusters]
        return known[name]

    return get


@pytest.mark.parametrize("part", [*PARTS, *AUDIT_PARTS], ids=lambda part: part[0].replace(" ", "_"))
@pytest.mark.parametrize("name", each_lake())
def test_a_command_shows_what_the_lake_holds(
    name: str, part: Part, rows_of: Callable[[str], list[LakeRows]], tmp_path: Path
) -> None:
    checks = Checks()
    sessions = [Session(rows, run_in_process, checks, tmp_path) for rows in rows_of(name)]

    for session in sessions:
        check_part(session, part)

    add_counts(name, checks)
    assert not checks.differences, "\n".join(str(each) for each in checks.differences[:40])
    assert checks.num_compared.total() >= FLOOR.get(name, 1)
