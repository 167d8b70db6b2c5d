"""Rates, drain times and times behind of rows in any state, also those that no broker reports.

Each row is computed again by itself, in plain Python and by the definitions in the documentation.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evenlag.enums import IsolationLevel, LagStatus
from evenlag.lag.formula import count_lag
from evenlag.lag.partitions import GROUP_PARTITIONS, GROUPS
from tests.support.lakes.snapshots import NOW, arrow

WINDOW_S = 900
MEMBERS = pa.array(["m-1", "m-2"])


def random_partition(chance: np.random.Generator, number: int) -> dict[str, Any]:
    """A partition in any state: each value may be missing."""

    def perhaps(value: Any, share: float = 0.9) -> Any:
        return value if chance.random() < share else None

    def below(limit: int) -> int:
        return int(chance.integers(limit))

    def points(last: int) -> list[dict[str, Any]]:
        ages = sorted((below(2_000_000_000) for _ in range(below(6))), reverse=True)
        # Else as of a log that lost records.
        limit = last + 1 if chance.random() < 0.8 else scale
        offsets = [below(limit) for _ in ages]
        offsets = sorted(offsets) if chance.random() < 0.8 else offsets
        return [
            {"at": NOW - timedelta(microseconds=age), "offset": perhaps(offset, 0.95)}
            for age, offset in zip(ages, offsets, strict=True)
        ]

    scale = (3, 1_000, 10**9, 10**15)[below(4)]
    end, committed = below(scale), below(scale)
    return {
        "group_id": f"g{below(6)}",
        "topic_id": "id",
        "topic": "t",
        "partition": number,
        "owner": perhaps(0),
        "last_owner": 0,
        "num_owners": 1,
        "target": perhaps(1, 0.2),
        "log_start_offset": perhaps(below(min(scale, 1_000)), 0.95),
        "high_watermark": perhaps(end, 0.95),
        "last_stable_offset": perhaps(below(scale)),
        "reset_offsets": perhaps([{"reset_policy": "by_duration:PT1H", "offset": perhaps(below(scale))}]),
        "read_at": NOW,
        "offset_error": perhaps("refused", 0.05),
        "committed_offset": perhaps(committed),
        "leader_epoch": perhaps(below(3) - 1),
        "commit_read_at": NOW + timedelta(microseconds=below(10) - 8),
        "is_subscribed": perhaps(value=True),
        "end_points": perhaps(points(end)),
        "commit_points": perhaps(points(committed)),
    }


def groups() -> list[dict[str, Any]]:
    """A group of each reset policy, and of each state."""
    return [
        {"group_id": "g0", "group_type": "classic", "is_empty": False, "reset_policy": "earliest"},
        {"group_id": "g1", "group_type": "classic", "is_empty": False, "reset_policy": "latest"},
        {
            "group_id": "g2",
            "group_type": "consumer",
            "is_empty": False,
            "reset_policy": "by_duration:PT1H",
            "isolation_level": IsolationLevel.READ_COMMITTED.value,
        },
        {"group_id": "g3", "group_type": "classic", "is_empty": True},
        {
            "group_id": "g4",
            "group_type": "classic",
            "is_empty": False,
            "subscription_problem": "not readable",
        },
        {"group_id": "g5", "group_type": "classic", "is_empty": False, "commit_problem": "not authorised"},
    ]


def rate(points: list[dict[str, Any]], now: datetime, offset: int | None) -> float | None:
    """Increase per second since the oldest point of the window."""
    within = [each for each in points if each["offset"] is not None]
    within = [each for each in within if each["at"] >= now - timedelta(seconds=WINDOW_S)]
    if not within or offset is None:
        return None
    seconds, grown = (now - within[0]["at"]).total_seconds(), offset - within[0]["offset"]
    return grown / seconds if seconds > 0 and grown >= 0 else None


def time_behind(row: dict[str, Any], position: int) -> tuple[float | None, float | None]:
    """Time behind in ms, and its lower bound: by what was ever lower, the log lost what was beyond."""
    end = row["high_watermark"]
    seen = [(each["at"], each["offset"]) for each in row["end_points"] or () if each["offset"] is not None]
    seen.append((NOW, end))
    kept = [(at, min(offset for _, offset in seen[place:])) for place, (at, _) in enumerate(seen)]
    below = [point for point in kept if point[1] <= position]
    above = [point for point in kept if point[1] > position]
    if not above:
        return None, None
    if not below:
        bound = (NOW - above[0][0]) // timedelta(milliseconds=1)
        return None, bound or None
    (at, offset), (later, next_offset) = below[-1], above[0]
    passed_at = at + (later - at) * ((position - offset) / (next_offset - offset))
    return (NOW - passed_at).total_seconds() * 1000, None


@pytest.mark.parametrize("seed", range(3))
def test_rates_and_times_of_partitions_in_any_state(seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows = [random_partition(chance, number) for number in range(2_000)]
    counted = count_lag(arrow(GROUP_PARTITIONS, rows), arrow(GROUPS, groups()), MEMBERS, WINDOW_S).to_pylist()
    for row, found in zip(rows, counted, strict=True):
        arrival = rate(row["end_points"] or [], NOW, row["high_watermark"])
        consume = rate(row["commit_points"] or [], row["commit_read_at"], row["committed_offset"])
        assert found["arrival_rate_records_per_s"] == pytest.approx(arrival)
        assert found["consume_rate_records_per_s"] == pytest.approx(consume)
        lag, is_left = found["lag_records"], found["status"] == "NOT_SUBSCRIBED"
        if lag is None or is_left or found["lag_bound"] is not None:
            assert (found["time_lag_ms"], found["time_lag_at_least_ms"]) == (None, None)
            assert found["drain_time_ms"] is None
        elif lag == 0:
            assert (found["time_lag_ms"], found["drain_time_ms"]) == (0, 0)
        else:
            time, at_least = time_behind(row, found["end_offset"] - lag)
            assert found["time_lag_ms"] == (None if time is None else pytest.approx(time, abs=1))
            assert found["time_lag_at_least_ms"] == at_least
            falls_by = None if consume is None or arrival is None else consume - arrival
            drains = falls_by is not None and falls_by > 0
            if time is not None and time <= 60_000:
                # A minute behind at most: it keeps up.
                assert found["drain_time_ms"] == 0
            else:
                assert found["drain_time_ms"] == (
                    pytest.approx(1000 * lag / falls_by, abs=1, rel=1e-6) if drains else None
                )
        assert found["owner_member_id"] == (None if row["owner"] is None else "m-1")
        is_still = row["owner"] is not None and consume == 0 and not is_left
        assert found["stalled"] == (None if is_still and lag is None else is_still and lag > 0)
    assert {row["status"] for row in counted} == set(LagStatus)
    for name in ("time_lag_ms", "time_lag_at_least_ms", "drain_time_ms", "arrival_rate_records_per_s"):
        assert sum(row[name] is not None and row[name] > 0 for row in counted) >= 5, name


def test_a_lag_that_hardly_shrinks_never_drains() -> None:
    """At rates that differ in their last digits it would take longer than a BIGINT of milliseconds."""
    moment = NOW - timedelta(seconds=300)
    row = random_partition(np.random.default_rng(0), 0) | {
        "group_id": "g0",
        "log_start_offset": 0,
        "high_watermark": 10**15,
        "committed_offset": 3 * 10**14,
        "commit_read_at": NOW - timedelta(microseconds=1),
        "end_points": [{"at": moment, "offset": 10**15 - 3_000}],
        "commit_points": [{"at": moment, "offset": 3 * 10**14 - 3_000}],
        "offset_error": None,
    }
    [found] = count_lag(
        arrow(GROUP_PARTITIONS, [row]), arrow(GROUPS, groups()), MEMBERS, WINDOW_S
    ).to_pylist()
    assert found["consume_rate_records_per_s"] > found["arrival_rate_records_per_s"]
    assert found["drain_time_ms"] is None
