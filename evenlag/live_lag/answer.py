"""What a snapshot says about groups, members and partitions, and what a plan would bring to a group.

Nothing is published.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignor_core.errors import AssignorError
from assignor_core.metrics import member_counts, member_lags
from evenlag.enums import HINTABLE_TYPES
from evenlag.kafka.arrow_rows import find_unreadable_members
from evenlag.kafka.member_protocol import OTHER_PROTOCOL
from evenlag.lag.group_lag import counted_rows, measure_lag
from evenlag.live_lag.snapshot import LiveSnapshot
from evenlag.planning.eligibility import planning_blocker, summarize_groups
from evenlag.planning.group_batch import build_batch
from evenlag.planning.group_planner import GroupPlan, build_group, plan_group
from evenlag.policy.group_settings import GroupSettings
from evenlag.queries.lag import group_rows, member_rows, partition_rows

_NO_TOPICS: Final = "none of the topics that its members subscribe to was read"
# A snapshot is no stored snapshot, and the payload of a preview goes nowhere.
_NO_SNAPSHOT: Final = "live"


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """Effect of a plan on a group, or why there is none: then the other attributes are empty.

    owners: The new owner of each partition that would change it: (topic, partition) → member id.
    members: By member id: partitions and lag in records by the plan.
    """

    assignor: str
    blocker: str | None = None
    moves: int = 0
    max_member_lag_before_records: int | None = None
    max_member_lag_after_records: int | None = None
    owners: Mapping[tuple[str, int], str] | None = None
    members: Mapping[str, tuple[int, int]] | None = None

    @property
    def is_change(self) -> bool:
        """Whether the plan would change the owner of a partition."""
        return bool(self.owners)

    def as_dict(self) -> dict[str, Any]:
        """Return the values by name, for JSON and files; numbers are None without a plan."""
        is_planned = self.blocker is None
        return {
            "assignor": self.assignor,
            "moves": self.moves if is_planned else None,
            "max_member_lag_before_records": self.max_member_lag_before_records,
            "max_member_lag_after_records": self.max_member_lag_after_records,
            "blocker": self.blocker,
        }


def preview_plans(
    snapshot: LiveSnapshot, groups: Collection[str], settings_of: Callable[[str], GroupSettings]
) -> dict[str, PlanPreview]:
    """Plan groups as ``evenlag run`` would, without its gates."""
    wanted = pa.array(sorted(groups), pa.string())
    lag, members = (
        rows.filter(pc.is_in(rows["group_id"], value_set=wanted)) for rows in (snapshot.lag, snapshot.members)
    )
    batch = build_batch(lag, members)
    found = {}
    for number, summary in enumerate(summarize_groups(batch)):
        group_id = batch.group_ids[number]
        settings = settings_of(group_id)
        blocker = planning_blocker(summary)
        if blocker is None and not batch.num_lag_rows[number]:
            blocker = _NO_TOPICS
        if blocker is not None:
            found[group_id] = PlanPreview(settings.assignor, blocker)
            continue
        try:
            plan = plan_group(
                build_group(batch, number),
                settings,
                kafka_cluster_id=snapshot.kafka_cluster_id,
                group_id=group_id,
                snapshot_id=_NO_SNAPSHOT,
                group_type=summary.type,
            )
        except AssignorError as error:
            found[group_id] = PlanPreview(settings.assignor, str(error))
        else:
            found[group_id] = _from_plan(plan, settings.assignor)
    return found


def _from_plan(plan: GroupPlan, assignor: str) -> PlanPreview:
    group, after = plan.rows.group, plan.assignment
    changed = np.flatnonzero((after != group.live_owner) & (after >= 0))
    topics, names = group.topics, group.member_ids
    counts, lags = member_counts(group, after).tolist(), member_lags(group, after).tolist()
    return PlanPreview(
        assignor=assignor,
        moves=plan.moves,
        max_member_lag_before_records=plan.before.max_member_lag_records,
        max_member_lag_after_records=plan.after.max_member_lag_records,
        owners={
            (topics[topic], partition): names[member]
            for topic, partition, member in zip(
                group.row_topic[changed].tolist(),
                group.row_partition[changed].tolist(),
                after[changed].tolist(),
                strict=True,
            )
        },
        members=dict(zip(names, zip(counts, lags, strict=True), strict=True)),
    )


_RATES: Final = ("arrival_rate_records_per_s", "consume_rate_records_per_s")
_GROUP_COLUMNS: Final = ("group_state", "group_type", "protocol_type", "assignor")
_MEMBER_COLUMNS: Final = ("group_instance_id", "client_id", "client_host")


def list_groups(snapshot: LiveSnapshot) -> list[dict[str, Any]]:
    """Return a row for each group, as :func:`~evenlag.queries.lag.group_rows`, with its state and rates.

    ``note`` says what is not usual about the group, ``max_member_id`` is its most loaded member.
    """
    found = group_rows(snapshot.lag, snapshot.members)
    states = _states(snapshot.members)
    largest, rates = _most_loaded(snapshot.lag), _rates(snapshot.lag)
    for row in found:
        group_id = row["group_id"]
        state = states.get(group_id, {})
        row.update((name, state.get(name)) for name in _GROUP_COLUMNS)
        row["note"] = _note(row, state)
        row["max_member_id"] = largest.get(group_id) if row["max_member_lag_records"] else None
        row.update(rates.get(group_id, dict.fromkeys(_RATES)))
    return found


def describe_group(snapshot: LiveSnapshot, group_id: str, preview: PlanPreview) -> dict[str, Any]:
    """Return a group with its members and partitions."""
    only = snapshot.of_group(group_id)
    described = {row["member_id"]: row for row in only.members.to_pylist()}
    after = preview.members or {}
    members = []
    for row in member_rows(only.lag, only.members):
        member = described.get(row["member_id"], {}) if row["member_id"] is not None else {}
        planned = after.get(row["member_id"], (None, None))
        members.append(
            row
            | {name: member.get(name) for name in _MEMBER_COLUMNS}
            | {"planned_partitions": planned[0], "planned_lag_records": planned[1]}
        )
    partitions = partition_rows(only.lag)
    for row in partitions:
        row["planned_owner_member_id"] = (preview.owners or {}).get((row["topic"], row["partition"]))
    (head,) = list_groups(only)
    head["coordinator"] = snapshot.coordinators.get(group_id)
    return head | {"plan": preview.as_dict(), "members": members, "partitions": partitions}


def _states(members: pa.Table) -> dict[str, dict[str, Any]]:
    """Columns of each group, with ``unreadable``: what of its members cannot be read."""
    first = members.select(["group_id", *_GROUP_COLUMNS, "subscription_error"]).to_pylist()
    unreadable = find_unreadable_members(members)
    return {row["group_id"]: row | {"unreadable": unreadable.get(row["group_id"])} for row in first}


def _note(row: Mapping[str, Any], state: Mapping[str, Any]) -> str | None:
    if (state.get("subscription_error") or "").startswith(OTHER_PROTOCOL):
        return OTHER_PROTOCOL
    if row["lag_records"] is None and row["group_type"] not in {*HINTABLE_TYPES, None}:
        return "not measured"
    return "members not read" if state.get("unreadable") else None


def _most_loaded(lag: pa.Table) -> Mapping[str, str]:
    """The member with the largest known lag of each group; of several the one with the smallest id."""
    counted = counted_rows(lag)
    owned = counted.filter(pc.is_valid(counted["owner_member_id"]))
    sums = owned.group_by(["group_id", "owner_member_id"]).aggregate([("lag_records", "sum")])
    order = [("lag_records_sum", "ascending"), ("owner_member_id", "descending")]
    known = sums.filter(pc.is_valid(sums["lag_records_sum"])).sort_by(order)
    return dict(zip(known["group_id"].to_pylist(), known["owner_member_id"].to_pylist(), strict=True))


def _rates(lag: pa.Table) -> dict[str, dict[str, float | None]]:
    """Sum of the known rates by group, without topics that it has left; None where none is known."""
    sums = counted_rows(lag).group_by("group_id").aggregate([(name, "sum") for name in _RATES])
    return {row["group_id"]: {name: row[f"{name}_sum"] for name in _RATES} for row in sums.to_pylist()}


_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = " "
MAX_SNAPSHOTS: Final = 40
"""Number of snapshots that are kept."""
_LEAST_WINDOW_S: Final = 30.0


def rate_window_s(every_s: float) -> float:
    """Return how far rates go back: the last ten intervals of the snapshots, at least half a minute."""
    return max(10 * every_s, _LEAST_WINDOW_S)


class RecentLags:
    """Keeps the lag of each group in the last snapshots of a cluster."""

    def __init__(self) -> None:
        self._lags: deque[dict[str, int | None]] = deque(maxlen=MAX_SNAPSHOTS)

    def add(self, snapshot: LiveSnapshot) -> None:
        """Add the newest snapshot."""
        groups = measure_lag(snapshot.lag, snapshot.members)
        self._lags.append({group_id: lag.total_lag_records for group_id, lag in groups.items()})

    def lags(self, group_id: str) -> list[int | None]:
        """Return the lag of a group in the kept snapshots, oldest first; None where it is unknown."""
        return [lags.get(group_id) for lags in self._lags]


def sparkline(values: list[int | None], width: int) -> str:
    """Draw numbers as bars from 0 to the largest of them.

    values: The numbers, oldest first; None leaves a gap.

    Examples
    --------
    >>> sparkline([0, 50, None, 100], 10)
    '▁▅ █'
    """
    shown = values[-width:]
    largest = max((value for value in shown if value is not None), default=0)
    steps = len(_BARS) - 1
    return "".join(
        _GAP if value is None else _BARS[(2 * value * steps + largest) // (2 * largest) if largest else 0]
        for value in shown
    )
