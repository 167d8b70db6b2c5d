"""Rows of ``advice`` after each snapshot, calculated apart; each once, also after a repeat."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import ADVICE, FORECASTS, LAG, MEMBERS, SNAPSHOTS, SPEEDS
from evenlag.planning import advice_rows as rows_module
from evenlag.planning import advice_snapshot as step
from evenlag.planning import group_steps
from evenlag.policy.loader import parse_policy
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, append_rows, arrow, marker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MINUTE = timedelta(minutes=1)
POLICY = """
lake: {lake}
clusters:
  c: {{bootstrap_servers: "localhost:9092"}}
groups:
  - {{match: late, target_wait_s: 30}}
"""
SPEED = 100.0


class Recorder:
    """A lake whose snapshots are written and advised one after the other."""

    groups: ClassVar[tuple[str, ...]] = ("g", "late")

    def __init__(self, root: Path) -> None:
        self.reader = LakeReader(str(root))
        self._root = root
        self.policy = parse_policy(POLICY.format(lake=root), environ={}).policy

    def write(
        self,
        at: datetime,
        rates: Sequence[float],
        *,
        speeds: Mapping[str, float | None] | None = None,
        is_bound: bool = False,
        lag: int | None = 0,
        wait_ms: int | None = 0,
        at_least_ms: int | None = None,
    ) -> SnapshotReader:
        """Write a snapshot: partitions with these forecast rates, of members in turn."""
        speeds = {"m0": SPEED, "m1": SPEED, "m2": SPEED} if speeds is None else speeds
        row = marker() | {
            "snapshot_id": f"{at:%Y%m%dT%H%M%S}000Z-00000001",
            "day": at.date(),
            "cluster": "c",
            "slot": at,
            "end_read_at": at,
        }
        append_rows(self._root, SNAPSHOTS, [row])
        head = {name: row[name] for name in ("snapshot_id", "day", "slot")}
        parts = [
            {"topic_id": TOPIC_IDS["t"], "topic": "t", "partition": number} for number in range(len(rates))
        ]
        names = list(speeds)
        lags = [
            part
            | {"status": "UNKNOWN" if lag is None else "OK", "lag_records": lag}
            | {"time_lag_ms": wait_ms, "time_lag_at_least_ms": at_least_ms}
            | {"owner_member_id": names[number % len(names)], "arrival_rate_records_per_s": 0.0}
            for number, part in enumerate(parts)
        ]
        known = [
            {"identity": number, "member_id": name, "speed_records_per_s": speed}
            | {"is_bound": is_bound, "confidence": 0.5}
            for number, (name, speed) in enumerate(speeds.items())
        ]
        forecast = {
            "read_at": at,
            "horizon_s": 1_800,
            "model": "last_rate",
            "partitions": [
                part | {"forecast_records_per_s": [rate] * 6} for part, rate in zip(parts, rates, strict=True)
            ],
        }
        rows = SnapshotReader(self.reader, row)
        for table, listed in (
            (LAG, lags),
            (MEMBERS, [{"member_id": name} for name in names]),
            (SPEEDS, [{"end_read_at": at, "members": known, "partitions": []}]),
            (FORECASTS, [forecast]),
        ):
            of_groups = [head | each | {"group_id": name} for name in self.groups for each in listed]
            rows.keep(table, arrow(table, of_groups))
        return rows

    def advise(self, at: datetime, rates: Sequence[float], **more: Any) -> dict[str, dict[str, Any]]:
        """Write a snapshot, and return its rows by group."""
        rows = self.write(at, rates, **more)
        assert step.advise_snapshot(rows, self.policy) == {"advised": 2}
        found = self.reader.read(ADVICE, filters=rows.filters).to_pylist()
        assert len(found) == 2
        return {row["group_id"]: row for row in found}


@pytest.fixture
def lake(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def test_a_group_needs_the_members_that_its_forecast_takes(lake: Recorder) -> None:
    row = lake.advise(NOW, [40.0, 40.0, 40.0, 20.0])["g"]
    found = {name: row[name] for name in ("num_members", "members_needed", "reason", "members_by_rate")}
    assert found == {"num_members": 3, "members_needed": 2, "reason": "rate", "members_by_rate": 2}
    assert (row["work_per_s"], row["speed_records_per_s"], row["confidence"]) == (140.0, SPEED, 0.5)
    assert (row["is_at_most"], row["hot_partitions"], row["target_wait_s"]) == (False, [], None)
    # Members are equal: the one that has least, 40 records a second, may go.
    assert (row["moves"], row["r_score"]) == (1, pytest.approx(40 / SPEED, abs=0.03))


def test_a_hot_partition_is_named_with_the_members_that_it_would_need(lake: Recorder) -> None:
    row = lake.advise(NOW, [250.0, 10.0])["g"]
    assert (row["reason"], row["members_needed"], row["partitions_to_add"]) == ("hot_partition", 2, 2)
    assert row["hot_partitions"] == [{"topic": "t", "partition": 0, "members": 2.5}]


def test_lower_bounds_of_speeds_never_ask_for_more_members(lake: Recorder) -> None:
    row = lake.advise(NOW, [90.0] * 10, is_bound=True)["g"]
    assert (row["members_needed"], row["is_at_most"]) == (3, True)
    assert lake.advise(NOW + _MINUTE, [90.0] * 10)["g"]["members_needed"] == 10


def test_a_partition_whose_member_keeps_up_is_not_hot(lake: Recorder) -> None:
    # 6,000 records in a minute, of which some may have been processed before: at least 92 per second.
    row = lake.advise(NOW, [100.0], speeds={"m0": 6_000 / 65}, is_bound=True)["g"]
    assert (row["members_needed"], row["members_by_rate"], row["reason"]) == (1, 1, "rate")
    assert (row["partitions_to_add"], row["hot_partitions"]) == (0, [])


def test_without_a_speed_or_a_lag_what_was_advised_holds(lake: Recorder) -> None:
    unknown = dict.fromkeys(("m0", "m1", "m2"))
    row = lake.advise(NOW, [50.0] * 4, speeds=unknown)["g"]
    assert (row["members_needed"], row["reason"]) == (None, None)
    lake.advise(NOW + _MINUTE, [50.0] * 4)
    row = lake.advise(NOW + 2 * _MINUTE, [50.0] * 4, lag=None)["g"]
    assert (row["members_needed"], row["members_now"]) == (4, None)


def test_fewer_members_are_advised_when_they_have_been_sufficient_for_a_while(lake: Recorder) -> None:
    needs = [([80.0] * 5, 5), ([80.0, 80.0], 5), ([80.0] * 3, 5), ([80.0, 80.0], 3)]
    for number, (rates, needed) in enumerate(needs):
        row = lake.advise(NOW + 10 * number * _MINUTE, rates)["g"]
        assert row["members_needed"] == needed
    assert (row["members_now"], row["most_members"]) == (2, 5)


def test_the_share_of_the_day_in_which_the_target_was_met_is_kept(lake: Recorder) -> None:
    def advise(minute: int, **more: Any) -> tuple[Any, ...]:
        row = lake.advise(NOW + minute * _MINUTE, [10.0], **more)["late"]
        return row["is_target_met"], row["met_share"], row["missed_since"]

    assert advise(0, wait_ms=30_000) == (True, None, None)
    assert advise(3, wait_ms=30_001) == (False, 0.0, NOW + 3 * _MINUTE)
    # Unknown: at least 20 seconds do not tell; at least 40 do.
    assert advise(4, wait_ms=None, at_least_ms=20_000) == (None, 0.0, NOW + 3 * _MINUTE)
    assert advise(5, wait_ms=None, at_least_ms=40_000) == (False, 0.0, NOW + 3 * _MINUTE)
    assert advise(9, wait_ms=0) == (True, 0.5, None)
    # Nothing is known of a time without snapshots; a day later, only the hour is left.
    assert advise(60, wait_ms=0) == (True, 0.5, None)
    assert advise(65, wait_ms=0) == (True, pytest.approx(9 / 13), None)
    day = 24 * 60
    assert advise(day + 3, wait_ms=40_000) == (False, 1.0, NOW + (day + 3) * _MINUTE)
    assert advise(day + 8, wait_ms=40_000)[1] == 0.5


def test_a_repeat_writes_nothing(lake: Recorder) -> None:
    rows = lake.write(NOW, [10.0])
    assert [step.advise_snapshot(rows, lake.policy)["advised"] for _ in range(2)] == [2, 0]


def test_a_fault_costs_the_advice_of_its_group_only(
    lake: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    build = rows_module.build_advice

    def fail(now: Any, *more: Any) -> Any:
        if "late" in now.members["group_id"].to_pylist():
            raise ValueError("no advice")
        return build(now, *more)

    monkeypatch.setattr(step, "build_advice", fail)
    assert step.advise_snapshot(lake.write(NOW, [10.0]), lake.policy) == {"advised": 1}
    assert "there is no advice for group late: no advice" in caplog.text
    monkeypatch.setattr(group_steps, "append_once", lambda *_: 1 / 0)
    assert step.advise_snapshot(lake.write(NOW + _MINUTE, [10.0]), lake.policy) == {"advised": 0}
