"""Arrow tables of a snapshot: the columns of the bronze tables, without the snapshot columns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.kafka.member_protocol import group_problem
from evenlag.kafka.offsets import Commits, Offsets
from evenlag.kafka.topic_metadata import Partitions
from evenlag.lag.arrays import Int32s, Int64s
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import COMMITS, MEMBERS, OFFSETS, Table
from evenlag.lake.tables.contract import SNAPSHOT_COLUMNS

_HEAD: Final = tuple(column.name for column in SNAPSHOT_COLUMNS)
_MAX_PROBLEMS: Final = 1_000
MEMBER_PROBLEM_COLUMNS: Final = ["group_id", "member_id", "subscription_error", "assignment_error"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Objects that could not be read, with the same error.

    kind: ``group``, ``commits``, ``topic``, ``offsets`` or ``broker``.
    """

    kind: str
    name: str
    error: str
    count: int = 1


def problem_rows(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Return the first 1,000 problems as the marker stores them: the first object, and how many more."""
    return [
        {
            "kind": problem.kind,
            "name": problem.name if problem.count == 1 else f"{problem.name} and {problem.count - 1:,} more",
            "error": problem.error,
        }
        for problem in problems[:_MAX_PROBLEMS]
    ]


def body_schema(table: Table) -> pa.Schema:
    """Return a table's Arrow schema without the snapshot columns."""
    return pa.schema([column for column in arrow_schema(table) if column.name not in _HEAD])


def offset_rows(
    partitions: Partitions,
    starts: Offsets,
    stable: Offsets,
    ends: Offsets,
    resets: Mapping[str, Int64s],
) -> pa.Table:
    """Build the rows of ``offsets``, by topic and partition; an offset that was not read is null.

    A partition has the first error of ``ends``, ``starts`` and ``stable``.
    """
    errors = ends.errors
    for other in (starts.errors, stable.errors):
        errors = np.where(errors == "", other, errors)
    return _table(
        OFFSETS,
        {
            "topic_id": _named(partitions.topic, partitions.ids),
            "topic": _named(partitions.topic, partitions.names),
            "partition": partitions.number,
            "log_start_offset": _offsets(starts.offset),
            "high_watermark": _offsets(ends.offset),
            "last_stable_offset": _offsets(stable.offset),
            "log_start_read_at": _times(starts.read_at_us),
            "end_read_at": _times(ends.read_at_us),
            "error": pa.array(errors, pa.string(), mask=errors == ""),
            "reset_offsets": _reset_offsets(resets) if resets else None,
            "racks": _racks(partitions),
        },
    )


def commit_rows(commits: Commits, topic_ids: Sequence[str], failed_at_us: int) -> pa.Table:
    """Build the rows of ``commits``: one per commit, then one per group that failed, read at `failed_at_us`.

    A group whose commits could not be read has a row without a partition: its lag is UNKNOWN, not 0.
    """
    good = _table(
        COMMITS,
        {
            "group_id": _named(commits.group, commits.groups),
            "topic_id": _named(commits.topic, topic_ids),
            "topic": _named(commits.topic, commits.topics),
            "partition": commits.partition,
            "committed_offset": commits.offset,
            "leader_epoch": commits.leader_epoch,
            "read_at": _times(commits.read_at_us),
            "reported_lag_records": _offsets(commits.reported_lag),
            "busy_ms": _offsets(commits.busy_ms),
            "busy_since": _offsets(commits.busy_since_ms).cast(pa.timestamp("ms", tz="UTC")),
        },
    )
    names = sorted(commits.failed)
    bad = _table(
        COMMITS,
        {
            "group_id": names,
            "read_at": _times(np.full(len(names), failed_at_us, dtype=np.int64)),
            "error": [commits.failed[name] for name in names],
        },
    )
    return pa.concat_tables([good, bad])


def member_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Build the rows of ``members`` from described groups; columns that a row lacks are null."""
    return pa.Table.from_pylist(list(rows), schema=body_schema(MEMBERS))


def find_problems(kind: str, names: Iterable[str], errors: Iterable[str | None]) -> list[Problem]:
    """Group errors of objects by their text, in the order of their first objects; None: no error."""
    by_error: dict[str, list[str]] = {}
    for name, error in zip(names, errors, strict=True):
        if error is not None:
            by_error.setdefault(error, []).append(name)
    return [Problem(kind, min(found), error, len(found)) for error, found in by_error.items()]


def find_unreadable_members(members: pa.Table) -> dict[str, str]:
    """Return what is unreadable of groups, by id: members' subscriptions or assignments.

    A group that rebalances, or that is not a consumer group, is none of them.
    """
    is_bad = pc.or_(pc.is_valid(members["subscription_error"]), pc.is_valid(members["assignment_error"]))
    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in members.select(MEMBER_PROBLEM_COLUMNS).filter(is_bad).to_pylist():
        by_group.setdefault(row["group_id"], []).append(row)
    problems = {group_id: group_problem(rows) for group_id, rows in sorted(by_group.items())}
    return {group_id: problem for group_id, problem in problems.items() if problem is not None}


def find_offset_problems(offsets: pa.Table) -> list[Problem]:
    """Group the errors of rows of ``offsets``."""
    bad = offsets.filter(pc.is_valid(offsets["error"]))
    names = pc.binary_join_element_wise(bad["topic"], bad["partition"].cast("string"), "-")
    return find_problems("offsets", names.to_pylist(), bad["error"].to_pylist())


def _table(table: Table, columns: Mapping[str, Any]) -> pa.Table:
    """Return the columns in the contract's order and types; absent columns are null."""
    num_rows = len(next(iter(columns.values())))
    schema = body_schema(table)

    def array(column: pa.Field) -> pa.Array:
        given = columns.get(column.name)
        if given is None:
            return pa.nulls(num_rows, column.type)
        return given.cast(column.type) if isinstance(given, pa.Array) else pa.array(given, column.type)

    return pa.Table.from_arrays([array(column) for column in schema], schema=schema)


def _named(numbers: Int32s, names: Sequence[str]) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(numbers))


def _offsets(values: Int64s) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values < 0)


def _racks(partitions: Partitions) -> pa.Array:
    sets = pa.array(partitions.rack_sets, pa.list_(pa.string()))
    return sets.take(pa.array(partitions.rack_set, mask=partitions.rack_set < 0))


def _reset_offsets(resets: Mapping[str, Int64s]) -> list[list[dict[str, Any]]]:
    by_row = zip(*(offsets.tolist() for offsets in resets.values()), strict=True)
    return [
        [
            {"reset_policy": policy, "offset": None if offset < 0 else offset}
            for policy, offset in zip(resets, offsets, strict=True)
        ]
        for offsets in by_row
    ]


def _times(values_us: Int64s) -> pa.Array:
    return pa.array(values_us, mask=values_us == 0).cast(pa.timestamp("us", tz="UTC"))
