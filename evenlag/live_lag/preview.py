"""What a plan would bring to a group, computed on the spot from one snapshot. Nothing is published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.enums import GroupType
from evenlag.planning.eligibility import planning_blocker, summarize_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from evenlag.live_lag.snapshot import LiveSnapshot
    from evenlag.planning.group_batch import GroupBatch
    from evenlag.planning.group_planner import GroupPlan
    from evenlag.policy.group_settings import GroupSettings

_NO_TOPICS: Final = "none of the topics that its members subscribe to was read"
# A snapshot is no stored snapshot, and the payload of a preview goes nowhere.
_NO_SNAPSHOT: Final = "live"


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """Effect of a plan on a group.

    assignor: The assignor that plans, as the group's settings name it.
    blocker: Why there is no plan; None when there is one. The other attributes are then empty.
    num_moves: Partitions that would leave a live owner.
    max_member_lag_before_records, max_member_lag_after_records: Lag of the most loaded member, now and by
        the plan; partitions of unknown lag count 0.
    num_unknown_partitions: Partitions whose lag is unknown: the plan does not move them, and both lags are
        lower bounds.
    owners: The owner by the plan of each partition that would change its owner: (topic, partition) → member
        id.
    members: By member id: partitions and lag in records by the plan.
    """

    assignor: str
    blocker: str | None = None
    num_moves: int = 0
    max_member_lag_before_records: int | None = None
    max_member_lag_after_records: int | None = None
    num_unknown_partitions: int = 0
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
            "num_moves": self.num_moves if is_planned else None,
            "max_member_lag_before_records": self.max_member_lag_before_records,
            "max_member_lag_after_records": self.max_member_lag_after_records,
            "blocker": self.blocker,
        }


def preview_plans(
    snapshot: LiveSnapshot, groups: Collection[str], settings_of: Callable[[str], GroupSettings]
) -> dict[str, PlanPreview]:
    """Plan groups as ``evenlag run`` would, without its gates."""
    from evenlag.planning.group_batch import build_batch

    wanted = pa.array(sorted(groups), pa.string())
    lag, members = (
        rows.filter(pc.is_in(rows["group_id"], value_set=wanted)) for rows in (snapshot.lag, snapshot.members)
    )
    batch = build_batch(lag, members)
    found = {}
    for number, summary in enumerate(summarize_groups(batch)):
        group_id = batch.group_ids[number]
        blocker = planning_blocker(summary)
        if blocker is None and not batch.num_lag_rows[number]:
            blocker = _NO_TOPICS
        settings = settings_of(group_id)
        if blocker is not None:
            found[group_id] = PlanPreview(settings.assignor, blocker)
            continue
        found[group_id] = _preview(
            batch, number, settings, snapshot.kafka_cluster_id, is_consumer=summary.type == GroupType.CONSUMER
        )
    return found


def _preview(
    batch: GroupBatch, number: int, settings: GroupSettings, kafka_cluster_id: str, *, is_consumer: bool
) -> PlanPreview:
    from assignor_core.errors import AssignorError
    from evenlag.planning.group_planner import build_group, plan_group

    try:
        plan = plan_group(
            build_group(batch, number),
            settings,
            kafka_cluster_id=kafka_cluster_id,
            group_id=batch.group_ids[number],
            snapshot_id=_NO_SNAPSHOT,
            is_for_brokers=is_consumer,
        )
    except AssignorError as error:
        return PlanPreview(settings.assignor, str(error))
    return _from_plan(plan, settings.assignor)


def _from_plan(plan: GroupPlan, assignor: str) -> PlanPreview:
    from assignor_core.metrics import member_counts, member_lags

    group, after = plan.rows.group, plan.assignment
    changed = np.flatnonzero((after != group.live_owner) & (after >= 0))
    topics, names = group.topics, group.member_ids
    counts, lags = member_counts(group, after).tolist(), member_lags(group, after).tolist()
    return PlanPreview(
        assignor=assignor,
        num_moves=plan.moves,
        max_member_lag_before_records=plan.before.max_member_lag_records,
        max_member_lag_after_records=plan.after.max_member_lag_records,
        num_unknown_partitions=int(plan.rows.is_unknown.sum()),
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
