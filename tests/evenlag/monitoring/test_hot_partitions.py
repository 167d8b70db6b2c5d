"""Hot partitions: lag that is not known raises no alert and clears none."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS
from evenlag.monitoring.alerts import find_changes, record_changes
from evenlag.policy.loader import parse_policy
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, append_rows, frame, marker, member

if TYPE_CHECKING:
    from evenlag.policy.loader import LoadedPolicy
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

POLICY = """\
lake: {root}
clusters:
  c: {{bootstrap_servers: "a:1", schedule: "*/5 * * * *"}}
groups:
  - {{match: "*", mode: auto}}
"""
Lags = dict[str, list[int | None]]
# An even share of what is known is 1,000 a member, and m-1's partition alone is 3,000 behind.
HOT: Lags = {"m-1": [3000], "m-2": [0], "m-3": [0]}
PARTLY: Lags = {"m-1": [3000], "m-2": [0, None], "m-3": [0]}
EVEN: Lags = {"m-1": [3000], "m-2": [2900], "m-3": [3100]}


def append(lake: Lake, number: int, groups: dict[str, Lags]) -> None:
    at = NOW + timedelta(minutes=5 * number)
    head: dict[str, Any] = {"snapshot_id": f"{at:%Y%m%dT%H%M%S}000Z-00000001"}
    owned = [
        (group, owner, lag)
        for group, lags in groups.items()
        for owner, of_owner in lags.items()
        for lag in of_owner
    ]
    rows = [
        head
        | {
            "slot": at,
            "group_id": group,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_member_id": owner,
            "status": "NO_COMMIT" if lag is None else "OK",
            "lag_records": lag,
        }
        for number, (group, owner, lag) in enumerate(owned)
    ]
    people = [head | member(name, group=group) for group, lags in groups.items() for name in lags]
    lake.append(LAG, frame(lake.spark, LAG, rows))
    append_rows(lake.paths.root, MEMBERS, people)
    row = marker(**head, slot=at, finished_at=at)
    append_rows(lake.paths.root, SNAPSHOTS, [row])


def look(loaded: LoadedPolicy, number: int) -> tuple[list[str], list[str]]:
    """Groups that a look raises an alert of and clears one of; then it counts as told."""
    now = NOW + timedelta(minutes=5 * number + 1)
    changes = find_changes(loaded, "c", now)
    record_changes(loaded, "c", changes, run_id="r", now=now)
    assert {fault.kind for fault in (*changes.raised, *changes.cleared)} <= {"HOT_PARTITION"}
    return [fault.subject for fault in changes.raised], [fault.subject for fault in changes.cleared]


def test_a_partition_is_hot_only_by_lag_that_is_known_as_a_whole(lake: Lake) -> None:
    loaded = parse_policy(POLICY.format(root=lake.paths.root))
    append(lake, 0, {"hot": HOT, "partly": PARTLY})
    assert look(loaded, 0) == (["hot"], [])
    # Nobody knows whether it is over: the alert stays.
    append(lake, 1, {"hot": PARTLY, "partly": PARTLY})
    assert look(loaded, 1) == ([], [])
    append(lake, 2, {"hot": EVEN, "partly": HOT})
    assert look(loaded, 2) == (["partly"], ["hot"])
