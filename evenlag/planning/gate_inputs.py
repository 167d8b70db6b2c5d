"""Inputs of the gates: one row per plan, which Great Expectations evaluates.

The counts come from the rows that would be published, independently of the planner's own metrics: they are
counted where the rows are made, from the rows of ``lag`` and ``members``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from evenlag.policy.gates import GATES

# Counted by count_rows.
COUNTED_INPUTS: Final = ("num_rows", "num_duplicates", "num_missing", "num_invalid_owners")
# An input with such a prefix is a field of this column of ``plans``.
METRIC_PREFIXES: Final = {"before_": "metrics_before", "after_": "metrics_after"}


def gate_inputs() -> tuple[str, ...]:
    """Return the names of the inputs of all gates, sorted."""
    return tuple(sorted({name for gate in GATES for name in gate.all_inputs}))


def build_gate_rows(
    heads: Iterable[Mapping[str, Any]],
    counts: Mapping[str, Mapping[str, int]],
    *,
    last_hints: Mapping[str, datetime],
    marker: Mapping[str, Any],
    decided_at: datetime,
) -> list[dict[str, Any]]:
    """Build one row per plan.

    Returns ``plan_id``, ``settings`` and the inputs of all gates. ``since_last_hint_s`` is None without a
    previous hint, ``hint_topic_max_bytes`` without a hint topic.
    counts: Results of :func:`count_rows` by plan id.
    last_hints: The slot in whose cycle the last hint of a group was published, by group id.
    """
    names = gate_inputs()
    snapshot_age_s = (decided_at - marker["finished_at"]).total_seconds()
    rows = []
    for head in heads:
        last_hint_at = last_hints.get(head["group_id"])
        computed: dict[str, Any] = {
            **counts[head["plan_id"]],
            "num_violations": len(head["violations"] or ()),
            "snapshot_age_s": snapshot_age_s,
            "since_last_hint_s": last_hint_at and (marker["slot"] - last_hint_at).total_seconds(),
            "hint_topic_max_bytes": marker["hint_topic_max_bytes"],
        }
        rows.append(
            {
                "plan_id": head["plan_id"],
                "settings": head["settings"],
                **{name: computed[name] if name in computed else _input(head, name) for name in names},
            }
        )
    return rows


def count_rows(assignments: pa.Table, lag: pa.Table, members: pa.Table) -> dict[str, dict[str, int]]:
    """Count the rows of plans against what their groups subscribe to.

    Returns by plan id: ``num_rows``; ``num_duplicates``, rows of a partition beyond its first;
    ``num_missing``, partitions of subscribed topics without an owner; ``num_invalid_owners``, partitions
    whose owner is no member or does not subscribe to the topic.
    """
    plans = _Codes(assignments["plan_id"])
    groups = _Codes(
        pa.chunked_array([*assignments["group_id"].chunks, *members["group_id"].chunks], pa.string())
    )
    topics = _Codes(pc.list_flatten(members["subscription"]))
    owners = _Codes(members["member_id"])
    plan, group = plans.encode(assignments["plan_id"]), groups.encode(assignments["group_id"])
    topic, owner = topics.encode(assignments["topic"]), owners.encode(assignments["owner_after"])

    alive = members.filter(pc.is_valid(members["member_id"]))
    listed = alive["subscription"].combine_chunks()
    who = pc.list_parent_indices(listed).to_numpy(zero_copy_only=False)
    subscribed_topic = topics.encode(pc.list_flatten(listed))
    subscribed_group = groups.encode(alive["group_id"])[who]
    subscribed_owner = owners.encode(alive["member_id"])[who]
    wanted = np.unique(subscribed_group * topics.size + subscribed_topic)
    valid = np.unique((subscribed_group * topics.size + subscribed_topic) * owners.size + subscribed_owner)

    lag_group, lag_topic = groups.encode(lag["group_id"]), topics.encode(lag["topic"])
    is_expected = np.isin(lag_group * topics.size + lag_topic, wanted) & (lag_group >= 0) & (lag_topic >= 0)
    num_expected = np.bincount(lag_group[is_expected], minlength=groups.size)

    is_unassigned = ~pc.is_valid(assignments["owner_after"]).to_numpy()
    is_valid = (
        (owner >= 0) & (topic >= 0) & np.isin((group * topics.size + topic) * owners.size + owner, valid)
    )
    num_rows = np.bincount(plan, minlength=plans.size)
    num_distinct = _count_distinct(assignments, plan, plans.size)
    group_of_plan = np.zeros(plans.size, dtype=np.int64)
    group_of_plan[plan] = group
    counted: dict[str, NDArray[np.int64]] = {
        "num_rows": num_rows,
        "num_duplicates": num_rows - num_distinct,
        # A duplicate partition must not hide a missing one.
        "num_missing": num_expected[group_of_plan]
        - num_distinct
        + np.bincount(plan[is_unassigned], minlength=plans.size),
        "num_invalid_owners": np.bincount(plan[~is_unassigned & ~is_valid], minlength=plans.size),
    }
    return {
        plan_id: {name: int(values[number]) for name, values in counted.items()}
        for number, plan_id in enumerate(plans.names)
    }


class _Codes:
    """Strings as numbers from 0; a string that is unknown or null is -1."""

    def __init__(self, values: Any) -> None:
        self._set = pc.unique(values).drop_null()
        # At least 1: products with the size must stay different.
        self.size = max(len(self._set), 1)

    @property
    def names(self) -> list[str]:
        """The strings, in the order of their numbers."""
        found: list[str] = self._set.to_pylist()
        return found

    def encode(self, values: Any) -> NDArray[np.int64]:
        """Return the numbers of strings: int64 [N]."""
        found = pc.fill_null(pc.index_in(values, value_set=self._set, skip_nulls=True), -1)
        return np.asarray(found.to_numpy(), dtype=np.int64)


def _count_distinct(assignments: pa.Table, plan: NDArray[np.int64], num_plans: int) -> NDArray[np.int64]:
    """Number of different partitions of each plan: int64 [P]."""
    place = assignments.select(["topic_id", "topic", "partition"]).append_column("plan", pa.array(plan))
    distinct = place.group_by(["plan", "topic_id", "topic", "partition"]).aggregate([])
    return np.bincount(distinct["plan"].to_numpy(), minlength=num_plans)


def _input(head: Mapping[str, Any], name: str) -> Any:
    for prefix, column in METRIC_PREFIXES.items():
        if name.startswith(prefix):
            return (head[column] or {}).get(name.removeprefix(prefix))
    return head[name]
