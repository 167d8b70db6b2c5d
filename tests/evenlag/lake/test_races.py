"""Real processes race for what must happen once: one wins, all know the winner, nothing is lost or doubled.

``make soak`` runs 200 races of each kind, on a disk and on an S3 server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.races.contests import CONTESTS
from tests.support.races.run import run_races

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.s3.server import S3Server

pytestmark = pytest.mark.extended

NUM_RACES = 10


def test_of_racing_writers_one_wins_and_the_others_go_by_it(tmp_path: Path) -> None:
    race(str(tmp_path / "lake"))


def test_so_it_is_on_an_object_store(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    s3.make_bucket("races")
    race("s3://races/lake")


def race(root: str) -> None:
    results = run_races(root, NUM_RACES)
    won = {kind: found["one_winner"] for kind, found in results.items()}
    assert won == dict.fromkeys(CONTESTS, NUM_RACES)
    assert results["marker"]["rows"] == NUM_RACES
