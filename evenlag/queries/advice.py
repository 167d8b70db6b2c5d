"""Advice of the newest snapshot that has any, by group, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenlag.enums import AdviceReason
from evenlag.formatting import duration, moment, number, percent
from evenlag.lag.group_lag import counted_rows
from evenlag.lake.filters import matching
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import ADVICE, HOURLY_RATES, LAG

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader

SHOWN_COLUMNS: Final = (
    *("num_members", "members_needed", "reason", "is_at_most", "members_now", "members_by_rate"),
    *("partitions_to_add", "hot_partitions", "moves", "r_score", "work_per_s", "speed_records_per_s"),
    *("confidence", "most_members", "target_wait_s", "wait_ms", "is_target_met", "missed_since", "met_share"),
)
"""Columns of ``advice`` that commands answer with."""
_PEAK_DAYS: Final = timedelta(days=7)


def read_advice(reader: LakeReader, cluster: str, day: date) -> dict[str, dict[str, Any]]:
    """Read the newest advice about each group, of a day or later, or of the day before."""
    filters = matching(cluster=cluster, since=day - timedelta(days=1))
    columns = ("group_id", "end_read_at", *SHOWN_COLUMNS)
    rows = reader.read_newest(ADVICE, "end_read_at", columns=columns, filters=filters).to_pylist()
    return {row["group_id"]: row for row in rows}


class Peak(NamedTuple):
    """The hour of the last seven days in which most records arrived at a group's partitions, per second."""

    hour: datetime
    records_per_s: float


def read_peak(reader: LakeReader, snapshot: Mapping[str, Any], group_id: str) -> Peak | None:
    """Read the busiest hour of a group by ``hourly_rates``; None if no hour is known."""
    keys = ["topic_id", "topic", "partition"]
    filters = [*snapshot_filters(snapshot), ("group_id", "=", group_id)]
    owned = counted_rows(reader.read(LAG, columns=[*keys, "status"], filters=filters)).select(keys)
    topics = set(owned["topic"].to_pylist())
    of_days = matching(cluster=snapshot["cluster"], topic=topics, since=snapshot["day"] - _PEAK_DAYS)
    rates = reader.read(HOURLY_RATES, columns=["hour", *keys, "arrival_rate_records_per_s"], filters=of_days)
    of_group = rates.join(owned, keys, join_type="inner").group_by("hour")
    hours = of_group.aggregate([("arrival_rate_records_per_s", "sum")]).to_pylist()
    peaks = (Peak(row["hour"], row["arrival_rate_records_per_s_sum"]) for row in hours)
    return max(peaks, key=lambda each: each.records_per_s, default=None)


def needed_text(row: Mapping[str, Any] | None) -> str:
    """Return how many members a group needs, in a word; empty if that is not known.

    Examples
    --------
    >>> needed_text({"members_needed": 4, "is_at_most": True, "reason": "rate"})
    '≤ 4'
    >>> needed_text({"members_needed": 4, "is_at_most": False, "reason": "partitions"})
    '4 (partitions)'
    """
    if row is None or row["members_needed"] is None:
        return ""
    bound = "≤ " if row["is_at_most"] else ""
    reason = row["reason"]
    why = "" if reason in {None, AdviceReason.RATE.value} else f" ({reason.replace('_', ' ')})"
    return f"{bound}{number(row['members_needed'])}{why}"


def reason_text(row: Mapping[str, Any]) -> str:
    """Return what binds the number of members, as a sentence."""
    by_rate, add = number(row["members_by_rate"]), row["partitions_to_add"] or 0
    more = f" {number(add)} more partitions, if keys divide evenly, let more members help." if add else ""
    match row["reason"]:
        case AdviceReason.HOT_PARTITION.value:
            named = ", ".join(
                f"{one['topic']}-{one['partition']} ({number(one['members'], digits=1)} members' work)"
                for one in row["hot_partitions"] or ()
            )
            return f"No number of members helps what is more work than one member does: {named}.{more}"
        case AdviceReason.PARTITIONS.value if add:
            return f"The work needs {by_rate} members, more than there are partitions.{more}"
        case AdviceReason.PARTITIONS.value:
            return f"The work needs {by_rate} members; whole partitions do not divide more evenly."
        case AdviceReason.RATE.value:
            return "The rate of arrivals decides."
    return ""


def target_text(row: Mapping[str, Any] | None) -> str:
    """Return whether a group meets its target, since when not, and for how much of the day; empty: no target.

    Examples
    --------
    >>> target_text({"target_wait_s": 30, "is_target_met": True, "missed_since": None, "met_share": 0.995})
    'met; of the last 24 hours 99.5 %'
    """
    if row is None or row["target_wait_s"] is None:
        return ""
    share = row["met_share"]
    of_day = "" if share is None else f"; of the last 24 hours {percent(share)}"
    if row["missed_since"] is not None:
        return f"missed since {moment(row['missed_since'])}{of_day}"
    return f"{'met' if row['is_target_met'] else 'not known'}{of_day}"


def wait_text(row: Mapping[str, Any]) -> str:
    """Return the age of the oldest record, beside the target if there is one."""
    target = row["target_wait_s"]
    of = "" if target is None else f" (target {duration(1_000 * target)})"
    return f"{duration(row['wait_ms'])}{of}"
