"""Two hundred races of each kind: marker, answer, question, decision and publish.

The results are in ``docs/bench/races.json``, by the storage of the lake.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.races.contests import CONTESTS
from tests.support.races.run import keep_results, run_races

if TYPE_CHECKING:
    from tests.support.s3.server import S3Server

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "races.json"
NUM_RACES = 200


def test_races_on_a_local_disk(tmp_path: Path) -> None:
    race(str(tmp_path / "lake"), "file")


def test_races_on_an_s3_server(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    s3.make_bucket("many-races")
    race("s3://many-races/lake", "s3")


def race(root: str, name: str) -> None:
    results = run_races(root, NUM_RACES)
    won = {kind: found["one_winner"] for kind, found in results.items()}
    assert won == dict.fromkeys(CONTESTS, NUM_RACES)
    keep_results(RESULTS, name, results)
