"""Random groups for property tests, and one exact optimum to compare with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from assignor_core.group import Group
from assignor_core.members import Member

if TYPE_CHECKING:
    from numpy.typing import NDArray


@st.composite
def groups(
    draw: st.DrawFn,
    *,
    max_members: int = 6,
    max_topics: int = 5,
    max_partitions: int = 6,
    equal: bool = False,
    conflicts: bool = True,
    lags: bool = False,
) -> Group:
    """Draw a group with random subscriptions and claims, false and conflicting ones among them."""
    topics = {f"t{i}": draw(st.integers(0, max_partitions)) for i in range(draw(st.integers(1, max_topics)))}
    names = sorted(topics)
    takes = st.lists(st.sampled_from([*names, "gone"]), unique=True, max_size=len(names) + 1).map(tuple)
    everything = tuple(names)
    holders: dict[int, list[tuple[str, int]]] = {}
    num_members = draw(st.integers(1, max_members))
    for name in [*names, "gone"]:
        for partition in range(topics.get(name, 1) + 1):
            for _ in range(draw(st.integers(0, 2)) if conflicts else 1):
                holder = draw(st.integers(-1, num_members - 1))
                holders.setdefault(holder, []).append((name, partition))
    members = [
        Member(
            f"m{i}",
            everything if equal else draw(takes),
            owned=tuple(holders.get(i, ())),
            generation=draw(st.integers(-1, 3)) if conflicts else 1,
        )
        for i in range(num_members)
    ]
    amounts = st.one_of(st.just(0), st.integers(0, 20), st.integers(0, 10**6))
    lag = {name: [draw(amounts) for _ in range(count)] for name, count in topics.items()} if lags else None
    return Group.from_members(topics, draw(st.permutations(members)), lags=lag)


def random_group(
    rng: np.random.Generator, num_members: int, num_topics: int, max_partitions: int, density: float
) -> Group:
    """Return a seeded group with overlapping subscriptions and owners of all but a fifth of its rows."""
    topics = {f"t{i:03}": int(rng.integers(1, max_partitions + 1)) for i in range(num_topics)}
    members = []
    for index in range(num_members):
        taken = tuple(name for name in topics if rng.random() < density)
        members.append(Member(f"m{index:03}", taken, generation=1))
    held: dict[int, list[tuple[str, int]]] = {}
    for name, count in topics.items():
        for partition in range(count):
            if rng.random() < 0.8:
                # Skewed on purpose: balance has something to do.
                holder = min(int(rng.exponential(num_members / 3)), num_members - 1)
                held.setdefault(holder, []).append((name, partition))
    members = [replace(member, owned=tuple(held.get(i, ()))) for i, member in enumerate(members)]
    return Group.from_members(topics, members)


def follow_up(group: Group, assignment: NDArray[np.int32]) -> Group:
    """Return the same group one generation later, when everybody holds what it was handed."""
    rows = np.flatnonzero(assignment >= 0)
    pairs = np.repeat(np.arange(group.num_members), np.diff(group.subscription_start))
    return Group.from_arrays(
        topics=group.topics,
        num_partitions=np.diff(group.topic_start),
        member_ids=group.member_ids,
        subscriptions=(pairs, group.subscription_topic),
        claims=(rows, assignment[rows], np.full(len(rows), 100)),
        lags=group.lag,
    )


def optimum(group: Group) -> tuple[int, int]:
    """Return the least (sum of squared counts, moves) by linear programming; flows have integral optima."""
    num_members, takes = group.num_members, group.subscribed
    live = group.live_owner
    sizes = np.diff(group.topic_start)
    owned = np.zeros((group.num_topics, num_members), dtype=np.int64)
    held = np.flatnonzero(live >= 0)
    np.add.at(owned, (group.row_topic[held], live[held]), 1)
    steps = [(m, j) for m in range(num_members) for j in range(int(sizes[takes[m]].sum()))]
    cells = [(t, m) for t in range(group.num_topics) for m in range(num_members) if takes[m, t]]
    if not cells or not steps:
        return 0, 0
    big = 2 * group.num_partitions + 1
    cost = [0.0] * len(cells) + [1.0] * len(cells) + [float(big * (2 * j + 1)) for _, j in steps]
    bounds = (
        [(0, int(owned[c])) for c in cells] + [(0, int(sizes[c[0]])) for c in cells] + [(0, 1)] * len(steps)
    )
    matrix = np.zeros((group.num_topics + num_members, len(cost)))
    for i, (t, m) in enumerate(cells):
        matrix[t, [i, len(cells) + i]] = 1
        matrix[group.num_topics + m, [i, len(cells) + i]] = 1
    for i, (m, _) in enumerate(steps):
        matrix[group.num_topics + m, 2 * len(cells) + i] = -1
    somebody = takes.any(axis=0)
    right = np.concatenate([np.where(somebody, sizes, 0), np.zeros(num_members)])
    result = linprog(cost, A_eq=matrix, b_eq=right, bounds=bounds, method="highs")
    assert result.success, result.message
    squares, gained = divmod(round(result.fun), big)
    free = int(sizes[somebody].sum() - owned.sum())
    return int(squares), int(gained - free)
