"""The forecast of each snapshot in the lake: rates, seasons, and each row once, also after a repeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from evenlag.lag.forecast import STEPS
from evenlag.lag.forecast_rows import build_forecasts, with_forecasts
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import FORECASTS, HOURLY_RATES, LAG, MEMBERS, OFFSETS, SNAPSHOTS, SPEEDS
from evenlag.lake.writer import append_once
from evenlag.planning import forecast_snapshot as step
from evenlag.policy.loader import parse_policy
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, append_rows, arrow, marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import pyarrow as pa

    from evenlag.lake.tables import Table

POLICY = parse_policy(
    """
lake: /nowhere
clusters: {c: {bootstrap_servers: "localhost:9092"}}
groups:
  - {match: "*", back_off: {horizon_s: 1200}}
""",
    environ={},
).policy
_MINUTE = timedelta(minutes=1)


class _Reader(LakeReader):
    """Reads ``offsets`` of memory: only Spark writes this table."""

    offsets: ClassVar[dict[str, pa.Table]] = {}

    def read(self, table: Table, **more: Any) -> pa.Table:
        """Return the rows of one snapshot, or those of another table in the lake."""
        if table is not OFFSETS:
            return super().read(table, **more)
        (wanted,) = (value for name, _, value in more["filters"] if name == "snapshot_id")
        return self.offsets[wanted].select(list(more["columns"]))


@dataclass
class Recorder:
    """A lake whose snapshots are written and forecast one after the other."""

    root: Path

    def write(
        self,
        at: datetime,
        ends: Mapping[str, int],
        *,
        groups: Iterable[str] = "ab",
        topic_id: str = TOPIC_IDS["t"],
        points: list[dict[str, Any]] | None = None,
        lag: int | None = None,
        owner: str | None = None,
    ) -> SnapshotReader:
        """Write a snapshot in which each group reads the partitions `t-0` and so on, with these ends."""
        head: dict[str, Any] = {
            "snapshot_id": f"{at:%Y%m%dT%H%M%S}000Z-00000001",
            "day": at.date(),
        }
        where = [
            {**head, "topic_id": topic_id, "topic": "t", "partition": int(name), "end_offset": end}
            for name, end in ends.items()
        ]
        read = {"end_read_at": at, "read_at": at, "slot": at}
        row = marker() | head | {"slot": at, "end_read_at": at, "cluster": "c"}
        append_rows(self.root, SNAPSHOTS, [row])
        rows = SnapshotReader(self.reader, row)
        ends_read = [
            one | read | {"high_watermark": one["end_offset"], "interval_points": points} for one in where
        ]
        rows.keep(OFFSETS, arrow(OFFSETS, ends_read))
        of_group = read | {"status": "OK", "lag_records": lag, "owner_member_id": owner}
        rows.keep(LAG, arrow(LAG, [one | of_group | {"group_id": name} for name in groups for one in where]))
        rows.keep(MEMBERS, arrow(MEMBERS, [head | {"group_id": name, "member_id": owner} for name in groups]))
        _Reader.offsets[rows.snapshot_id] = rows.rows(OFFSETS)
        return rows

    @property
    def reader(self) -> LakeReader:
        return _Reader(str(self.root))

    def forecast(self, at: datetime, ends: Mapping[str, int], **more: Any) -> list[dict[str, Any]]:
        """Write a snapshot and return the rows of its forecasts."""
        rows = self.write(at, ends, **more)
        assert step.forecast_snapshot(rows, POLICY)["forecasts"]
        found: list[dict[str, Any]] = (
            self.reader.read(FORECASTS, filters=rows.filters).sort_by("group_id").to_pylist()
        )
        return found

    def hourly(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.reader.read(
            HOURLY_RATES, filters=[("cluster", "=", "c")]
        ).to_pylist()
        return found


@pytest.fixture
def lake(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def test_rates_follow_from_snapshot_to_snapshot(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100, "1": 7})
    found = lake.forecast(NOW + _MINUTE, {"0": 220, "1": 7})
    assert [row["group_id"] for row in found] == ["a", "b"]
    for row in found:
        assert row["model"] == "last_rate"
        assert row["horizon_s"] == 1_200
        assert [each["forecast_records_per_s"] for each in row["partitions"]] == [
            [2.0] * STEPS,
            [0.0] * STEPS,
        ]
        assert [each["last_records_per_s"] for each in row["partitions"]] == [2.0, 0.0]
    # One snapshot later the forecast of 120 records was 60 too many.
    found = lake.forecast(NOW + 2 * _MINUTE, {"0": 280, "1": 7})
    assert found[0]["interval_errors"][0] == {"records": 60.0, "of_last_rate": 60.0}


def test_the_newest_part_of_an_interval_tells_the_rate(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100})
    lake.forecast(NOW + _MINUTE, {"0": 160})
    # Of 600 records, 60 came in the last 12 seconds.
    points = [{"at": NOW + _MINUTE + timedelta(seconds=12 * part), "offset": 700} for part in (1, 2, 3, 4)]
    found = lake.forecast(NOW + 2 * _MINUTE, {"0": 760}, points=points)
    for row in found:
        assert row["partitions"][0]["last_records_per_s"] == 5.0
        assert row["partitions"][0]["smoothed_records_per_s"] == pytest.approx(
            1.0 + 9.0 * (1 - np.exp(-60 / 600))
        )


def test_the_next_snapshot_expects_what_the_newest_forecasts_say(lake: Recorder) -> None:
    assert step.read_expected(lake.reader, "c") is None
    before = datetime.now(UTC).replace(microsecond=0) - 2 * _MINUTE
    lake.forecast(before, {"0": 100, "1": 7})
    lake.forecast(before + _MINUTE, {"0": 220, "1": 7})
    expected = step.read_expected(lake.reader, "c")
    assert expected is not None
    names = ("topic", "partition", "read_at", "end_offset", "last_records_per_s")
    assert [tuple(row[name] for name in names) for row in expected.to_pylist()] == [
        ("t", 0, before + _MINUTE, 220, 2.0),
        ("t", 1, before + _MINUTE, 7, 0.0),
    ]


def test_a_topic_that_is_created_again_begins_anew(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100})
    lake.forecast(NOW + _MINUTE, {"0": 220})
    (row, _) = lake.forecast(NOW + 2 * _MINUTE, {"0": 5_000}, topic_id=TOPIC_IDS["u"])
    assert row["partitions"][0]["last_records_per_s"] is None
    assert row["partitions"][0]["end_offset"] == 5_000


def test_groups_and_partitions_may_come_and_go(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100, "1": 0}, groups="bc")
    lake.forecast(NOW + _MINUTE, {"0": 160, "1": 60, "2": 5}, groups="abc")
    found = lake.forecast(NOW + 2 * _MINUTE, {"1": 180, "2": 65}, groups="ac")
    assert [(row["group_id"], [one["last_records_per_s"] for one in row["partitions"]]) for row in found] == [
        ("a", [2.0, 1.0]),
        ("c", [2.0, 1.0]),
    ]


def test_a_repeat_writes_nothing(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100})
    rows = lake.write(NOW + _MINUTE, {"0": 160})
    assert step.forecast_snapshot(rows, POLICY) == {"forecasts": 2}
    assert step.forecast_snapshot(rows, POLICY) == {"forecasts": 0}
    assert lake.reader.count(FORECASTS, filters=rows.filters) == 2


def test_a_killed_step_is_completed(lake: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.forecast(NOW, {"0": 100})
    rows = lake.write(NOW + _MINUTE, {"0": 160})
    monkeypatch.setattr(rows, "group_batches", lambda wanted: iter([[name] for name in sorted(wanted)]))
    build = build_forecasts

    def kill_second(lag: Any, *others: Any) -> Any:
        if lag["group_id"][0].as_py() == "b":
            raise KeyboardInterrupt
        return build(lag, *others)

    monkeypatch.setattr(step, "build_forecasts", kill_second)
    with pytest.raises(KeyboardInterrupt):
        step.forecast_snapshot(rows, POLICY)
    monkeypatch.setattr(step, "build_forecasts", build)
    assert step.forecast_snapshot(rows, POLICY) == {"forecasts": 1}
    found = lake.reader.read(FORECASTS, filters=rows.filters).to_pylist()
    assert sorted(row["group_id"] for row in found) == ["a", "b"]
    assert all(row["partitions"][0]["last_records_per_s"] == 1.0 for row in found)


def test_a_fault_costs_neither_the_snapshot_nor_the_step(
    lake: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other groups are forecast."""
    rows = lake.write(NOW, {"0": 100}, groups="abc")

    def fault(lag: Any, *others: Any) -> Any:
        if "b" in lag["group_id"].to_pylist():
            raise ZeroDivisionError("division by zero")
        return build_forecasts(lag, *others)

    monkeypatch.setattr(step, "build_forecasts", fault)
    assert step.forecast_snapshot(rows, POLICY) == {"forecasts": 2}
    assert "the arrivals of group b were not forecast: division by zero" in caplog.text
    monkeypatch.setattr(step, "_read_hours", lambda *_: 1 / 0)
    assert step.forecast_snapshot(lake.write(NOW + _MINUTE, {"0": 160}), POLICY) == {"forecasts": 0}


def test_the_speeds_of_a_snapshot_are_used(lake: Recorder) -> None:
    """`m` has processed 1 record/s lately, but is known to process 5 when it has records."""

    def total(speed: float | None) -> float:
        known = {"identity": 0, "member_id": "m", "is_bound": False, "confidence": 0.9, "busy_s": 90.0}
        group = str(speed)
        for number, lag in enumerate((6_000, 6_000)):
            rows = lake.write(NOW + number * _MINUTE, {"0": 60 * number}, groups=[group], lag=lag, owner="m")
            head = {
                name: rows.marker[name] for name in ("cluster", "day", "snapshot_id", "slot", "end_read_at")
            }
            members = [{**known, "at_least_records_per_s": 0.0, "speed_records_per_s": speed}]
            row = head | {"group_id": group, "read_at": None, "members": members, "partitions": []}
            append_once(str(lake.root), SPEEDS, [row] if speed else [], None)
            assert step.forecast_snapshot(rows, POLICY) == {"forecasts": 1}
        of_group: list[Any] = [*rows.filters, ("group_id", "=", group)]
        (found,) = lake.reader.read(FORECASTS, filters=of_group).to_pylist()
        predicted: float = _prediction(found, "total_lag_records", horizon=False)["predicted"]
        return predicted

    assert [total(None), total(5.0)] == pytest.approx([6_000.0, 6_000.0 + 60 - 300])


def test_an_hours_rates_are_written_once_by_the_first_snapshot_after_it(lake: Recorder) -> None:
    # From 11:58 to 12:59 by the snapshots nearest to 12:00 and 13:00, 61 minutes apart.
    for minutes, end in ((-2, 0), (20, 1_000), (59, 3_660), (64, 9_999)):
        lake.forecast(NOW + minutes * _MINUTE, {"0": end})
    lake.forecast(NOW + 70 * _MINUTE, {"0": 10_000})
    (row,) = lake.hourly()
    assert row["hour"] == NOW
    assert row["arrival_rate_records_per_s"] == 1.0
    assert (row["from_snapshot_id"][:13], row["to_snapshot_id"][:13]) == ("20260301T1158", "20260301T1259")


def test_an_hour_without_snapshots_near_its_ends_has_no_rates(lake: Recorder) -> None:
    for minutes, end in ((-40, 0), (35, 1_000), (95, 3_660)):
        lake.forecast(NOW + minutes * _MINUTE, {"0": end})
    assert lake.hourly() == []


def test_a_log_that_lost_records_has_no_hourly_rate(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100, "1": 100})
    lake.forecast(NOW + 60 * _MINUTE, {"0": 3_700, "1": 40})
    assert [(row["partition"], row["arrival_rate_records_per_s"]) for row in lake.hourly()] == [(0, 1.0)]


def test_the_same_hour_of_yesterday_is_forecast(lake: Recorder) -> None:
    # Each odd hour has 8 records per second, each even one 2, yesterday and today.
    hours = [NOW - timedelta(hours=24 - number) for number in range(-2, 5)]
    rate = {hour.hour: 8 if hour.hour % 2 else 2 for hour in hours}
    one = {"cluster": "c", "topic_id": TOPIC_IDS["t"], "topic": "t", "partition": 0}
    ids = {"from_snapshot_id": "s-1", "to_snapshot_id": "s-2"}
    rows = [
        one | ids | {"day": hour.date(), "hour": hour, "arrival_rate_records_per_s": rate[hour.hour]}
        for hour in hours
    ]
    append_once(str(lake.root), HOURLY_RATES, rows, None)
    end, found = 0, []
    for number in range(18):
        at = NOW + 10 * number * _MINUTE
        found = lake.forecast(at, {"0": end}, groups="a")
        end += 600 * rate[at.hour]
    assert found[0]["model"] == "same_hour_yesterday"
    # The last snapshot is at 14:50, and its horizon of twenty minutes is half in each hour.
    assert found[0]["partitions"][0]["forecast_records_per_s"] == [2.0] * 3 + [8.0] * 3


def test_lag_gets_its_forecasts(lake: Recorder) -> None:
    lake.forecast(NOW, {"0": 100, "1": 7})
    lake.forecast(NOW + _MINUTE, {"0": 220, "1": 7}, groups="b")
    rows = lake.write(NOW + 2 * _MINUTE, {"1": 7, "0": 220, "2": 9}, groups="ba")
    filters = [("cluster", "=", "c"), ("read_at", "=", NOW + _MINUTE)]
    found = with_forecasts(rows.rows(LAG), lake.reader.read(FORECASTS, filters=filters))
    columns = ("group_id", "partition", "forecast_records_per_s")
    by_place = {
        (group, one): rate
        for group, one, rate in zip(*(found[name].to_pylist() for name in columns), strict=True)
    }
    assert by_place == {
        **{("a", one): None for one in (0, 1, 2)},
        ("b", 0): [2.0] * STEPS,
        ("b", 1): [0.0] * STEPS,
        ("b", 2): None,
    }


def test_many_groups_in_batches_are_as_in_one(lake: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.random.default_rng(1)
    names = "abcdefghij"
    ends = np.cumsum(chance.poisson(600, (4, 3)), axis=0)
    for number, end in enumerate(ends[:3]):
        lake.forecast(
            NOW + number * _MINUTE, {str(place): int(one) for place, one in enumerate(end)}, groups=names
        )
    rows = lake.write(
        NOW + 3 * _MINUTE, {str(place): int(one) for place, one in enumerate(ends[3])}, groups=names
    )
    monkeypatch.setattr(rows, "group_batches", lambda wanted: iter([sorted(wanted)[:3], sorted(wanted)[3:]]))
    assert step.forecast_snapshot(rows, POLICY) == {"forecasts": 10}
    found = lake.reader.read(FORECASTS, filters=rows.filters).sort_by("group_id").to_pylist()
    assert [row["group_id"] for row in found] == list(names)
    # All groups read the same partitions.
    assert all(row["partitions"] == found[0]["partitions"] for row in found)


def _prediction(row: dict[str, Any], measure: str, *, horizon: bool) -> dict[str, Any]:
    (found,) = (
        one for one in row["predictions"] if one["measure"] == measure and one["is_horizon"] == horizon
    )
    return dict(found)


def test_the_next_snapshots_score_predictions(lake: Recorder) -> None:
    # Each minute 600 records come and 300 are processed; the horizon is twenty minutes.
    rows: list[dict[str, Any]] = []
    for number in range(26):
        more = {"lag": 300 * number, "owner": "m-1" if number < 25 else "m-2"}
        (row,) = lake.forecast(NOW + number * _MINUTE, {"0": 600 * number}, groups="a", **more)
        rows.append(row)
    first = _prediction(rows[1], "total_lag_records", horizon=False)
    assert (first["predicted"], first["ahead_s"], first["lower"]) == (600.0, 60.0, None)
    scored = _prediction(rows[7], "max_member_lag_records", horizon=False)
    assert (scored["scored"], scored["actual"], scored["held"]) == (2_100.0, 2_100.0, True)
    # Made by the first snapshot that knew rates, and scored twenty minutes later.
    assert [_prediction(row, "total_lag_records", horizon=True)["actual"] for row in rows[:20]] == [None] * 20
    late = [_prediction(row, "total_lag_records", horizon=True) for row in rows[20:25]]
    assert [one["actual"] for one in late if one["actual"] is not None] == [
        6_000.0 if late[0]["actual"] else 6_300.0
    ]
    # With another owner, nothing that was predicted for the first one is scored.
    assert all(one["actual"] is None for one in rows[25]["predictions"])


def test_nothing_is_predicted_of_lag_that_is_not_known(lake: Recorder) -> None:
    for number in range(3):
        (row,) = lake.forecast(NOW + number * _MINUTE, {"0": 600 * number}, groups="a")
    assert all(one["predicted"] is None for one in row["predictions"])
    assert row["partitions"][0]["forecast_records_per_s"] == [10.0] * STEPS
