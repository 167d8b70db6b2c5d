"""Faults to put into the audit and the report, one at a time: the truth suite must detect them."""

from __future__ import annotations

from typing import Final

from tests.truth.mutation import CLOCK, JOIN, SIDE, SIGN, STEP, SUM, UNIT, Mutation

_GROUP_LAG: Final = "evenlag/lag/group_lag.py"
_DIFFERENCES: Final = "evenlag/audit/differences.py"
_OWNERS: Final = "evenlag/audit/owners.py"
_CHURN: Final = "evenlag/audit/rebalances.py"
_ADHERENCE: Final = "evenlag/audit/published_hints.py"
_ANOMALIES: Final = "evenlag/audit/anomalies.py"
_JOINING: Final = "evenlag/audit/interval_merge.py"
_REPORT: Final = "evenlag/report/read_report.py"
_CHANGE: Final = "evenlag/report/read_report.py"
_PLANS_SECTION: Final = "evenlag/report/page.py"

MUTATIONS_OF_AUDIT: Final = (
    # audit ----------------------------------------------------------------------------------------------
    Mutation(
        "a snapshot counts as before a moment from its begin on",
        CLOCK,
        _OWNERS,
        "np.maximum.accumulate(period.finished_us())",
        "np.maximum.accumulate(period.started_us())",
    ),
    Mutation(
        "the owner before is the owner after",
        SIDE,
        _DIFFERENCES,
        '(("before", ends[0], old), ("after", ends[1], new))',
        '(("before", ends[0], new), ("after", ends[1], old))',
    ),
    Mutation(
        "members that joined count as left",
        SIDE,
        _CHURN,
        "(RebalanceCause.MEMBER_LEFT, change.left),",
        "(RebalanceCause.MEMBER_LEFT, change.joined),",
    ),
    Mutation(
        "partitions that moved count as returned",
        SIDE,
        _CHURN,
        'rebalance["num_returned" if returned else "num_moved"] += 1',
        'rebalance["num_moved" if returned else "num_returned"] += 1',
    ),
    Mutation(
        "a move has the time at which the old owner was first seen",
        CLOCK,
        _CHURN,
        '_FROM: Final = ("member_id", "last_seen_at", "last_snapshot_id")',
        '_FROM: Final = ("member_id", "first_seen_at", "last_snapshot_id")',
    ),
    Mutation(
        "placed partitions count as freed",
        SIGN,
        _CHURN,
        '"num_freed": ~is_owned & was_owned',
        '"num_freed": is_owned & ~was_owned',
    ),
    Mutation(
        "the best share of a hint is its least",
        SUM,
        _ADHERENCE,
        "shares[while_it_stood].max()",
        "shares[while_it_stood].min()",
    ),
    Mutation(
        "a hint is followed from the snapshot's begin on",
        CLOCK,
        _ADHERENCE,
        '(first, "followed_from", "finished_at")',
        '(first, "followed_from", "started_at")',
    ),
    Mutation(
        "lag that a stalled partition has is its least",
        SUM,
        _ANOMALIES,
        "np.maximum.reduceat(",
        "np.minimum.reduceat(",
    ),
    Mutation(
        "an anomaly's interval is one snapshot short",
        STEP,
        _ANOMALIES,
        '"num_snapshots": last - first + 1,',
        '"num_snapshots": last - first,',
    ),
    Mutation(
        "an idle member is one that nobody could relieve",
        STEP,
        _ANOMALIES,
        'if sum(len(topic["partitions"]) for topic in held) > 1:',
        'if sum(len(topic["partitions"]) for topic in held) > 99:',
    ),
    Mutation(
        "an owner's end is when the next snapshot began",
        CLOCK,
        _JOINING,
        '("next", rows[LAST_INDEX].to_numpy() + 1, "finished_at"),',
        '("next", rows[LAST_INDEX].to_numpy() + 1, "started_at"),',
    ),
    # report ---------------------------------------------------------------------------------------------
    Mutation(
        "the most loaded member is the least loaded one",
        SUM,
        _GROUP_LAG,
        "max_member_lag_records=max(lags, default=None) if is_owned else None,",
        "max_member_lag_records=min(lags, default=None) if is_owned else None,",
    ),
    Mutation(
        "hours are taken for minutes",
        UNIT,
        _REPORT,
        "since = end - timedelta(hours=min(",
        "since = end - timedelta(minutes=min(",
    ),
    Mutation(
        "a gate's refusals are the plans that passed",
        SIGN,
        _REPORT,
        'for row in by_gate[gate] if not row["passed"]]',
        'for row in by_gate[gate] if row["passed"]]',
    ),
    Mutation(
        "a plan's owners are those it takes partitions from",
        SIGN,
        _CHANGE,
        'pc.fill_null(both["is_planned"], fill_value=False), both["owner_after"], both["owner_member_id"]',
        'pc.fill_null(both["is_planned"], fill_value=False), both["owner_member_id"], both["owner_after"]',
    ),
    Mutation(
        "the report's actual lag of a plan is the predicted one",
        JOIN,
        _PLANS_SECTION,
        'plan["max_member_lag_actual_records"],',
        'plan["max_member_lag_predicted_records"],',
    ),
    Mutation(
        "the first lag of a partition is its last",
        STEP,
        _REPORT,
        'first.get((row["topic"], row["partition"]))',
        'row["lag_records"]',
    ),
)
