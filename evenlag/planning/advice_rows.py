"""Rows of ``advice``: what groups need by a snapshot, and how long their target was met."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.arrays import Bools, Floats, Int64s, codes, floats
from evenlag.lag.forecast import STEPS, likely_growth
from evenlag.lag.group_lag import LAG_COLUMNS as GROUP_LAG_COLUMNS
from evenlag.lag.group_lag import GroupLag, counted_rows, measure_lag
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import ADVICE
from evenlag.planning.advice import Advice, Held, advise, demand, fastest_first, hold
from evenlag.planning.group_batch import horizon_rates

LAG_COLUMNS: Final = tuple(
    dict.fromkeys((*GROUP_LAG_COLUMNS, "topic_id", "topic", "partition", "arrival_rate_records_per_s"))
)
"""Columns of ``lag`` that :func:`build_advice` needs."""
MEMBER_COLUMNS: Final = ("group_id", "member_id")
FORECAST_COLUMNS: Final = ("group_id", "horizon_s", "common_errors")
STATE_COLUMNS: Final = (
    *("group_id", "end_read_at", "members_needed", "fewer_members", "fewer_since", "missed_since", "hours"),
)
"""Columns of the previous snapshot's rows that it needs."""
# Without a target, and for the first forecasts.
_NO_TARGET_S: Final = 60.0
_HORIZON_S: Final = 1_800.0
_DAY: Final = timedelta(hours=24)
# Of a longer time between two snapshots, nothing is known.
_LONGEST_S: Final = 900.0


class AdviceRows(NamedTuple):
    """Rows of some groups in one snapshot, with the columns that this module names.

    lag, members: With the measures of :mod:`evenlag.planning.measured_rows`.
    """

    lag: pa.Table
    members: pa.Table
    forecasts: pa.Table


@dataclass(frozen=True, slots=True, eq=False)
class GroupDemand:
    """What is known of one group.

    topic, partition: Of P partitions. work: [P, STEPS] forecast, units of work per second. cost: [P].
    backlog: [P] units of work. owner: [P] member, -1 for none. member_ids, speed, is_bound, confidence: [M].
    growth: By how much more than the forecast is likely to arrive. horizon_s: Of the forecast.
    """

    topic: Sequence[str]
    partition: Int64s
    work: Floats
    backlog: Floats
    owner: Int64s
    member_ids: Sequence[str]
    speed: Floats
    is_bound: Bools
    confidence: Floats
    growth: float
    horizon_s: float

    @property
    def typical(self) -> float:
        """The speed of a further member; NaN: unknown."""
        return float(np.median(self.speed)) if len(self.speed) else float("nan")

    @property
    def is_at_most(self) -> bool:
        """Whether no speed is known but as a lower bound."""
        return bool(self.is_bound.all())

    def advise(self, target_wait_s: float | None) -> Advice | None:
        """Return what the group needs; None if no speed is known, or it has no partitions."""
        if not len(self.partition) or not np.isfinite(self.typical):
            return None
        step_s = self.horizon_s / STEPS
        wanted = demand(
            self.backlog,
            self.work * self.growth * step_s,
            step_s,
            _NO_TARGET_S if target_wait_s is None else target_wait_s,
        )
        return advise(wanted, self.speed, self.is_bound, self.owner, self.typical)


def build_advice(
    now: AdviceRows, previous: pa.Table, marker: Mapping[str, Any], target_of: Callable[[str], int | None]
) -> pa.Table:
    """Build the rows of ``advice`` of some groups of a snapshot.

    previous: Their newest rows before, with :data:`STATE_COLUMNS`. target_of: Seconds by group id.
    """
    before = {row["group_id"]: row for row in previous.to_pylist()}
    waits = measure_lag(now.lag, now.members)
    head = {name: marker[name] for name in ("cluster", "day", "snapshot_id", "slot", "end_read_at")}
    rows = [
        head
        | {"group_id": group_id}
        | _row(found, waits.get(group_id, GroupLag()), before.get(group_id, {}), head, target_of(group_id))
        for group_id, found in group_demands(now)
    ]
    schema = arrow_schema(ADVICE)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def group_demands(now: AdviceRows) -> Iterator[tuple[str, GroupDemand]]:
    """Return what is known of each group, by group id in their order."""
    lag = counted_rows(now.lag)
    members = now.members.filter(pc.is_valid(now.members["member_id"]))
    groups: list[str] = sorted(pc.unique(now.members["group_id"]).to_pylist())
    lag_of, members_of = (_by_group(rows["group_id"], groups) for rows in (lag, members))
    work, backlog = _work(lag)
    speed, bound, confidence = (
        floats(members[name]) for name in ("speed_records_per_s", "speed_is_bound", "speed_confidence")
    )
    forecasts = {row["group_id"]: row for row in now.forecasts.to_pylist()}
    topics, partitions = lag["topic"].to_pylist(), lag["partition"].to_numpy()
    names = members["member_id"].to_pylist()
    owners = lag["owner_member_id"].combine_chunks()
    for number, group_id in enumerate(groups):
        rows, people = lag_of[number], members_of[number]
        ids = [names[row] for row in people]
        measured = speed[people]
        is_known = np.isfinite(measured) & (measured > 0)
        typical = np.median(measured[is_known]) if is_known.any() else np.nan
        errors = forecasts.get(group_id, {})
        yield (
            group_id,
            GroupDemand(
                topic=[topics[row] for row in rows],
                partition=partitions[rows],
                work=work[rows],
                backlog=backlog[rows],
                owner=codes(owners.take(pa.array(rows)), ids),
                member_ids=ids,
                speed=np.where(is_known, measured, typical),
                is_bound=~is_known | (np.nan_to_num(bound[people]) > 0),
                confidence=np.nan_to_num(confidence[people]),
                growth=likely_growth(errors.get("common_errors") or []),
                horizon_s=float(errors.get("horizon_s") or _HORIZON_S),
            ),
        )


def member_rows(now: AdviceRows, members_needed: int | None) -> list[dict[str, Any]]:
    """Return the members of one group, those that are kept first: speeds, work, and who may go."""
    ((_, found),) = group_demands(now)
    work = found.work.mean(axis=1)
    is_owned = found.owner >= 0
    size = len(found.member_ids)
    counts = np.bincount(found.owner[is_owned], minlength=size)
    sums = np.bincount(found.owner[is_owned], work[is_owned], minlength=size)
    order = fastest_first(work, found.speed, found.owner) if np.isfinite(found.typical) else np.arange(size)
    return [
        {
            "member_id": found.member_ids[member],
            "num_partitions": int(counts[member]),
            "speed_records_per_s": float(found.speed[member]) if np.isfinite(found.typical) else None,
            "is_bound": bool(found.is_bound[member]),
            "confidence": float(found.confidence[member]),
            "work_per_s": float(sums[member]),
            "may_go": members_needed is not None and place >= members_needed,
        }
        for place, member in enumerate(order.tolist())
    ]


def _by_group(column: pa.ChunkedArray, groups: list[str]) -> list[Int64s]:
    group = codes(column, groups)
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(1, len(groups))))


def _work(lag: pa.Table) -> tuple[Floats, Floats]:
    """Return the work that arrives per second in each step, and the work that waits; unknown lag is none."""
    cost = floats(lag["cost"])
    cost = np.where(np.isfinite(cost) & (cost > 0), cost, 1.0)
    rates = np.nan_to_num(horizon_rates(lag, floats(lag["arrival_rate_records_per_s"]))).clip(min=0.0)
    backlog = np.nan_to_num(floats(lag["lag_records"])).clip(min=0.0)
    return rates * cost[:, None], backlog * cost


def _row(
    found: GroupDemand, lag: GroupLag, before: Mapping[str, Any], head: Mapping[str, Any], target: int | None
) -> dict[str, Any]:
    now: datetime = head["end_read_at"]
    advice = found.advise(target) if lag.total_lag_records is not None else None
    row: dict[str, Any] = {"num_members": len(found.member_ids), "target_wait_s": target}
    if advice is not None:
        if found.is_at_most:
            advice = advice.at_most(len(found.member_ids))
        row |= _advised(found, advice) | _held(before, advice.members, now)
    else:
        # What was advised holds.
        row |= {name: before.get(name) for name in ("members_needed", "fewer_members", "fewer_since")}
    row |= _target_met(lag, before, target, now)
    return row | _last_day(before, row, now)


def _advised(found: GroupDemand, advice: Advice) -> dict[str, Any]:
    typical = found.typical
    hot = [
        {
            "topic": found.topic[place],
            "partition": int(found.partition[place]),
            "members": float(found.work[place].mean() / typical),
        }
        for place in advice.hot.tolist()
    ]
    return {
        "reason": advice.reason.value,
        "is_at_most": found.is_at_most,
        "members_by_rate": advice.by_rate,
        "partitions_to_add": advice.partitions_to_add,
        "hot_partitions": hot,
        "moves": advice.moves,
        "r_score": advice.r_score,
        "work_per_s": float(found.work.mean(axis=1).sum()),
        "speed_records_per_s": typical,
        "confidence": float(found.confidence.mean()),
    }


def _held(before: Mapping[str, Any], members: int, now: datetime) -> dict[str, Any]:
    since: datetime | None = before.get("fewer_since")
    last = before.get("members_needed")
    held = None
    if last is not None:
        held = Held(last, before["fewer_members"], None if since is None else since.timestamp())
    new = hold(held, members, now.timestamp())
    return {
        "members_now": members,
        "members_needed": new.members,
        "fewer_members": new.fewer,
        "fewer_since": None if new.since_s is None else datetime.fromtimestamp(new.since_s, UTC),
    }


def _target_met(
    lag: GroupLag, before: Mapping[str, Any], target: int | None, now: datetime
) -> dict[str, Any]:
    wait_ms = lag.time_lag_ms
    is_met = None
    if target is not None:
        if wait_ms is not None:
            is_met = wait_ms <= 1_000 * target
        elif lag.time_lag_at_least_ms is not None and lag.time_lag_at_least_ms > 1_000 * target:
            is_met = False
    missed_since = None
    if is_met is False:
        missed_since = before.get("missed_since") or now
    elif is_met is None and target is not None:
        missed_since = before.get("missed_since")
    return {"wait_ms": wait_ms, "is_target_met": is_met, "missed_since": missed_since}


def _last_day(before: Mapping[str, Any], row: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """What is kept of the last 24 hours, with the time since the snapshot before."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    kept = [dict(one) for one in before.get("hours") or () if hour - _DAY < one["hour"] <= hour]
    if not kept or kept[-1]["hour"] != hour:
        kept.append({"hour": hour, "members": None, "known_s": 0.0, "missed_s": 0.0})
    last = kept[-1]
    needed = [each for each in (last["members"], row.get("members_now")) if each is not None]
    last["members"] = max(needed, default=None)
    passed_s = (now - before["end_read_at"]).total_seconds() if before else 0.0
    if row["is_target_met"] is not None and 0 < passed_s <= _LONGEST_S:
        last["known_s"] += passed_s
        last["missed_s"] += 0.0 if row["is_target_met"] else passed_s
    known_s, missed_s = (sum(one[name] for one in kept) for name in ("known_s", "missed_s"))
    return {
        "hours": kept,
        "met_share": 1.0 - missed_s / known_s if known_s > 0 else None,
        "most_members": max((one["members"] for one in kept if one["members"] is not None), default=None),
    }
