"""Placing by load in Java gives what its specification says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assignor_core.loads import LoadRacks
from tests.support.broker_plugin.harness import as_base64
from tests.support.broker_plugin.placements import disagreements, place_in_java
from tests.support.broker_plugin.problems import Consumer, Scene, loads_value
from tests.support.by_load.reference import Case

if TYPE_CHECKING:
    from tests.support.broker_plugin.harness import Harness

VECTORS = Path(__file__).parents[1] / "assignor_core" / "data" / "place_by_load.jsonl"


def held(owners: dict[str, list[str | None]], member_id: str) -> dict[str, list[int]]:
    """Return a member's partitions by topic."""
    numbers = {
        topic: [number for number, owner in enumerate(by_partition) if owner == member_id]
        for topic, by_partition in owners.items()
    }
    return {topic: found for topic, found in numbers.items() if found}


def test_groups_with_names_are_placed_as_the_vectors_say(harness: Harness) -> None:
    """Order of ids, capacities by member key, and unknown loads are the plug-in's own, too."""
    vectors: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
    with_members = [vector for vector in vectors if vector["members"]]
    assert len(with_members) > 200
    for vector in with_members:
        members = tuple(
            Consumer(
                member["id"],
                member["instance"],
                tuple(member["topics"]),
                held(vector["owners"], member["id"]),
                member.get("rack"),
            )
            for member in vector["members"]
        )
        scene = Scene(members, vector["topics"])
        record = vector["record"]
        if "racks" in record:
            record["racks"] = LoadRacks(**record["racks"])
        payload = scene.loads(record.pop("loads"), **record)
        answer = harness.ask(
            "place_group",
            group=payload.group_id,
            loads=as_base64(loads_value(payload)),
            **scene.question(),
        )
        wanted = {member.member_id: held(vector["target"], member.member_id) for member in members}
        assert (answer["assignment"], answer["is_uneven"]) == (wanted, vector["is_uneven"]), vector["name"]


def test_random_groups_are_placed_as_the_plain_implementation_places_them(harness: Harness) -> None:
    """A few; ``python -m tests.support.broker_plugin.placements`` compares any number."""
    assert list(disagreements(harness, 300, seed=63)) == []


def test_leaver_of_a_balanced_group_costs_no_other_moves(harness: Harness) -> None:
    """The free rows weigh 9, 5, 1, and the three members have 10, 14 and 18."""
    case = Case(
        capacity=[1, 1, 1],
        takes=[[0]] * 3,
        topic=[0] * 9,
        load=[6, 4, 7, 7, 9, 9, 9, 5, 1],
        owner=[0, 0, 1, 1, 2, 2, -1, -1, -1],
        count_slack=0,
        max_moves=0,
    )
    assert place_in_java(harness, [case]) == [([0, 0, 1, 1, 2, 2, 0, 1, 2], False)]
