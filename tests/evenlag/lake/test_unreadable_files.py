"""Files and statistics that cannot be read: what is left out, and what still is an error."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import LakeError
from evenlag.lake.delta_log import forget_tables
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import GATE_RESULTS
from evenlag.lake.writer import append_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PLANS = ("a" * 64, "b" * 64, "c" * 64)
DAY = date(2026, 3, 1)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A table with a file for each plan."""
    for plan_id in PLANS:
        row = {
            "cluster": "c", "day": DAY, "snapshot_id": "s", "plan_id": plan_id, "group_id": "g",
            "gate": "complete", "passed": True, "message": "fine",
        }  # fmt: skip
        append_once(str(tmp_path), GATE_RESULTS, [row], None)
    return tmp_path


def edit_action(lake: Path, plan_id: str, *, month: str | None = str(DAY), **changes: str) -> dict[str, Any]:
    """Change how the log describes the file of a plan; returns the description before."""
    for commit in (lake / GATE_RESULTS.name / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").split("\n") if line]
        for action in actions:
            if plan_id in action.get("add", {}).get("stats", ""):
                before = action["add"]
                action["add"] = before | changes | {"partitionValues": {"cluster": "c", "month": month}}
                commit.write_text("\n".join(map(json.dumps, actions)) + "\n", encoding="utf-8")
                # A process that has read it does not read it again.
                forget_tables()
                return dict(before)
    raise LookupError(plan_id)


def read_plans(lake: Path, **options: Any) -> list[str]:
    rows = LakeReader(str(lake), **options).read(GATE_RESULTS, columns=["plan_id"])
    return sorted(rows["plan_id"].to_pylist())


def checked(lake: Path) -> tuple[list[str], list[str], set[str]]:
    """The plans of the rows that are read, of the files that cannot be, and of those that are elsewhere."""
    wanted = ("plan_id", "in", list(PLANS))
    found = LakeReader(str(lake)).read_checked(
        GATE_RESULTS, wanted, filters=[("cluster", "=", "c"), ("day", ">=", DAY)]
    )
    unreadable = found.unreadable["min.plan_id"].to_pylist() if found.unreadable.num_rows else []
    return sorted(found.rows["plan_id"].to_pylist()), unreadable, set(found.elsewhere)


def no_parquet(path: Path) -> None:
    path.write_bytes(b"PAR1 no more PAR1")


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def no_text(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(path).read()
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    pq.write_table(rows.set_column(rows.schema.get_field_index("message"), "message", text), path)


@pytest.mark.parametrize("damage", [no_parquet, missing, folder, no_text])
def test_one_file_that_cannot_be_read_hides_no_other(lake: Path, damage: Callable[[Path], None]) -> None:
    add = edit_action(lake, PLANS[1])
    damage(lake / GATE_RESULTS.name / add["path"])
    left = [PLANS[0], PLANS[2]]
    assert checked(lake) == (left, [PLANS[1]], set())
    if damage is not no_text:
        assert read_plans(lake, skip_unreadable=True) == left
        with pytest.raises(LakeError):
            read_plans(lake)


def test_a_file_that_the_log_has_no_more_is_an_error_of_the_read(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance has replaced it since the log was read: the next read finds the new one."""
    add = edit_action(lake, PLANS[1])
    data = LakeReader._dataset

    def replaced(self: LakeReader, *args: Any) -> Any:
        (lake / GATE_RESULTS.name / add["path"]).unlink(missing_ok=True)
        if add.pop("stats", None):
            edit_action(lake, PLANS[1], path="new.parquet")
        return data(self, *args)

    monkeypatch.setattr(LakeReader, "_dataset", replaced)
    with pytest.raises(LakeError, match=r"\.parquet"):
        checked(lake)


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize(
    "statistics",
    ["", "null", "[1]", "{", '{"numRecords": 1}{}', '{"numRecords": "1"}', '{"numRecords": NaN}'],
)
def test_statistics_that_are_none_are_left_out(lake: Path, statistics: str, has_checkpoint: bool) -> None:
    """The table has a column of truth values: deltalake does not open it as it is."""
    from deltalake import DeltaTable

    if has_checkpoint:
        DeltaTable(str(lake / GATE_RESULTS.name)).create_checkpoint()
        replace_in_checkpoint(lake / GATE_RESULTS.name / "_delta_log", PLANS[1], statistics)
    else:
        edit_action(lake, PLANS[1], stats=statistics)
    assert checked(lake) == (list(PLANS), [], set())
    assert read_plans(lake) == list(PLANS)


def replace_in_checkpoint(log: Path, plan_id: str, statistics: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (path,) = log.glob("*.checkpoint.parquet")
    table = pq.read_table(path)
    rows = table.to_pylist()
    for row in rows:
        if row["add"] and plan_id in row["add"]["stats"]:
            row["add"]["stats"] = statistics
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    for commit in log.glob("*.json"):
        commit.unlink()


def test_no_log_is_copied_when_the_storage_does_not_answer(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a storage does not answer is an OSError of deltalake."""
    import deltalake

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("Generic S3 error: Error performing GET")

    copied: list[object] = []
    forget_tables()
    monkeypatch.setattr(deltalake, "DeltaTable", unreachable)
    monkeypatch.setattr("evenlag.lake.reader.repaired_log", lambda *given: copied.append(given))
    with pytest.raises(LakeError, match="Generic S3 error"):
        read_plans(lake)
    assert not copied


def test_a_log_that_is_none_is_an_error(lake: Path) -> None:
    (lake / GATE_RESULTS.name / "_delta_log" / f"{2:020d}.json").write_text('{"add": {"pa', encoding="utf-8")
    forget_tables()
    with pytest.raises(LakeError):
        checked(lake)


@pytest.mark.parametrize("month", ["1999-01-01", None])
def test_a_file_in_another_month_is_named_by_the_log(lake: Path, month: str | None) -> None:
    edit_action(lake, PLANS[1], month=month)
    assert checked(lake) == ([PLANS[0], PLANS[2]], [], {PLANS[1]})


def test_a_file_of_other_days_is_named_by_the_log(lake: Path) -> None:
    stats = edit_action(lake, PLANS[1])["stats"]
    edit_action(lake, PLANS[1], stats=stats.replace(str(DAY), "1999-01-01"))
    assert checked(lake) == ([PLANS[0], PLANS[2]], [], {PLANS[1]})


def test_a_file_of_many_plans_names_none(lake: Path) -> None:
    """As an old month has them: that it may have rows of a plan is no reason to refuse it."""
    stats = edit_action(lake, PLANS[1])["stats"]
    edit_action(lake, PLANS[1], month="1999-01-01", stats=stats.replace(PLANS[1], "0" * 64, 1))
    assert checked(lake) == ([PLANS[0], PLANS[2]], [], set())
