"""Files of results: what is written is read, and only what is missing, or ran with other code, runs again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.bench.field.results import FOLDER, MEASURES, ROOT, ResultFile, code_hash, read_results

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def run(contender: str, seed: int, **values: float) -> dict[str, Any]:
    return {"contender": contender, "seed": seed} | dict.fromkeys(MEASURES, 0) | values


def test_runs_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = ResultFile("simulation", "tiny", "walks", 0.75, tmp_path, "a command", {"numpy": "2"})
    found.add(
        [run("b", 1, p99_s=12.34567), run("b", 0), run("a", 0, drain_s=float("inf"))], {"a": "1", "b": "2"}
    )
    found.write()
    assert found.path.name == "simulation-tiny-walks-75.json"
    [again] = read_results(tmp_path)
    assert (again.command, again.versions, again.code) == ("a command", {"numpy": "2"}, {"a": "1", "b": "2"})
    assert again.runs == found.runs
    assert again.runs["b"][1]["p99_s"] == 12.3
    assert again.runs["a"][0]["drain_s"] is None
    # A run is a line.
    assert sum(line.startswith("  [") for line in found.path.read_text("utf-8").splitlines()) == 3


def test_runs_on_the_broker_are_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    about = {
        "kind": "broker",
        "size": "broker",
        "trace": "walks",
        "utilisation": 0.75,
        "versions": {"kafka": "4"},
    }
    for seed in range(2):
        text = json.dumps(about | run("uniform", seed, p99_s=seed + 0.5))
        (tmp_path / "broker" / f"walks-75-{seed}-uniform.json").write_text(text, "utf-8")
    [found] = read_results(tmp_path)
    assert (found.kind, found.trace, found.versions) == ("broker", "walks", {"kafka": "4"})
    assert {seed: row["p99_s"] for seed, row in found.runs["uniform"].items()} == {0: 0.5, 1: 1.5}


def test_only_what_is_missing_runs_again(tmp_path: Path) -> None:
    found = ResultFile("broker", "tiny", "walks", 0.6, tmp_path)
    found.add([run("a", 0), run("a", 2)], {"a": "1"})
    assert found.missing("a", range(4), "1") == [1, 3]
    assert found.missing("a", range(2), "other") == [0, 1]
    assert found.missing("b", range(2), "1") == [0, 1]
    found.add([run("a", 1)], {"a": "other"})
    assert found.runs == {"a": {1: dict.fromkeys(MEASURES, 0)}}


def test_the_hash_is_of_all_that_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.bench.field.results.ROOT", tmp_path)
    package = tmp_path / "some"
    package.mkdir()
    (package / "top.py").write_text("def lazy():\n    from some import part\n", "utf-8")
    (package / "part.py").write_text("import numpy\n", "utf-8")
    (package / "other.py").write_text("", "utf-8")
    first = code_hash(["some.top"])
    (package / "other.py").write_text("x = 1\n", "utf-8")
    assert code_hash(["some.top"]) == first
    (package / "part.py").write_text("import numpy as np\n", "utf-8")
    assert code_hash(["some.top"]) != first


def test_the_hash_reaches_the_product() -> None:
    assert code_hash(["tests.bench.living.days"]) != code_hash(["tests.bench.living.world"])


def test_all_results_together_are_small() -> None:
    assert FOLDER.is_relative_to(ROOT / "docs")
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.json")) < 2_000_000
