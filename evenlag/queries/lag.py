"""Lag of groups and members in one snapshot, with the number of partitions whose lag is unknown.

A sum over partitions of which some are unknown is a lower bound; it is None where all are unknown. A skew has
no lower bound: it is None as soon as one partition is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import LagBound
from evenlag.errors import LakeError
from evenlag.formatting import count_of
from evenlag.lag.group_lag import GroupLag, counted_rows, is_inexact, measure_lag
from evenlag.lake.filters import matching, of_group
from evenlag.lake.snapshot_ids import slot_day
from evenlag.lake.tables import LAG, MEMBERS, SPEEDS

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.filters import Filter
    from evenlag.lake.reader import LakeReader


MEMBER_COLUMNS: Final = ("group_id", "member_id", "error", "subscription_error", "assignment_error")
"""Columns of ``members`` that :func:`group_rows` needs."""
SUM_COLUMNS: Final = ("status", "lag_records", "lag_bound")
"""Columns of ``lag`` that :func:`sum_lag` needs."""
DRAIN_COLUMNS: Final = (
    "status", "lag_records", "drain_time_ms", "arrival_rate_records_per_s", "consume_rate_records_per_s",
)  # fmt: skip
"""Columns of ``lag`` that :func:`drain_times` needs, besides its key."""
_MAX_SHOWN: Final = 3
# What the reasons of `evenlag.kafka.member_protocol` begin with; queries know no brokers.
_NO_LAG: Final = ("not a consumer group", "not measured")
_FACTS: Final = ("commit_problem", "subscription_problem", "owner_problem")
# What `partition_rows` returns.
PARTITION_COLUMNS: Final = (
    "topic", "partition", "owner_member_id", "status", "lag_records", "lag_bound", "committed_offset",
    "end_offset", "arrival_rate_records_per_s", "consume_rate_records_per_s", "time_lag_ms",
    "time_lag_at_least_ms", "drain_time_ms", "stalled", *_FACTS,
)  # fmt: skip
STATE_COLUMNS: Final = ("group_state", "group_type", "assignor")
"""Columns of ``members`` that are the group's."""
CLIENT_COLUMNS: Final = ("member_id", "group_instance_id", "client_id")


def group_rows(lag: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    """Aggregate lag and members of one snapshot by group: by lag, largest first, groups without any lag last.

    See :class:`~evenlag.lag.group_lag.GroupLag` for the columns; ``statuses`` are numbers of partitions.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    statuses: dict[str, dict[str, int]] = defaultdict(dict)
    for row in lag.group_by(["group_id", "status"]).aggregate([([], "count_all")]).to_pylist():
        statuses[row["group_id"]][row["status"]] = row["count_all"]
    facts = members.append_column(
        "subscription_problem", pc.coalesce(members["error"], members["subscription_error"])
    ).append_column("owner_problem", pc.coalesce(members["error"], members["assignment_error"]))
    facts_of_groups = facts.group_by("group_id").aggregate([(name, "min") for name in _FACTS[1:]])
    described = {row["group_id"]: row for row in facts_of_groups.to_pylist()}
    # An owner is a member, also where the rows of members are gone.
    owners = lag.select(["group_id", "owner_member_id"]).rename_columns(["group_id", "member_id"])
    everyone = pa.concat_tables([members.select(["group_id", "member_id"]), owners])
    counts = everyone.group_by("group_id").aggregate([("member_id", "count_distinct")]).to_pylist()
    num_members = {row["group_id"]: row["member_id_count_distinct"] for row in counts}
    measured = measure_lag(lag, everyone)
    rows = [
        group_row(
            group_id, num_members[group_id], measured.get(group_id, GroupLag()), described.get(group_id, {})
        )
        | {"statuses": dict(sorted(statuses[group_id].items()))}
        for group_id in measured.keys() | described.keys()
    ]
    return sorted(
        rows, key=lambda row: (row["lag_records"] is None, -(row["lag_records"] or 0), row["group_id"])
    )


def group_row(group_id: str, num_members: int, lag: GroupLag, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a group, without its statuses."""
    problems = {name: getattr(lag, name) or described.get(f"{name}_min") for name in _FACTS}
    return {
        "group_id": group_id,
        "num_members": num_members,
        "num_partitions": lag.num_partitions,
        "num_unknown_partitions": lag.num_unknown_partitions,
        "lag_records": lag.total_lag_records,
        "lag_bound": lag.lag_bound,
        "max_member_lag_records": lag.max_member_lag_records,
        "lag_skew": lag.lag_skew if lag.max_member_lag_records else None,
        "unevenness": lag.unevenness,
        "time_lag_ms": lag.time_lag_ms,
        "time_lag_at_least_ms": lag.time_lag_at_least_ms,
        "num_unknown_time_lags": lag.num_unknown_times,
        "num_not_subscribed_partitions": lag.num_not_subscribed_partitions,
        "not_subscribed_lag_records": lag.not_subscribed_lag_records,
        **problems,
    }


def member_rows(lag: pa.Table, members: pa.Table) -> list[dict[str, Any]]:
    """Aggregate lag by member of one group, without the partitions that the group has left.

    A row without a member id is of the partitions without a known owner. A live member without partitions has
    a lag of 0, or None where it may own some of those.
    """
    import pyarrow.compute as pc

    counted = counted_rows(lag)
    counted = counted.append_column("inexact", pc.cast(is_inexact(counted), "int64"))
    names = [("inexact", "sum"), ("lag_bound", "max"), ("owner_problem", "count"), ([], "count_all")]
    sums = counted.group_by("owner_member_id").aggregate([("lag_records", "sum"), *names])
    owned = {row["owner_member_id"]: row for row in sums.to_pylist()}
    nobody = owned.get(None, {"inexact_sum": 0, "owner_problem_count": 0})
    idle = None if nobody["inexact_sum"] or nobody["owner_problem_count"] else 0
    without = {"count_all": 0, "inexact_sum": 0, "lag_records_sum": idle, "lag_bound_max": None}
    shown = {name for name in members["member_id"].to_pylist() if name is not None} | owned.keys()
    found = [
        {
            "member_id": name,
            "num_partitions": own["count_all"],
            "num_unknown_partitions": own["inexact_sum"],
            "lag_records": own["lag_records_sum"],
            # Only an unknown part makes a sum a lower bound.
            "lag_bound": LagBound.LOWER if own["inexact_sum"] else own["lag_bound_max"],
        }
        for name in shown
        for own in [owned.get(name, without)]
    ]
    return sorted(
        found,
        key=lambda row: (row["lag_records"] is None, -(row["lag_records"] or 0), row["member_id"] or ""),
    )


def partition_rows(lag: pa.Table) -> list[dict[str, Any]]:
    """Return the partitions of one group, by lag, largest first."""
    order = [("lag_records", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    rows: list[dict[str, Any]] = lag.sort_by(order).select(PARTITION_COLUMNS).to_pylist()
    return rows


def unknown_facts(row: Mapping[str, Any]) -> str:
    """Return which facts of a group are unknown, and why, as text; empty if all are known.

    Examples
    --------
    >>> why = "the group is PreparingRebalance"
    >>> unknown_facts({"commit_problem": None, "subscription_problem": why, "owner_problem": why})
    'subscription and owners unknown: the group is PreparingRebalance'
    """
    by_reason: dict[str, list[str]] = {}
    for name, fact in zip(_FACTS, ("commits", "subscription", "owners"), strict=True):
        if row[name] is not None:
            by_reason.setdefault(row[name], []).append(fact)
    return "; ".join(f"{' and '.join(facts)} unknown: {reason}" for reason, facts in by_reason.items())


def unmeasured(row: Mapping[str, Any]) -> str | None:
    """Return why a group has no lag at all: it is not a consumer group, or not measured; None: else."""
    if row["lag_records"] is not None:
        return None
    reasons = (row["subscription_problem"] or "", row["commit_problem"] or "")
    return next((text.partition(":")[0] for text in reasons if text.startswith(_NO_LAG)), None)


def unknown_facts_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return which facts of groups are unknown, and why, of the first three; empty if there are none."""
    texts = [f"{row['group_id']}: {facts}" for row in rows if (facts := unknown_facts(row))]
    more = f"; and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    return "; ".join(texts[:_MAX_SHOWN]) + more


def left_topics_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the lag of partitions that groups have left, as a sentence; empty if there are none."""
    counts = [(row["num_not_subscribed_partitions"], row["not_subscribed_lag_records"]) for row in rows]
    num_partitions, lag = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if not num_partitions:
        return ""
    partitions = count_of(num_partitions, "partition")
    return f"Not counted: {lag:,} records on {partitions} that no member subscribes to"


def owner_text(row: Mapping[str, Any]) -> str:
    """Return what is said of a partition without an owner."""
    return "nobody" if row["owner_problem"] is None else "not known"


def total_lag(cycle: Mapping[str, Any]) -> dict[str, Any]:
    """Sum the lag of a cycle's snapshot; None where it cannot be read, or no partition's lag is known.

    `cycle` is what ``evenlag run --json`` answers.
    """
    from evenlag.lake.reader import LakeReader

    snapshot_id = cycle.get("observe", {}).get("snapshot_id")
    if snapshot_id is not None:
        filters = _of_snapshot(cycle["cluster"], snapshot_id)
        with suppress(LakeError):
            return sum_lag(LakeReader(cycle["lake"]).read(LAG, columns=SUM_COLUMNS, filters=filters))
    return {"lag_records": None, "num_unknown_partitions": None}


def sum_lag(lag: pa.Table) -> dict[str, Any]:
    """Sum the lag of all groups of a snapshot, of which `lag` has :data:`SUM_COLUMNS`."""
    import pyarrow.compute as pc

    counted = counted_rows(lag)
    # Groups that have left all their partitions have no lag.
    total = pc.sum(counted["lag_records"]).as_py() if counted.num_rows or not lag.num_rows else 0
    return {"lag_records": total, "num_unknown_partitions": pc.sum(is_inexact(counted)).as_py() or 0}


def client_names(members: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return instance id, or else client id, by member id; an empty text where neither is known."""
    return {
        row["member_id"]: row["group_instance_id"] or row["client_id"] or ""
        for row in members
        if row["member_id"] is not None
    }


def read_group_members(
    reader: LakeReader, cluster: str, snapshot_id: str, group_id: str
) -> list[dict[str, Any]]:
    """Read the members of a group; none if the snapshot is not, or no longer, in the lake."""
    wanted = [*_of_snapshot(cluster, snapshot_id), *of_group(group_id)]
    rows: list[dict[str, Any]] = reader.read(MEMBERS, columns=CLIENT_COLUMNS, filters=wanted).to_pylist()
    return rows


def read_speeds(
    reader: LakeReader, cluster: str, snapshot_id: str, group_id: str | None = None
) -> dict[str, dict[str, dict[str, Any]]]:
    """Read the members with a known speed, by group id and member id: rows of ``members`` in ``speeds``."""
    wanted = [*_of_snapshot(cluster, snapshot_id), *of_group(group_id)]
    rows = reader.read(SPEEDS, columns=["group_id", "members"], filters=wanted).to_pylist()
    return {
        row["group_id"]: {
            member["member_id"]: member
            for member in row["members"] or ()
            if member["member_id"] is not None and member["speed_records_per_s"] is not None
        }
        for row in rows
    }


def _of_snapshot(cluster: str, snapshot_id: str) -> list[Filter]:
    return matching(cluster=cluster, day=slot_day(snapshot_id), snapshot_id=snapshot_id)


def drain_times(lag: pa.Table, key: str) -> dict[str, float | None]:
    """Return the longest drain time of the partitions, by a key.

    Returns milliseconds; infinite if a partition's rates are known and its lag does not shrink, None if it
    is not known.
    lag: Rows that :func:`~evenlag.lag.group_lag.counted_rows` returns, with :data:`DRAIN_COLUMNS`.
    """
    import pyarrow.compute as pc

    has_lag = pc.fill_null(pc.greater(lag["lag_records"], 0), False)
    has_none = pc.and_(has_lag, pc.is_null(lag["drain_time_ms"]))
    has_rates = pc.and_(
        pc.is_valid(lag["arrival_rate_records_per_s"]), pc.is_valid(lag["consume_rate_records_per_s"])
    )
    is_open = pc.or_(pc.is_null(lag["lag_records"]), pc.and_(has_none, pc.invert(has_rates)))
    marked = lag.select([key, "drain_time_ms"]).append_column("never", pc.and_(has_none, has_rates))
    longest = marked.append_column("open", is_open).group_by(key)
    rows = longest.aggregate([("drain_time_ms", "max"), ("never", "any"), ("open", "any")]).to_pylist()
    known = {row[key]: None if row["open_any"] else row["drain_time_ms_max"] or 0 for row in rows}
    return known | {row[key]: inf for row in rows if row["never_any"]}
