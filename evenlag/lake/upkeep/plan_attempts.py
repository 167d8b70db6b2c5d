"""Removes what development versions left in ``plan_assignments``: partitions that a killed attempt wrote.

These versions wrote the partitions of a plan again after a kill, each time with the id of the attempt in the
column ``attempt_id``, and the plan's head named the attempt that counts. Now they are written once, and no
reader knows of attempts. To be deleted when no lake is that old (ADR 102).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from evenlag.lake.delta_log import open_log, read_actions
from evenlag.lake.tables import PLAN_ASSIGNMENTS, PLANS
from evenlag.lake.upkeep.direct_tables import DirectUpkeep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import date

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

_ATTEMPT: Final = "attempt_id"
_NULL_COUNT: Final = f"null_count.{_ATTEMPT}"
_TARGET_BYTES: Final = 64 * 1024**2

# A cluster, and the first and last day of its rows in one month.
Part = tuple[str, "date", "date"]


def find_attempts(reader: LakeReader) -> list[Part]:
    """Find the months whose rows name attempts, by the files' statistics; none after their removal."""
    import pyarrow.compute as pc

    delta = open_log(reader.paths, PLAN_ASSIGNMENTS)
    if delta is None:
        return []
    files = read_actions(delta, reader.paths, PLAN_ASSIGNMENTS)
    if _NULL_COUNT not in files.column_names:
        return []
    files = files.filter(pc.less(files[_NULL_COUNT], files["num_records"]))
    parts = files.group_by(["partition.cluster", "partition.month"]).aggregate(
        [("min.day", "min"), ("max.day", "max")]
    )
    names = ("partition.cluster", "min.day_min", "max.day_max")
    return sorted(zip(*(parts[name].to_pylist() for name in names), strict=True))


def remove_attempts(reader: LakeReader, part: Part) -> None:
    """Remove the rows of attempts that do not count, and the names of those that do."""
    cluster, first, last = part
    filters: list[Filter] = [("cluster", "=", cluster), ("day", ">=", first), ("day", "<=", last)]
    heads = reader.read(PLANS, columns=["plan_id", _ATTEMPT], filters=filters)
    named = dict(zip(*(column.to_pylist() for column in heads.columns), strict=True))

    written = {
        text
        for batch in reader.stream(PLAN_ASSIGNMENTS, filters)
        for text in _attempts(batch).unique().to_pylist()
    }
    dropped = written - _counting(written, named)

    def change(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        unwanted = pa.array(sorted(dropped), pa.string())
        for batch in batches:
            kept = batch.filter(pc.invert(pc.is_in(_attempts(batch), unwanted)))
            place = kept.schema.get_field_index(_ATTEMPT)
            yield kept.set_column(place, kept.schema.field(place), pa.nulls(kept.num_rows, pa.string()))

    upkeep = DirectUpkeep(reader.paths.root, PLAN_ASSIGNMENTS)
    upkeep.rewrite(cluster, (first, last), _TARGET_BYTES, change)


def _attempts(batch: pa.RecordBatch) -> pa.Array:
    """The plan of each row, and the attempt, if it has one."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(batch["plan_id"], batch[_ATTEMPT], "/", null_handling="skip")


def _counting(written: set[str], named: Mapping[str, str | None]) -> set[str]:
    """Choose the attempts whose rows count: of each plan one."""
    counting = set()
    for text in written:
        plan_id, _, attempt_id = text.partition("/")
        if named.get(plan_id) is not None:
            is_named = attempt_id == named[plan_id]
        else:
            # A version that names no attempt may have completed the plan with the rows of one.
            is_named = not attempt_id or (plan_id in named and plan_id not in written)
        if is_named:
            counting.add(text)
    return counting
