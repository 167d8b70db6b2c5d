"""Faults to put into the product, one at a time: the truth suite must detect them.

Each changes one place that decides about an answer: a filter, a unit, a clock, a check for null, a sum, a
sign, an order. Only answers that the suite compares are listed; nothing here runs without
:mod:`tests.truth.mutate`.
"""

from __future__ import annotations

from typing import Final

from tests.truth.mutation import CLOCK, FILTER, JOIN, NULL, ORDER, SIDE, SNAPSHOT, STEP, SUM, UNIT, Mutation
from tests.truth.mutations_of_audit import MUTATIONS_OF_AUDIT

_READER: Final = "evenlag/lake/reader.py"
_PLAN_ROWS: Final = "evenlag/queries/plan_rows.py"
_PLANS: Final = "evenlag/cli/plans.py"
_LAG: Final = "evenlag/cli/lag.py"
_LAG_ROWS: Final = "evenlag/queries/lag.py"
_GROUP_LAG: Final = "evenlag/lag/group_lag.py"
_TIMELINE: Final = "evenlag/report/read_report.py"
_REPORT_EVENTS: Final = "evenlag/report/read_report.py"
_OUTPUT: Final = "evenlag/formatting.py"
_EXPORT: Final = "evenlag/cli/export.py"
_COMPARE: Final = "evenlag/queries/comparisons.py"
_FIGURES: Final = "evenlag/overview/metrics.py"
_TABLES: Final = "evenlag/cli/lake.py"
_APPROVAL: Final = "evenlag/publishing/approval_page.py"

MUTATIONS: Final = (
    # The reader -----------------------------------------------------------------------------------------
    Mutation(
        "the oldest snapshot is taken for the newest",
        SNAPSHOT,
        _READER,
        'read_newest(SNAPSHOTS, "slot", filters=[("cluster", "=", cluster)])',
        'read_newest(SNAPSHOTS, "slot", filters=[("cluster", "=", cluster)], is_oldest=True)',
    ),
    Mutation(
        "the filters of events are left out",
        FILTER,
        _READER,
        "self.read(PLAN_EVENTS, columns=columns, filters=filters)",
        "self.read(PLAN_EVENTS, columns=columns)",
    ),
    # plans ----------------------------------------------------------------------------------------------
    Mutation(
        "a plan's first event decides on its status",
        ORDER,
        _PLAN_ROWS,
        "sorted(events, key=event_order)",
        "sorted(events, key=event_order, reverse=True)",
    ),
    Mutation(
        "plans are listed oldest first",
        ORDER,
        _PLAN_ROWS,
        '(-row["slot"].timestamp(), row["group_id"])',
        '(row["slot"].timestamp(), row["group_id"])',
    ),
    Mutation(
        "the prediction is what was before",
        SIDE,
        _PLAN_ROWS,
        'for name in ("metrics_before", "metrics_after")',
        'for name in ("metrics_before", "metrics_before")',
    ),
    Mutation(
        "a plan's partitions that stay are shown among its moves",
        FILTER,
        _PLANS,
        'rows.filter(rows["moved"]).sort_by(',
        "rows.sort_by(",
    ),
    Mutation(
        "a plan's gates are read from another day",
        FILTER,
        _PLANS,
        'plan_id=plan["plan_id"], since=plan["day"])',
        'plan_id=plan["plan_id"], since=plan["day"].replace(year=9999))',
    ),
    Mutation(
        "the lag of a move is its partition's number",
        JOIN,
        _PLANS,
        'number(move["lag_records"])',
        'number(move["partition"])',
    ),
    # lag ------------------------------------------------------------------------------------------------
    Mutation(
        "a group's time lag is its drain time",
        SUM,
        _GROUP_LAG,
        'row["time_lag_ms_max"] if row["timeless_sum"] == 0 else None',
        'row["drain_time_ms_max"] if row["timeless_sum"] == 0 else None',
    ),
    Mutation(
        "partitions that nobody owns are a member's in a group without members",
        NULL,
        _GROUP_LAG,
        'alive = members.filter(pc.is_valid(members["member_id"])).group_by',
        "alive = members.group_by",
    ),
    Mutation(
        "groups are listed the least behind first",
        ORDER,
        _LAG_ROWS,
        '(row["lag_records"] is None, -(row["lag_records"] or 0), row["group_id"])',
        '(row["lag_records"] is None, (row["lag_records"] or 0), row["group_id"])',
    ),
    Mutation(
        "the time to drain is shown as the time lag",
        JOIN,
        _LAG,
        'duration(row["drain_time_ms"])',
        'duration(row["time_lag_ms"])',
    ),
    Mutation(
        "the lag of the snapshot's group is that of all groups",
        FILTER,
        _LAG,
        'rows.filter(pc.equal(rows["group_id"], group))',
        'rows.filter(pc.is_valid(rows["group_id"]))',
    ),
    # What people and programs read ----------------------------------------------------------------------
    Mutation(
        "durations are ten times too long",
        UNIT,
        _OUTPUT,
        "seconds = int(milliseconds // 1000)",
        "seconds = int(milliseconds // 100)",
    ),
    Mutation(
        "a share is shown as per cent without being multiplied",
        UNIT,
        _OUTPUT,
        "{100 * value:.1f} %",
        "{value:.1f} %",
    ),
    Mutation(
        "what is not known is 0 in a CSV file",
        NULL,
        _EXPORT,
        '    if plain is None:\n        return ""',
        '    if plain is None:\n        return "0"',
    ),
    Mutation(
        "an exported Parquet file lacks its first row",
        STEP,
        _EXPORT,
        'pq.write_table(table, path, compression="zstd")',
        'pq.write_table(table.slice(1), path, compression="zstd")',
    ),
    # compare --------------------------------------------------------------------------------------------
    Mutation(
        "the largest lag of a policy is the least of its days",
        SUM,
        _COMPARE,
        '"max_lag_records": max(',
        '"max_lag_records": min(',
    ),
    Mutation(
        "rebalances of a policy are its moves",
        JOIN,
        _COMPARE,
        'sum(row["rebalances"] for row in rows)',
        'sum(row["moves"] for row in rows)',
    ),
    Mutation(
        "the table of each group has all groups",
        FILTER,
        "evenlag/cli/compare.py",
        'own = [row for row in replays if chosen is None or row["group_id"] == chosen]',
        "own = list(replays)",
    ),
    Mutation(
        "members whose capacity was assumed count as observed",
        JOIN,
        _COMPARE,
        'sum(row["num_observed_capacities"] for row in rows)',
        'sum(row["num_assumed_capacities"] for row in rows)',
    ),
    # metrics, tables, the approval page -----------------------------------------------------------------
    Mutation(
        "the age of a snapshot counts from its slot",
        CLOCK,
        _FIGURES,
        '(now - snapshot["finished_at"]).total_seconds()',
        '(now - snapshot["slot"]).total_seconds()',
    ),
    Mutation(
        "the lag of the cluster is that of its furthest partition",
        SUM,
        "evenlag/queries/lag.py",
        'pc.sum(counted["lag_records"]).as_py()',
        'pc.max(counted["lag_records"]).as_py()',
    ),
    Mutation(
        "a table's last day is its first",
        SIDE,
        _TABLES,
        '"last_day": max((file.last_day for file in files), default=None),',
        '"last_day": max((file.first_day for file in files), default=None),',
    ),
    Mutation(
        "a table's size is that of its largest file",
        SUM,
        _TABLES,
        '"size_bytes": sum(file.size_bytes for file in files),',
        '"size_bytes": max(file.size_bytes for file in files),',
    ),
    Mutation(
        "a person is shown the planned lag as the present one",
        SIDE,
        _APPROVAL,
        'now, planned = _lag_by(rows, "owner_before"), _lag_by(rows, "owner_after")',
        'now, planned = _lag_by(rows, "owner_after"), _lag_by(rows, "owner_before")',
    ),
    # What answers got wrong once ------------------------------------------------------------------------
    Mutation(
        "lag that is not known counts as known",
        NULL,
        _GROUP_LAG,
        'num_unknown_partitions=row["inexact_sum"],',
        "num_unknown_partitions=0,",
    ),
    Mutation(
        "a policy that never drained has drained at once",
        NULL,
        _COMPARE,
        'inf if row["drain_time_ms"] is None else row["drain_time_ms"]',
        'row["drain_time_ms"] or 0',
    ),
    Mutation(
        "events after the end of a report's period are in it",
        CLOCK,
        _REPORT_EVENTS,
        'row["at"] is not None and (scope.end is None or row["at"] <= scope.end)',
        'row["at"] is not None',
    ),
    Mutation(
        "plans that expired unpublished are marked as hints",
        FILTER,
        _TIMELINE,
        'event["plan_id"] in published and',
        "",
    ),
    Mutation(
        "the last owners' bars end where they began",
        STEP,
        _TIMELINE,
        "end = last_end if is_open else",
        "end = start if is_open else",
    ),
    *MUTATIONS_OF_AUDIT,
)
