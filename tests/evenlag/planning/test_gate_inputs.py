"""What the gates count: faults with the counts that they have, and any rows beside a plain Python count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.lake.tables import LAG, MEMBERS, PLAN_ASSIGNMENTS
from evenlag.planning.gate_inputs import _input, build_gate_rows, count_rows, gate_inputs
from evenlag.planning.plan_batch import plan_batch, with_counts
from tests.support.lakes.snapshots import HEAD, NOW, TOPIC_IDS, arrow, marker, member, plan_context

if TYPE_CHECKING:
    from collections.abc import Sequence

Place = tuple[str, int]
PLACES: tuple[Place, ...] = (("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0), ("u", 1))
# m-1 subscribes to both topics, m-2 to t only.
SUBSCRIPTIONS = {"m-1": ("t", "u"), "m-2": ("t",)}
RIGHT: tuple[tuple[Place, str | None], ...] = (
    (("t", 0), "m-1"),
    (("t", 1), "m-2"),
    (("t", 2), "m-1"),
    (("t", 3), "m-2"),
    (("u", 0), "m-1"),
    (("u", 1), "m-1"),
)
NAMES = ("num_rows", "num_duplicates", "num_missing", "num_invalid_owners")
POLICY = """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups: [{match: "*", mode: auto, assignor: lag-aware, count_slack: 20000}]
"""


@dataclass
class Batch:
    """Rows of some groups, as one Arrow call of planning has them."""

    assignments: list[dict[str, Any]] = field(default_factory=list)
    lag: list[dict[str, Any]] = field(default_factory=list)
    members: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        group: str,
        plan: str,
        owners: Sequence[tuple[Place, str | None]],
        *,
        places: Sequence[Place] = PLACES,
        subscriptions: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Add a group with the places that it has, and a plan for it."""
        people = SUBSCRIPTIONS if subscriptions is None else subscriptions
        head = {"group_id": group, "slot": NOW}
        self.lag += [head | _place(place) | {"status": "OK"} for place in places]
        self.members += [member(name, group=group, topics=topics) for name, topics in people.items()]
        self.assignments += [
            {"plan_id": plan, "group_id": group, "owner_after": owner, **_place(place)}
            for place, owner in owners
        ]

    def count(self) -> dict[str, tuple[int, ...]]:
        """Count by plan; each table begins in the middle of its arrays, as a slice does."""
        tables = [
            pa.concat_tables([rows.slice(0, 1), rows]).combine_chunks().slice(1)
            for rows in (
                arrow(PLAN_ASSIGNMENTS, self.assignments),
                arrow(LAG, self.lag),
                arrow(MEMBERS, self.members),
            )
        ]
        found = count_rows(*tables)
        return {plan: tuple(counts[name] for name in NAMES) for plan, counts in found.items()}


def _place(place: Place) -> dict[str, Any]:
    topic, partition = place
    return {"topic_id": f"id of {topic}", "topic": topic, "partition": partition}


def changed(number: int, owner: str | None) -> tuple[tuple[Place, str | None], ...]:
    """The right plan with another owner for one of its rows."""
    return (*RIGHT[:number], (RIGHT[number][0], owner), *RIGHT[number + 1 :])


# A plan's rows; then, counted manually: rows, duplicates, missing partitions, invalid owners.
FAULTS: dict[str, tuple[Sequence[tuple[Place, str | None]], tuple[int, ...]]] = {
    "right": (RIGHT, (6, 0, 0, 0)),
    "in any order": (RIGHT[::-1], (6, 0, 0, 0)),
    "twice": ((*RIGHT, RIGHT[0]), (7, 1, 0, 0)),
    "three times": ((*RIGHT, RIGHT[0], RIGHT[0]), (8, 2, 0, 0)),
    "twice, with two owners": ((*RIGHT, (("t", 0), "m-2")), (7, 1, 0, 0)),
    "missing": (RIGHT[1:], (5, 0, 1, 0)),
    "a topic is missing": (RIGHT[:4], (4, 0, 2, 0)),
    "a duplicate in the place of a missing one": ((*RIGHT[1:], RIGHT[1]), (6, 1, 1, 0)),
    "nobody": (changed(0, None), (6, 0, 1, 0)),
    "stranger": (changed(0, "a-stranger"), (6, 0, 0, 1)),
    "member of another group": (changed(0, "m-other"), (6, 0, 0, 1)),
    "topic not subscribed": (changed(4, "m-2"), (6, 0, 0, 1)),
    "all at once": (
        (*changed(4, "m-2")[:5], RIGHT[0], (("t", 1), "a-stranger")),
        (7, 2, 1, 2),
    ),
}


def test_each_fault_is_counted_in_its_own_plan_only() -> None:
    batch = Batch()
    for name, (owners, _) in FAULTS.items():
        # Nobody subscribes to v: its rows of lag are not expected in a plan.
        batch.add(f"group of {name}", name, owners, places=(*PLACES, ("v", 0)))
    batch.add(
        "another", "another", [(("t", 0), "m-other")], places=PLACES[:1], subscriptions={"m-other": ("t",)}
    )
    assert batch.count() == {name: counts for name, (_, counts) in FAULTS.items()} | {"another": (1, 0, 0, 0)}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_counted_alone(name: str) -> None:
    owners, expected = FAULTS[name]
    batch = Batch()
    batch.add("g", name, owners)
    assert batch.count() == {name: expected}


def test_names_are_compared_as_they_are() -> None:
    groups = [
        "g",
        "G",
        "g ",
        'quote"',
        "apostrophe'",
        "back\\slash",
        "a\nline",
        "ü",
        "u\u0308",
        "日本",
        "%s",
        "",
    ]
    people = {"m,1": ("t", "u"), "i:m": ("t",)}
    batch, expected = Batch(), {}
    for number, group in enumerate(groups):
        rows = [(place, "m,1") for place in PLACES]
        # Each fifth plan has an owner that differs from a member in one character.
        is_faulty = number % 5 == 0
        if is_faulty:
            rows[0] = (PLACES[0], "m,1 ")
        batch.add(group, f"plan of {group}", rows, subscriptions=people)
        expected[f"plan of {group}"] = (6, 0, 0, int(is_faulty))
    assert batch.count() == expected


def test_a_member_without_an_id_or_a_subscription_owns_nothing() -> None:
    batch = Batch()
    batch.add("g", "p", RIGHT)
    batch.members += [member(None, topics=None), member("m-3", topics=None), member(None, topics=("v",))]
    batch.lag.append({"group_id": "g", "slot": NOW, "status": "OK", **_place(("v", 0))})
    assert batch.count() == {"p": (6, 0, 0, 0)}
    batch.assignments[0]["owner_after"] = "m-3"
    assert batch.count() == {"p": (6, 0, 0, 1)}


def test_a_plan_in_two_rows_of_the_output_is_counted_once() -> None:
    """12,000 partitions: planning returns 10,000 of them in one row, and 2,000 in a second one."""
    number = 12_000
    lag = [
        {
            "slot": NOW,
            "group_id": "g",
            "owner_member_id": "m-1",
            "status": "OK",
            "lag_records": 5,
            "stalled": False,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": partition,
        }
        for partition in range(number)
    ]
    members = arrow(MEMBERS, [member("m-1"), member("m-2")])
    rows, more = arrow(LAG, lag), arrow(LAG, [lag[0] | {"partition": number}])
    planned = plan_batch(rows, members, plan_context(POLICY))
    assert [len(piece) for piece in planned["rows"].to_pylist()] == [10_000, 2_000]

    def counted(planned: pa.Table, lag: pa.Table, members: pa.Table) -> list[Any]:
        found = with_counts(planned, lag, members)["counts"].to_pylist()
        return [counts and tuple(counts[name] for name in NAMES) for counts in found]

    assert counted(planned, rows, members) == [(number, 0, 0, 0), None]
    # The second row is there twice; a partition was added after planning.
    twice = planned.take([0, 1, 1])
    assert counted(twice, pa.concat_tables([rows, more]), members) == [(14_000, 2_000, 1, 0), None, None]
    # A member left after planning: each half of an even plan.
    owners = [row["owner_after"] for piece in planned["rows"].to_pylist() for row in piece]
    assert counted(planned, rows, members.slice(0, 1)) == [(number, 0, 0, owners.count("m-2")), None]
    assert 0 < owners.count("m-2") < number


@st.composite
def batches(draw: st.DrawFn) -> tuple[Batch, dict[str, tuple[int, ...]]]:
    """Draw groups with faulty plans, and count the faults with sets."""
    names = st.text("ab,'\" \\ü", min_size=1, max_size=3)
    batch = Batch()
    expected: dict[str, tuple[int, ...]] = {}
    for group in draw(st.lists(names, unique=True, min_size=1, max_size=4)):
        topics = st.lists(st.sampled_from("tuvw"), unique=True, max_size=3)
        people = draw(st.dictionaries(names, topics.map(tuple), min_size=1, max_size=3))
        sizes = draw(st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 3), min_size=1))
        places = [(topic, number) for topic, size in sizes.items() for number in range(size)]
        wanted = {place for place in places if any(place[0] in owned for owned in people.values())}
        chosen = draw(st.lists(st.sampled_from(sorted(wanted)), unique=True)) if wanted else []
        owner = st.one_of(st.none(), st.sampled_from(sorted(people)), names)
        rows = [(place, draw(owner)) for place in chosen]
        owned = [row for row in rows if row[1] is not None]
        rows += draw(st.lists(st.sampled_from(owned), max_size=3)) if owned else []
        if not rows:
            continue
        batch.add(group, f"p{group}", draw(st.permutations(rows)), places=places, subscriptions=people)
        expected[f"p{group}"] = (
            len(rows),
            len(rows) - len({place for place, _ in rows}),
            len(wanted - {place for place, name in rows if name is not None}),
            sum(name is not None and place[0] not in people.get(name, ()) for place, name in rows),
        )
    return batch, expected


@settings(max_examples=150, deadline=None)
@given(batches())
def test_any_rows_are_counted_as_plain_python_counts_them(
    drawn: tuple[Batch, dict[str, tuple[int, ...]]],
) -> None:
    batch, expected = drawn
    if expected:
        assert batch.count() == expected


def test_a_row_for_the_gates_has_each_input() -> None:
    counts = {"p": dict(zip(NAMES, (6, 1, 2, 3), strict=True)), "q": dict.fromkeys(NAMES, 0)}
    columns = {name: None for name in gate_inputs() if not name.startswith(("before_", "after_"))}
    head = columns | {
        "group_id": "g",
        "settings": "{}",
        "moves": 4,
        "violations": ["one", "two"],
        "metrics_before": {"max_member_lag_records": 900},
        "metrics_after": None,
    }
    ended = HEAD | marker(hint_topic_max_bytes=1_000)
    first, second = build_gate_rows(
        [head | {"plan_id": "p"}, head | {"plan_id": "q", "group_id": "h", "violations": None}],
        counts,
        last_hints={"g": NOW.replace(hour=11)},
        marker=ended,
        decided_at=NOW.replace(minute=2),
    )
    assert set(first) == {"plan_id", "settings", *gate_inputs()}
    assert [first[name] for name in NAMES[1:]] == [1, 2, 3]
    assert (first["num_violations"], first["snapshot_age_s"], first["since_last_hint_s"]) == (
        2,
        120.0,
        3600.0,
    )
    assert (first["hint_topic_max_bytes"], first["moves"]) == (1_000, 4)
    assert (second["num_violations"], second["since_last_hint_s"]) == (0, None)
    assert [second[name] for name in NAMES[1:]] == [0, 0, 0]
    # No gate of today has a measure of the plan's metrics; CONTRIBUTING.md adds one that does.
    measures = ("before_max_member_lag_records", "before_lag_skew", "after_max_member_lag_records")
    assert [_input(head, name) for name in measures] == [900, None, None]
