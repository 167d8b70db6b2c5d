"""The speeds of each snapshot in the lake: by journals, and each row once, also after a repeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from evenlag.lag.speed_rows import build_speeds, with_costs, with_speeds
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import SnapshotReader
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, SNAPSHOTS, SPEEDS
from evenlag.lake.upkeep.erasure import Erasure
from evenlag.planning import group_steps
from evenlag.planning import speed_snapshot as step
from tests.support.each import for_each
from tests.support.lakes.snapshots import NOW, TOPIC_IDS, append_rows, arrow, marker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from evenlag.lake.tables import Table

_MINUTE = timedelta(minutes=1)
FAR = 1_000_000
# Of each partition: owner, committed offset and lag.
Partitions = dict[int, tuple[str | None, int | None, int | None]]
HOSTILE = 'x"\u202e\x00<b>/🙂' + "n" * 200


class _Reader(LakeReader):
    """Reads the tables of memory that only Spark writes."""

    kept: ClassVar[dict[tuple[str, str], pa.Table]] = {}

    def read(self, table: Table, **more: Any) -> pa.Table:
        """Return the rows of one snapshot's groups, or those of another table in the lake."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = {name: value for name, _, value in more["filters"]}
        found = self.kept.get((table.name, wanted.get("snapshot_id", "")))
        if found is None:
            return super().read(table, **more)
        chosen = pc.is_in(found["group_id"], pa.array(wanted["group_id"], pa.string()))
        return found.filter(chosen).select(list(more["columns"]))


@dataclass
class Recorder:
    """A lake whose snapshots are written and measured one after the other."""

    root: Path

    def write(
        self,
        at: datetime,
        partitions: Partitions,
        members: Mapping[str, Mapping[str, Any]],
        *,
        groups: str = "a",
        more: Mapping[str, Any] | None = None,
        read_at: datetime | None = None,
    ) -> SnapshotReader:
        """Write a snapshot in which each group has the same members and partitions."""
        head: dict[str, Any] = {"snapshot_id": f"{at:%Y%m%dT%H%M%S}000Z-00000001", "day": at.date()}
        row = marker() | head | {"slot": at, "end_read_at": at, "cluster": "c"}
        append_rows(self.root, SNAPSHOTS, [row])
        lag = [
            {"topic_id": TOPIC_IDS["t"], "topic": "t", "partition": number, "status": "OK"}
            | {"owner_member_id": owner, "committed_offset": committed, "lag_records": records}
            | dict(more or {})
            for number, (owner, committed, records) in partitions.items()
        ]
        people = [{"member_id": name, **each} for name, each in members.items()]
        rows = SnapshotReader(_Reader(str(self.root)), row)
        for table, listed in (
            (LAG, lag),
            (MEMBERS, people),
            (COMMITS, [each | {"read_at": read_at or at} for each in lag]),
        ):
            of_groups = arrow(table, [head | each | {"group_id": name} for name in groups for each in listed])
            rows.keep(table, of_groups)
            _Reader.kept[table.name, rows.snapshot_id] = of_groups
        return rows

    def measure(
        self, at: datetime, partitions: Partitions, members: Mapping[str, Mapping[str, Any]], **more: Any
    ) -> list[dict[str, Any]]:
        """Write a snapshot and return its rows of ``speeds``."""
        rows = self.write(at, partitions, members, **more)
        step.measure_speeds(rows)
        found: list[dict[str, Any]] = self.read(rows).to_pylist()
        return found

    def read(self, rows: SnapshotReader) -> pa.Table:
        return rows.reader.read(SPEEDS, filters=rows.filters).sort_by("group_id")


@pytest.fixture
def lake(tmp_path: Path) -> Recorder:
    _Reader.kept.clear()
    return Recorder(tmp_path)


def busy(*owners: tuple[str, int]) -> Partitions:
    """Partitions far behind with their owners and committed offsets."""
    return {number: (owner, committed, FAR) for number, (owner, committed) in enumerate(owners)}


def static(*names: str) -> dict[str, dict[str, Any]]:
    """Members with instance ids: `m-a` is the instance `a`."""
    return {f"m-{name}": {"group_instance_id": name, "client_id": "app"} for name in names}


def speeds_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Speeds by member id, without errors of rounding."""
    speeds = {each["member_id"]: each["speed_records_per_s"] for each in row["members"]}
    return {name: None if speed is None else round(speed, 6) for name, speed in speeds.items()}


def test_the_speed_of_a_busy_member_is_what_it_commits(lake: Recorder) -> None:
    (row,) = lake.measure(NOW, busy(("m-a", 0), ("m-b", 50)), static("a", "b"))
    assert speeds_of(row) == {"m-a": None, "m-b": None}
    (row,) = lake.measure(NOW + _MINUTE, busy(("m-a", 6_000), ("m-b", 6_050)), static("a", "b"))
    assert speeds_of(row) == {"m-a": 100.0, "m-b": 100.0}
    assert [each["group_instance_id"] for each in row["members"]] == ["a", "b"]
    assert [each["client_id"] for each in row["members"]] == [None, None]
    assert [each["is_bound"] for each in row["members"]] == [False, False]
    assert [each["processed"] for each in row["partitions"]] == [
        [{"identity": 0, "records": 6_000.0}],
        [{"identity": 1, "records": 6_000.0}],
    ]


def test_the_time_between_is_that_of_the_groups_commits(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"), read_at=NOW - timedelta(seconds=20))
    (row,) = lake.measure(NOW + _MINUTE, busy(("m-a", 8_000)), static("a"))
    assert speeds_of(row) == {"m-a": 100.0}


def test_a_member_that_keeps_up_has_a_lower_bound(lake: Recorder) -> None:
    lake.measure(NOW, {0: ("m-a", 0, 10)}, static("a"))
    (row,) = lake.measure(NOW + _MINUTE, {0: ("m-a", 6_500, 10)}, static("a"))
    (member,) = row["members"]
    assert (member["speed_records_per_s"], member["is_bound"]) == (pytest.approx(100.0), True)
    assert member["confidence"] == 0.0
    assert row["partitions"] == []


@for_each(
    [
        ("another member joined", {"members": static("a", "b", "c")}),
        ("a member left", {"members": static("a")}),
        ("a member restarted", {"members": {"m-x": {"group_instance_id": "a"}, **static("b")}}),
        ("partitions changed", {"partitions": busy(("m-b", 6_000), ("m-a", 6_000))}),
        ("a partition has no owner", {"partitions": busy(("m-a", 6_000)) | {1: (None, 6_000, FAR)}}),
        ("a partition is new", {"partitions": busy(("m-a", 6_000), ("m-b", 6_000), ("m-b", 10))}),
        ("a partition is gone", {"partitions": busy(("m-a", 6_000))}),
        ("the topic was created again", {"more": {"topic_id": TOPIC_IDS["u"]}}),
        ("an owner is doubtful", {"more": {"owner_problem": "owned by 2 members"}}),
        ("hours passed", {"at": NOW + 90 * _MINUTE}),
        ("no time passed", {"read_at": NOW}),
    ],
    name=lambda case: case[0],
)
def test_an_interval_is_left_out(case: tuple[str, dict[str, Any]], tmp_path_factory: Any) -> None:
    lake = Recorder(tmp_path_factory.mktemp("lake"))
    partitions = busy(("m-a", 0), ("m-b", 0))
    lake.measure(NOW, partitions, static("a", "b"))
    given: dict[str, Any] = {
        "partitions": busy(("m-a", 6_000), ("m-b", 6_000)),
        "members": static("a", "b"),
    } | case[1]
    at = given.pop("at", NOW + _MINUTE)
    (row,) = lake.measure(at, given.pop("partitions"), given.pop("members"), **given)
    assert set(speeds_of(row).values()) == {None}


COOPERATIVE = {"assignor": "cooperative-sticky", "group_type": "classic"}


@for_each(
    [
        ("a partition moved", COOPERATIVE, busy(("m-a", 6_000), ("m-c", 6_000), ("m-c", 6_000)), {"m-a"}),
        ("a partition moved", {"group_type": "consumer", "assignor": "uniform"},
         busy(("m-a", 6_000), ("m-c", 6_000), ("m-c", 6_000)), {"m-a"}),
        ("a partition is free", COOPERATIVE, busy(("m-a", 6_000), ("m-b", 6_000)) | {2: (None, 9, FAR)},
         {"m-a", "m-b"}),
        ("a partition is new", COOPERATIVE, busy(*[(name, 6_000) for name in ("m-a", "m-b", "m-c", "m-b")]),
         {"m-a", "m-c"}),
        ("a partition is gone", COOPERATIVE, busy(("m-a", 6_000), ("m-b", 6_000)), {"m-a", "m-b"}),
        ("an eager rebalance", {"assignor": "range", "group_type": "classic"},
         busy(("m-a", 6_000), ("m-c", 6_000), ("m-c", 6_000)), set()),
        ("an unknown assignor", {}, busy(("m-a", 6_000), ("m-c", 6_000), ("m-c", 6_000)), set()),
    ],
    name=lambda case: f"{case[0]}, {case[1].get('assignor')}",
)  # fmt: skip
def test_a_cooperative_rebalance_leaves_out_the_members_whose_partitions_changed(
    case: tuple[str, dict[str, str], Partitions, set[str]], tmp_path_factory: Any
) -> None:
    _, kind, partitions, counted = case
    lake = Recorder(tmp_path_factory.mktemp("lake"))
    members = {name: each | kind for name, each in static("a", "b", "c").items()}
    lake.measure(NOW, busy(("m-a", 0), ("m-b", 0), ("m-c", 0)), members)
    (row,) = lake.measure(NOW + _MINUTE, partitions, members)
    assert {each["member_id"] for each in row["members"] if each["busy_s"]} == counted


@for_each(
    [
        ("a reset", (("m-a", 5, FAR), {})),
        ("no commit", (("m-a", None, FAR), {})),
        ("an unknown lag", (("m-a", 6_000, None), {})),
        ("lost records", (("m-a", 6_000, FAR), {"status": "DATA_LOSS"})),
        ("a bound of the lag", (("m-a", 6_000, FAR), {"lag_bound": "LOWER"})),
    ],
    name=lambda case: case[0],
)
def test_a_member_that_is_partly_unknown_keeps_a_lower_bound(case: Any, tmp_path_factory: Any) -> None:
    lake = Recorder(tmp_path_factory.mktemp("lake"))
    lake.measure(NOW, busy(("m-a", 100), ("m-a", 0)), static("a"))
    partition, more = case[1]
    rows = lake.write(NOW + _MINUTE, busy(("m-a", 6_600), ("m-a", 0)), static("a"))
    listed = rows.rows(LAG).to_pylist()
    listed[1] |= dict(zip(("owner_member_id", "committed_offset", "lag_records"), partition, strict=True))
    listed[1] |= more
    if partition[1] == 5:
        listed[1]["committed_offset"] = -1
    rows.keep(LAG, arrow(LAG, listed))
    step.measure_speeds(rows)
    (member,) = lake.read(rows).to_pylist()[0]["members"]
    assert (member["speed_records_per_s"], member["is_bound"]) == (pytest.approx(100.0), True)


def test_members_are_known_by_instance_then_by_a_client_id_of_their_own(lake: Recorder) -> None:
    members = {
        "m-1": {"group_instance_id": "i", "client_id": "app"},
        "m-2": {"client_id": "own"},
        "m-3": {"client_id": "pool"},
        "m-4": {"client_id": "pool"},
        "m-5": {"client_id": ""},
        "m-6": {},
    }
    names = list(members)
    lake.measure(NOW, busy(*((name, 0) for name in names)), members)
    done = [6_000, 12_000, 18_000, 18_000, 6_000, 6_000]
    (row,) = lake.measure(NOW + _MINUTE, busy(*zip(names, done, strict=True)), members)
    identities = {
        each["member_id"]: (each["group_instance_id"], each["client_id"]) for each in row["members"]
    }
    assert identities == {
        "m-1": ("i", None),
        "m-2": (None, "own"),
        **dict.fromkeys(("m-3", "m-4", "m-5", "m-6"), (None, None)),
    }
    found = speeds_of(row)
    # The others together: 48,000 records in four times 60 s. All medians are 200.
    assert found["m-3"] == found["m-4"] == found["m-5"] == found["m-6"] == pytest.approx(200.0)
    assert found["m-1"] < found["m-2"] == pytest.approx(200.0)


def test_what_is_known_of_an_instance_outlives_its_member(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0), ("m-b", 0)), static("a", "b"))
    lake.measure(NOW + _MINUTE, busy(("m-a", 6_000), ("m-b", 24_000)), static("a", "b"))
    (row,) = lake.measure(NOW + 2 * _MINUTE, busy(("m-a", 7_000), ("m-a", 24_000)), static("a"))
    away = [each for each in row["members"] if each["member_id"] is None]
    assert [each["group_instance_id"] for each in away] == ["b"]
    back = {"m-new": {"group_instance_id": "b"}, **static("a")}
    (row,) = lake.measure(NOW + 3 * _MINUTE, busy(("m-a", 7_000), ("m-new", 24_000)), back)
    found = speeds_of(row)
    assert found["m-new"] / found["m-a"] > 3
    assert len(row["members"]) == 2


def test_a_group_that_was_not_read_keeps_what_is_known(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"))
    lake.measure(NOW + _MINUTE, busy(("m-a", 6_000)), static("a"))
    (row,) = lake.measure(NOW + 2 * _MINUTE, {}, {"m-a": {"error": "not described"}})
    assert speeds_of(row) == {"m-a": 100.0}
    (row,) = lake.measure(NOW + 3 * _MINUTE, busy(("m-a", 90_000)), static("a"))
    assert speeds_of(row) == {"m-a": pytest.approx(100.0)}


def test_a_group_whose_members_have_left_keeps_what_is_known(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"))
    lake.measure(NOW + _MINUTE, busy(("m-a", 6_000)), static("a"))
    # One row of a group, which names no member.
    nobody: Any = {None: {}}
    (row,) = lake.measure(NOW + 2 * _MINUTE, {0: (None, 6_000, 0)}, nobody)
    (known,) = row["members"]
    assert (known["member_id"], known["group_instance_id"]) == (None, "a")
    assert known["speed_records_per_s"] == pytest.approx(100.0)


def test_members_that_keep_up_have_the_speeds_that_they_report(lake: Recorder) -> None:
    """Without a backlog 7,200 records in 36 busy seconds; a snapshot without reports adds no speed."""
    since = NOW - timedelta(days=1)

    def measure(minute: int, committed: int, busy_ms: int | None) -> dict[str, Any]:
        reports = {"busy_ms": busy_ms, "busy_since": None if busy_ms is None else since}
        partitions: Partitions = {0: ("m-a", committed, 0), 1: ("m-b", committed, 0)}
        (row,) = lake.measure(NOW + minute * _MINUTE, partitions, static("a", "b"), more=reports)
        return row

    measure(0, 0, 1_000)
    row = measure(1, 7_200, 37_000)
    assert speeds_of(row) == {"m-a": 200.0, "m-b": 200.0}
    assert [each["is_bound"] for each in row["members"]] == [False, False]
    row = measure(2, 8_000, None)
    assert speeds_of(row) == {"m-a": 200.0, "m-b": 200.0}
    row = measure(3, 9_000, 40_000)
    assert speeds_of(row) == {"m-a": 200.0, "m-b": 200.0}


def test_a_repeat_writes_nothing(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"), groups="ab")
    rows = lake.write(NOW + _MINUTE, busy(("m-a", 6_000)), static("a"), groups="ab")
    assert step.measure_speeds(rows) == {"speeds": 2}
    assert step.measure_speeds(rows) == {"speeds": 0}
    assert lake.read(rows).num_rows == 2


def test_a_killed_step_is_completed(lake: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"), groups="ab")
    rows = lake.write(NOW + _MINUTE, busy(("m-a", 6_000)), static("a"), groups="ab")
    monkeypatch.setattr(rows, "group_batches", lambda wanted: iter([[name] for name in sorted(wanted)]))

    def kill_second(now: Any, *others: Any) -> Any:
        if now.lag["group_id"][0].as_py() == "b":
            raise KeyboardInterrupt
        return build_speeds(now, *others)

    monkeypatch.setattr(step, "build_speeds", kill_second)
    with pytest.raises(KeyboardInterrupt):
        step.measure_speeds(rows)
    monkeypatch.setattr(step, "build_speeds", build_speeds)
    assert step.measure_speeds(rows) == {"speeds": 1}
    found = lake.read(rows).to_pylist()
    assert [(row["group_id"], speeds_of(row)) for row in found] == [
        ("a", {"m-a": 100.0}),
        ("b", {"m-a": 100.0}),
    ]


def test_a_fault_stays_with_its_group(
    lake: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"), groups="abc")

    def fail(now: Any, *others: Any) -> Any:
        if "b" in now.lag["group_id"].to_pylist():
            raise ValueError("no speed")
        return build_speeds(now, *others)

    monkeypatch.setattr(step, "build_speeds", fail)
    found = lake.measure(NOW + _MINUTE, busy(("m-a", 6_000)), static("a"), groups="abc")
    assert [row["group_id"] for row in found] == ["a", "c"]
    assert "the speeds of group b were not measured: no speed" in caplog.text


def test_a_fault_costs_neither_the_snapshot_nor_the_step(
    lake: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_steps, "append_once", lambda *_: 1 / 0)
    assert step.measure_speeds(lake.write(NOW, busy(("m-a", 0)), static("a"))) == {"speeds": 0}
    assert "were not measured: division by zero" in caplog.text


def test_hostile_names_are_only_names(lake: Recorder) -> None:
    members = {HOSTILE: {"client_id": HOSTILE}, HOSTILE + "2": {"group_instance_id": HOSTILE}}
    lake.measure(NOW, busy((HOSTILE, 0), (HOSTILE + "2", 0)), members)
    (row,) = lake.measure(NOW + _MINUTE, busy((HOSTILE, 6_000), (HOSTILE + "2", 6_000)), members)
    assert speeds_of(row) == {HOSTILE: 100.0, HOSTILE + "2": 100.0}


def test_an_erased_member_has_no_name_in_the_rows(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0)), {"m-a": {"client_id": "alice"}})
    rows = lake.write(NOW + _MINUTE, busy(("m-a", 6_000)), {"m-a": {"client_id": "alice"}})
    step.measure_speeds(rows)
    erasure = Erasure("alice", is_group=False)
    (batch,) = lake.read(rows).to_batches()
    assert erasure.count(batch, SPEEDS) == 1
    (erased,) = erasure.erase([batch], SPEEDS)
    assert "alice" not in str(erased.to_pylist())


def test_members_and_partitions_get_their_columns(lake: Recorder) -> None:
    lake.measure(NOW, busy(("m-a", 0)), static("a"), groups="ab")
    rows = lake.write(NOW + _MINUTE, busy(("m-a", 6_000)), static("a"), groups="ab")
    step.measure_speeds(rows)
    speeds = lake.read(rows).to_pylist()
    speeds[0]["partitions"][0]["cost"] = 2.5
    found = arrow(SPEEDS, [speeds[0]])
    people = with_speeds(rows.rows(MEMBERS), found).to_pylist()
    columns = ("group_id", "speed_records_per_s", "speed_is_bound", "speed_confidence")
    assert [tuple(each[name] for name in columns) for each in people] == [
        ("a", pytest.approx(100.0), False, 0.5),
        ("b", None, None, None),
    ]
    costs = with_costs(rows.rows(LAG), found).to_pylist()
    assert [(each["group_id"], each["cost"]) for each in costs] == [("a", 2.5), ("b", None)]


def test_groups_in_batches_are_as_in_one(lake: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "abcdefg"
    for number in range(3):
        rows = lake.write(
            NOW + number * _MINUTE,
            busy(("m-a", 6_000 * number), ("m-b", 9_000 * number)),
            static("a", "b"),
            groups=names,
        )
        parts: Sequence[list[str]] = [list(names[:3]), list(names[3:])]
        monkeypatch.setattr(rows, "group_batches", lambda _, parts=parts: iter(parts))
        assert step.measure_speeds(rows) == {"speeds": 7}
    found = lake.read(rows).to_pylist()
    assert [row["group_id"] for row in found] == list(names)
    assert all(row["members"] == found[0]["members"] for row in found)
