"""The evidence refutes what is wrong: lost and repeated records, two owners at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.workload.evidence import OwnerTracker, gather
from sandbox.workload.producer import shares

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, name: str, events: list[dict[str, Any]], *, pid: int = 1) -> Path:
    lines = [json.dumps({"name": name, "pid": pid, "wall_ms": 0, **event}) for event in events]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def took(event: str, at_s: float, *partitions: int) -> dict[str, Any]:
    return {"event": event, "at_s": at_s, "partitions": [["t", p] for p in partitions], "generation": 1}


def did(at_s: float, first: int, last: int, partition: int = 0) -> dict[str, Any]:
    return {
        "event": "processed", "at_s": at_s, "topic": "t", "partition": partition, "first": first,
        "last": last,
    }  # fmt: skip


def test_a_clean_move_is_clean(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", "a", [took("assigned", 1, 0), did(2, 0, 9), took("revoked", 3, 0)])
    b = write(tmp_path / "b.jsonl", "b", [took("assigned", 3.5, 0), did(4, 10, 19)], pid=2)
    evidence = gather([a, b], {("t", 0): (0, 25, 20)})
    assert (evidence.lost, evidence.repeated, evidence.overlaps) == ({}, {}, ())
    assert evidence.num_processed == {"a": 10, "b": 10}
    assert evidence.num_waiting == 5
    assert [(o.name, o.end) for o in evidence.ownerships] == [("a", "revoked"), ("b", "")]


@pytest.mark.parametrize(
    ("spans", "offsets", "lost"),
    [
        ([(0, 4), (6, 9)], (0, 10, 10), ((5, 5),)),
        ([(2, 9)], (0, 10, 10), ((0, 1),)),
        ([(0, 6)], (0, 10, 10), ((7, 9),)),
        ([], (0, 10, 4), ((0, 3),)),
        ([], (0, 10, None), None),
        ([(3, 9)], (3, 12, 8), None),
    ],
)
def test_records_that_nobody_processed_are_lost(
    tmp_path: Path, spans: list[tuple[int, int]], offsets: tuple[int, int, int | None], lost: object
) -> None:
    journal = write(tmp_path / "a.jsonl", "a", [did(i, *span) for i, span in enumerate(spans)])
    assert gather([journal], {("t", 0): offsets}).lost.get(("t", 0)) == lost


def test_records_done_twice_are_named_whoever_did_them(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", "a", [did(1, 0, 9), did(2, 20, 29)])
    b = write(tmp_path / "b.jsonl", "b", [did(3, 5, 24)], pid=2)
    evidence = gather([a, b], {("t", 0): (0, 30, 30)})
    assert evidence.repeated == {("t", 0): ((5, 9), (20, 24))}
    assert not evidence.lost


def test_two_owners_at_once_are_found_until_the_second_is_told(tmp_path: Path) -> None:
    a = write(
        tmp_path / "a.jsonl", "a", [took("assigned", 1, 0, 1), took("revoked", 5, 0), took("lost", 6, 1)]
    )
    b = write(tmp_path / "b.jsonl", "b", [took("assigned", 4, 0, 1)], pid=2)
    found = gather([a, b]).overlaps
    assert [(o.partition, o.first, o.second, o.seconds) for o in found] == [
        (("t", 0), "a", "b", 1),
        (("t", 1), "a", "b", 2),
    ]


def test_a_killed_process_owns_nothing_after_its_kill(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", "a", [took("assigned", 1, 0)])
    kill = {"event": "killed", "at_s": 2, "victim": "a", "victim_pid": 1}
    workload = write(tmp_path / "workload.jsonl", "workload", [kill], pid=9)
    b = write(tmp_path / "b.jsonl", "b", [took("assigned", 3, 0)], pid=2)
    assert not gather([a, b, workload]).overlaps
    assert gather([a, b]).overlaps


def test_owners_are_followed_as_the_journals_grow_even_by_half_a_line(tmp_path: Path) -> None:
    tracker = OwnerTracker()
    path = write(tmp_path / "a.jsonl", "a", [{"event": "started", "at_s": 0}])
    assert tracker.read([path]) == {"a": set()}
    line = json.dumps({"name": "a", "pid": 1, **took("assigned", 1, 0, 1)}) + "\n"
    with path.open("a", encoding="utf-8") as file:
        file.write(line[:20])
        file.flush()
        assert tracker.read([path]) == {"a": set()}
        file.write(line[20:])
    assert tracker.read([path]) == {"a": {("t", 0), ("t", 1)}}


def test_the_hot_spot_wanders() -> None:
    first, moved = shares(4, 2.0), shares(4, 2.0, shift=1)
    assert first.index(max(first)) == 0
    assert moved.index(max(moved)) == 1
    assert sum(moved) == pytest.approx(1.0)
