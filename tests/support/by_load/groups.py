"""Random groups with loads, as vectors describe them: see `tests.support.by_load.vectors`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from assignor_core.algorithms.place_by_load import Placement, place_by_load
from assignor_core.group import Group
from assignor_core.hint import member_key
from assignor_core.loads import LoadRacks, LoadsPayload
from assignor_core.members import Member, utf16_key
from assignor_core.record import topic_id_text
from tests.support.by_load import reference

if TYPE_CHECKING:
    from collections.abc import Mapping

Vector = dict[str, Any]
MAX_LOAD = 2**31 - 1


def random_vector(seed: int, *, max_members: int = 8, max_partitions: int = 9, max_topics: int = 4) -> Vector:
    """Return a group with loads and claims, conflicting and stale ones among them, without its result."""
    chance = random.Random(seed)  # noqa: S311  # repeatable on purpose
    topics = {
        topic_id_text(chance.randbytes(16)): chance.randint(0, max_partitions)
        for _ in range(chance.randint(1, max_topics))
    }
    members = _random_members(chance, list(topics), chance.randint(1, max_members))
    _give_claims(chance, topics, members)
    keys = [member_key(member["id"], member["instance"]) for member in members]
    default = chance.choice([1, 100, 100, 1000])
    capacities = {key: chance.randint(1, 1000) for key in keys if chance.random() < 0.2}
    record = {
        "loads": _random_loads(chance, topics),
        "capacities": {key: number for key, number in capacities.items() if number != default},
        "default_capacity": default,
        "count_slack": chance.choice([0, 0, 0, 1, 2, 9, MAX_LOAD]),
        "max_moves": chance.choice([0, 0, 1, 2, 3, 5, 100, MAX_LOAD]),
    }
    return {"name": f"random {seed}", "topics": topics, "members": members, "record": record}


def with_racks(vector: Vector, seed: int) -> Vector:
    """Return a random vector with racks of members and of partitions, some of them unknown."""
    chance = random.Random(-seed)  # noqa: S311  # as above
    names = ["r1", "r2", "r3", "é"][: chance.randint(2, 4)]
    members = [
        {**member, "rack": chance.choice([*names, None if chance.random() < 0.3 else "elsewhere"])}
        for member in vector["members"]
    ]
    sets = [sorted(chance.sample(names, chance.randint(1, 2))) for _ in range(chance.randint(1, 4))]
    topics = {
        topic: [chance.randrange(len(sets)) if chance.random() < 0.9 else None for _ in range(count)]
        for topic, count in vector["topics"].items()
        if count and chance.random() < 0.9
    }
    racks = {"sets": sets, "topics": topics, "tolerance": chance.choice([0, 20, 20, 200])}
    record = {**vector["record"], "racks": racks}
    return {**vector, "name": f"{vector['name']} with racks", "members": members, "record": record}


def with_together(vector: Vector, seed: int) -> Vector:
    """Return a random vector with topics that stay together, or would if they were alike."""
    chance = random.Random(-seed)  # noqa: S311  # as above
    topics = sorted(vector["topics"])
    chance.shuffle(topics)
    cut = chance.randint(2, max(2, len(topics)))
    lists = [sorted(each) for each in (topics[:cut], topics[cut:]) if len(each) > 1]
    members, sizes = [dict(member) for member in vector["members"]], dict(vector["topics"])
    for listed in lists:
        if chance.random() < 0.85:
            sizes |= dict.fromkeys(listed, sizes[listed[0]])
        for member in members if chance.random() < 0.85 else ():
            has_any = listed[0] in member["topics"]
            member["topics"] = sorted(
                {*member["topics"], *listed} if has_any else {*member["topics"]} - {*listed}
            )
    for member in members:
        member["owned"] = [[topic, number] for topic, number in member["owned"] if number < sizes[topic]]
    record = {**vector["record"], "together": sorted(lists)} if lists else vector["record"]
    return {
        **vector, "name": f"{vector['name']} together", "topics": sizes, "members": members, "record": record
    }  # fmt: skip


def _random_members(chance: random.Random, topics: list[str], count: int) -> list[Vector]:
    are_equal = chance.random() < 0.5
    # Ids whose order by UTF-16 is not that by code points.
    signs = ["a", "b", "z", "Z", "é", chr(0xFFEE), chr(0x1F600)]
    ids = {"".join(chance.choices(signs, k=chance.randint(1, 3))) + str(number) for number in range(count)}
    members = []
    for number, member_id in enumerate(sorted(ids)):
        taken = topics if are_equal else chance.sample(topics, chance.randint(0, len(topics)))
        instance = f"pod-{number}" if chance.random() < 0.3 else None
        members.append({"id": member_id, "instance": instance, "topics": sorted(taken)})
    chance.shuffle(members)
    return members


def _give_claims(chance: random.Random, topics: Mapping[str, int], members: list[Vector]) -> None:
    holders = [member for member in members if chance.random() < 0.75]
    share_free = chance.choice([0, 0, 0, 0.1, 0.5])
    share_false = chance.choice([0, 0, 0.1])
    for member in members:
        member["owned"], member["generation"] = [], 7 if member in holders else -1
    if chance.random() < 0.1 and holders:
        chance.choice(holders)["generation"] = 6
    if chance.random() < 0.25:
        _deal(topics, holders)
        return
    for topic, count in topics.items():
        for partition in range(count):
            if not holders or chance.random() < share_free:
                continue
            wanted = [member for member in holders if topic in member["topics"]]
            if chance.random() < share_false or not wanted:
                wanted = holders
            for _ in range(2 if chance.random() < share_false else 1):
                claimant = chance.choice(wanted)
                if [topic, partition] not in claimant["owned"]:
                    claimant["owned"].append([topic, partition])


def _deal(topics: Mapping[str, int], holders: list[Vector]) -> None:
    """Give each partition to who takes it and has the fewest: an even group in which nothing is free."""
    for topic, count in topics.items():
        takers = [member for member in holders if topic in member["topics"]]
        for partition in range(count if takers else 0):
            min(takers, key=lambda member: len(member["owned"]))["owned"].append([topic, partition])


def _random_loads(chance: random.Random, topics: Mapping[str, int]) -> dict[str, list[int | None]]:
    kind = chance.choice(["idle", "small", "zipf", "zipf", "large"])
    unknown = chance.choice([0, 0, 0.2, 0.8])
    loads: dict[str, list[int | None]] = {}
    for topic, count in topics.items():
        known = max(0, count + chance.choice([0, 0, 0, -1, 2]))
        values = [_random_load(chance, kind) if chance.random() >= unknown else None for _ in range(known)]
        if values and chance.random() < 0.95:
            loads[topic] = values
    return loads


def _random_load(chance: random.Random, kind: str) -> int:
    return {
        "idle": 0,
        "small": chance.randint(0, 9),
        "zipf": int(1e6 / (1 + chance.randint(0, 40)) ** 0.8),
        "large": MAX_LOAD - chance.choice([0, 0, 1, chance.randint(0, MAX_LOAD)]),
    }[kind]


def with_results(vector: Vector) -> Vector:
    """Return a vector with what the plain implementation makes of it."""
    members = sorted(vector["members"], key=lambda member: utf16_key(member["id"]))
    ids = [member["id"] for member in members]
    topics = {topic: vector["topics"][topic] for topic in sorted(vector["topics"])}
    loads = {topic: _filled(vector["record"]["loads"], topic, count) for topic, count in topics.items()}
    owners = {
        topic: [_live_owner(members, topic, partition) for partition in range(count)]
        for topic, count in topics.items()
    }
    record = vector["record"]
    keys = [member_key(member["id"], member["instance"]) for member in members]
    units = _units(topics, members, record.get("together", []))
    racks = dict(zip(_rows(topics), _racks(record.get("racks"), topics), strict=True))
    case = reference.Case(
        capacity=[record["capacities"].get(key, record["default_capacity"]) for key in keys],
        takes=[[index for index, topic in enumerate(topics) if topic in m["topics"]] for m in members],
        topic=[list(topics).index(unit[0][0]) for unit in units],
        load=[min(MAX_LOAD, sum(loads[topic][number] for topic, number in unit)) for unit in units],
        owner=[_unit_owner(unit, owners, loads, ids) for unit in units],
        count_slack=record["count_slack"],
        max_moves=record["max_moves"] // max(map(len, units), default=1),
        rack=[member.get("rack") for member in members],
        racks=[racks[unit[0]] if len(unit) == 1 else None for unit in units],
        tolerance=record.get("racks", {}).get("tolerance", 0),
    )
    flat, is_uneven = reference.place_by_load(case)
    placed = {row: member for unit, member in zip(units, flat, strict=True) for row in unit}
    target = {
        topic: [None if (m := placed[topic, n]) < 0 else ids[m] for n in range(count)]
        for topic, count in topics.items()
    }
    return {
        **vector,
        "owners": owners,
        "row_loads": loads,
        "target": target,
        "is_uneven": is_uneven,
    }


def _rows(topics: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(topic, number) for topic, count in topics.items() for number in range(count)]


def _units(
    topics: Mapping[str, int], members: list[Vector], together: list[list[str]]
) -> list[list[tuple[str, int]]]:
    """Return the partitions that are placed as one, in the order of the first of each."""
    united = [
        listed
        for each in together
        if len(listed := sorted(topic for topic in each if topics.get(topic))) > 1
        and len({topics[topic] for topic in listed}) == 1
        and all(len({topic in member["topics"] for topic in listed}) == 1 for member in members)
    ]
    rest = [[topic] for topic in topics if not any(topic in listed for listed in united)]
    return [[(topic, n) for topic in each] for each in sorted(united + rest) for n in range(topics[each[0]])]


def _unit_owner(
    unit: list[tuple[str, int]],
    owners: Mapping[str, list[str | None]],
    loads: Mapping[str, list[int]],
    ids: list[str],
) -> int:
    """Return who has most of a unit's load, then of its rows, then comes first; -1 if nobody has any."""
    held = [owners[topic][number] for topic, number in unit]
    weight = {
        name: sum(
            loads[topic][number] for (topic, number), who in zip(unit, held, strict=True) if who == name
        )
        for name in held
        if name is not None
    }
    return min(
        (ids.index(name) for name in weight),
        key=lambda index: (-weight[ids[index]], -held.count(ids[index]), index),
        default=-1,
    )


def _filled(loads: Mapping[str, list[int | None]], topic: str, count: int) -> list[int]:
    of_topic = [load for load in loads.get(topic, []) if load is not None]
    of_all = [load for values in loads.values() for load in values if load is not None]
    known = of_topic or of_all
    mean = sum(known) // len(known) if known else 0
    given = loads.get(topic, [])[:count]
    return [mean if load is None else load for load in given] + [mean] * (count - len(given))


def _racks(racks: Vector | None, topics: Mapping[str, int]) -> list[list[str] | None]:
    found: list[list[str] | None] = []
    for topic, count in topics.items():
        numbers = [] if racks is None else racks["topics"].get(topic, [])[:count]
        known = [None if racks is None or number is None else racks["sets"][number] for number in numbers]
        found += known + [None] * (count - len(known))
    return found


def _live_owner(members: list[Vector], topic: str, partition: int) -> str | None:
    claims = [m for m in members if [topic, partition] in m["owned"]]
    newest = max((member["generation"] for member in claims), default=-1)
    best = [member for member in claims if member["generation"] == newest]
    return best[0]["id"] if len(best) == 1 and topic in best[0]["topics"] else None


def group_of(vector: Vector) -> tuple[Group, dict[str, str], LoadsPayload]:
    """Return a vector as what the leader has; names of topics are in another order than their ids."""
    names = {topic: f"t{999 - number}" for number, topic in enumerate(sorted(vector["topics"]))}
    members = [
        Member(
            member["id"],
            tuple(names[topic] for topic in member["topics"]),
            instance_id=member["instance"],
            rack=member.get("rack"),
            owned=tuple((names[topic], partition) for topic, partition in member["owned"]),
            generation=member["generation"],
        )
        for member in vector["members"]
    ]
    group = Group.from_members({names[topic]: count for topic, count in vector["topics"].items()}, members)
    record = dict(vector["record"])
    if "racks" in record:
        record["racks"] = LoadRacks(**record["racks"])
    payload = LoadsPayload("cluster", "group", "snapshot", 0, 1, **record)
    return group, {name: topic for topic, name in names.items()}, payload


def place(vector: Vector) -> tuple[dict[str, list[str | None]], bool]:
    """Return the target of the implementation under test in the form of a vector."""
    group, topic_ids, payload = group_of(vector)
    return as_target(group, topic_ids, place_by_load(group, topic_ids, payload))


def as_target(
    group: Group, topic_ids: Mapping[str, str], placement: Placement
) -> tuple[dict[str, list[str | None]], bool]:
    """Return a placement in the form of a vector."""
    target: dict[str, list[str | None]] = {topic: [] for topic in sorted(topic_ids.values())}
    for row, member in enumerate(placement.target.tolist()):
        name = group.topics[int(group.row_topic[row])]
        target[topic_ids[name]].append(None if member < 0 else group.member_ids[member])
    return target, placement.is_uneven
