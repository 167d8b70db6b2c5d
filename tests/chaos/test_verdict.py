"""The storm's judge finds what it is there to find."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.chaos.verdict import judge

if TYPE_CHECKING:
    from pathlib import Path


def event(kind: str, name: str, at_s: float, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "name": name, "pid": ord(name[0]), "at_s": at_s, "wall_ms": 0, **fields}


def took(name: str, at_s: float, kind: str = "assigned", *, generation: int = 1) -> dict[str, Any]:
    return event(kind, name, at_s, partitions=[["t", 0]], generation=generation)


def did(name: str, at_s: float, first: int, last: int, *, generation: int = 1) -> dict[str, Any]:
    place = {"topic": "t", "partition": 0, "first": first, "last": last, "generation": generation}
    return event("processed", name, at_s, **place)


def findings(tmp_path: Path, *events: dict[str, Any], committed: int | None = None) -> list[str]:
    path = tmp_path / "all.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
    offsets = {} if committed is None else {("t", 0): (0, committed, committed)}
    return [finding.split(":")[0] for finding in judge([path], offsets).findings]


def test_a_planned_move_is_clean_and_a_repetition_after_it_is_not(tmp_path: Path) -> None:
    moved = [
        took("a", 1),
        did("a", 2, 0, 9),
        took("a", 3, "revoked", generation=2),
        took("b", 4, generation=3),
    ]
    assert findings(tmp_path, *moved, did("b", 5, 10, 19, generation=3), committed=20) == []
    assert findings(tmp_path, *moved, did("b", 5, 8, 19, generation=3), committed=20) == ["twice"]


def test_who_died_was_thrown_out_or_could_not_commit_is_excused(tmp_path: Path) -> None:
    again = [took("b", 6, generation=2), did("b", 7, 5, 9, generation=2)]
    begun = [took("a", 1), did("a", 2, 0, 9)]
    killed = event("killed", "w", 3, victim="a", victim_pid=ord("a"))
    assert findings(tmp_path, *begun, killed, *again) == []
    assert findings(tmp_path, *begun, took("a", 8, "lost"), *again) == []
    failed = event("commit_failed", "a", 3, error="")
    gone = took("a", 4, "revoked")
    assert findings(tmp_path, *begun, failed, gone, *again) == ["twice"]
    down = [event("broker_down", "w", 2.5), event("broker_up", "w", 3.5)]
    assert findings(tmp_path, *begun, failed, *down, gone, *again) == []
    unanswered = failed | {"error": "KafkaTimeoutError(None)"}
    assert findings(tmp_path, *begun, unanswered, gone, *again) == []
    fault = [event("fault_begun", "w", 2.5, node=2), event("fault_ended", "w", 3.5, node=2)]
    assert findings(tmp_path, *begun, failed, *fault, gone, *again) == []
    # The other way round: who does it again had it in hand when it was thrown out.
    stale = [took("b", 0.5), took("a", 1), did("a", 2, 0, 9), did("b", 3, 0, 9, generation=0)]
    assert findings(tmp_path, *stale, took("b", 3.1, "lost")) == []


def test_lost_records_two_owners_and_orphans_are_found(tmp_path: Path) -> None:
    assert findings(tmp_path, took("a", 1), did("a", 2, 0, 4), did("a", 3, 6, 9), committed=10) == ["lost"]
    both = [took("a", 1), did("a", 2, 0, 4), took("b", 3), did("b", 4, 5, 9)]
    assert findings(tmp_path, *both) == ["two owners"]
    # A static member that was killed comes back into the generation that it died in.
    killed = event("killed", "w", 2.5, victim="a", victim_pid=ord("a"))
    assert findings(tmp_path, *both, killed) == []
    assert findings(tmp_path, *both, killed | {"at_s": 4.5}) == ["two owners"]
    alone = [
        took("a", 1), took("a", 2, "revoked"), *(event("x", "b", 3 + g, generation=g) for g in range(2, 5)),
        took("b", 9, generation=4),
    ]  # fmt: skip
    assert findings(tmp_path, *alone) == ["orphan"]


def test_the_figures_count_records_and_not_places(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    events = [took("a", 1), did("a", 2, 0, 4), did("a", 3, 8, 9)]
    path.write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
    # 5, 6 and 7 are nobody's.
    figures = judge([path], {("t", 0): (0, 10, 10)}).figures
    assert (figures["records_lost"], figures["records_processed"], figures["with_two_owners"]) == (3, 7, 0)


def test_rounds_without_an_owner_count_unless_the_one_meant_could_not_take_it(tmp_path: Path) -> None:
    def led(generation: int, given: dict[str, list[list[Any]]]) -> dict[str, Any]:
        return event("led", "l", float(generation), generation=generation, given=given)

    def story(*between: dict[str, Any]) -> list[str]:
        begun, gone = took("a", 1, generation=1), took("a", 2.1, "revoked", generation=2)
        return findings(tmp_path, begun, gone, *between, took("b", 5.1, generation=5))

    to_c: dict[str, list[list[Any]]] = {"c": [["t", 0]]}
    killed = event("killed", "w", 3.5, victim="c", victim_pid=ord("c"))
    assert story(led(3, {}), led(4, {})) == ["orphan"]
    assert story(led(3, to_c), led(4, {}), led(5, {})) == ["orphan"]  # it lived, and was late
    assert story(led(3, to_c), killed, led(4, {}), led(5, {})) == []
    assert story(led(3, to_c), led(4, {}), killed | {"at_s": 4.5}, led(5, {})) == ["orphan"]
    assert story(led(3, to_c), event("paused", "w", 2.5, victim="c"), led(4, {}), led(5, {})) == []
    back = event("resumed", "w", 2.7, victim="c")
    assert story(led(3, to_c), event("paused", "w", 2.5, victim="c"), back, led(4, {}), led(5, {})) == [
        "orphan"
    ]
    assert story(led(3, to_c), event("broker_down", "w", 3.2), led(4, {}), led(5, {})) == []
    # A node that does not coordinate the group keeps nobody from taking it.
    assert story(led(3, to_c), event("fault_begun", "w", 3.2), led(4, {}), led(5, {})) == ["orphan"]

    # Nobody received what c, which lived, was to take, because d left before it was handed out.
    two = to_c | {"d": []}
    closed = event("closed", "d", 3.5)
    heard = event("assigned", "l", 3.2, partitions=[], generation=3)
    assert story(led(3, two), closed, led(4, {})) == []
    assert story(led(3, two), heard, closed, led(4, {})) == ["orphan"]
    assert story(led(3, two), led(4, {})) == ["orphan"]
    # Or because e joined.
    three: dict[str, list[list[Any]]] = {"c": [], "d": [], "e": [["t", 0]]}
    assert story(led(3, two), led(4, three)) == []
    assert story(led(3, two), heard, led(4, three)) == ["orphan"]

    # c was evicted while it was paused, and says so after a, who had the partition meanwhile, gave it up.
    paused = [
        took("c", 0.5, generation=1),
        took("a", 1, generation=3),
        took("a", 3, "revoked", generation=4),
        took("c", 3.5, "lost", generation=1),
        event("x", "l", 4.0, generation=4),
        took("b", 5, generation=5),
    ]
    assert findings(tmp_path, *paused) == []
    paused[-1] = took("b", 5, generation=7)
    assert findings(tmp_path, *paused) == ["orphan"]

    # Quiet rounds go by before it dies: they were none without an owner.
    quiet = [led(n, {"a": [["t", 0]]}) for n in range(2, 6)]
    died = event("killed", "w", 5.5, victim="a", victim_pid=ord("a"))
    assert (
        findings(
            tmp_path, took("a", 1), *quiet, died, led(6, {"b": [["t", 0]]}), took("b", 6.1, generation=6)
        )
        == []
    )
