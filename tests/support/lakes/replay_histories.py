"""Small histories for tests of the simulation: snapshots every five minutes, one topic, members by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evenlag.simulation.history import GroupSnapshots, History, SnapshotMembers, build_history

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP_S = 300.0
START_S = 1_772_323_200.0


def snapshot(
    *members: str, blocker: str | None = None, assignor: str = "cooperative-sticky"
) -> SnapshotMembers:
    """Members of the topic ``t``; ``name@instance`` is a static one."""
    people = []
    for member in members:
        name, _, instance = member.partition("@")
        people.append((name, instance or None, ("t",)))
    return SnapshotMembers(tuple(people), assignor, blocker)


def history_of(
    ends: Sequence[Sequence[float | None]],
    lags: Sequence[Sequence[float | None]],
    owners: Sequence[Sequence[str | None]],
    groups: Sequence[SnapshotMembers],
    *,
    age_s: float | None = None,
    at_s: Sequence[float] | None = None,
    starts: Sequence[Sequence[float | None]] | None = None,
) -> History:
    """Build a history from snapshots x partitions; an owner ``-`` says that the partition is not there.

    age_s: Time lag of everything that was seen, None when not known.
    starts: Log start offsets; not known when not given.
    at_s: When the snapshots were, in seconds after the first; five minutes apart when not given.
    """
    cells = [(s, p) for s, row in enumerate(owners) for p, owner in enumerate(row) if owner != "-"]
    place, partition = (np.array(column, dtype=np.int64) for column in zip(*cells, strict=True))
    names = sorted({person[0] for group in groups for person in group.members})

    def column(values: Sequence[Sequence[float | None]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(
            [np.nan if values[s][p] is None else values[s][p] for s, p in cells], dtype=np.float64
        )

    return build_history(
        GroupSnapshots(
            snapshot=place,
            topic=np.zeros(len(cells), dtype=np.int64),
            topic_id=np.zeros(len(cells), dtype=np.int64),
            partition=partition,
            lag=column(lags),
            start=np.full(len(cells), np.nan) if starts is None else column(starts),
            end=column(ends),
            age_s=np.full(len(cells), np.nan if age_s is None else age_s),
            owner=np.array(
                [names.index(owners[s][p] or "") if owners[s][p] in names else -1 for s, p in cells]
            ),
            at_s=START_S
            + np.array([STEP_S * s for s in range(len(groups))] if at_s is None else at_s, dtype=np.float64),
            topics=("t",),
            member_ids=tuple(names),
            groups=tuple(groups),
        )
    )
