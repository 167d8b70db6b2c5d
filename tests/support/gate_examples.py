"""A plan that fails for each gate, for their page; `tests/end_to_end/test_modes_and_gates.py` has all."""

from dataclasses import dataclass
from typing import Any, Final

from evenlag.enums import EVENLAG_ASSIGNOR, GroupState


class _Varying:
    """A value of an example that differs between runs; the same in any format."""

    def __format__(self, _spec: str) -> str:
        return "…"

    def __str__(self) -> str:
        return "…"


VARYING: Final = _Varying()


@dataclass(frozen=True, slots=True)
class Example:
    """A plan that fails the gate, for the gates page.

    plan: What is wrong with the plan.
    observed, allowed: The values in its gate result; :data:`VARYING` if they differ between runs.
    """

    plan: str
    observed: Any
    allowed: Any


EXAMPLES: Final = {
    "no_duplicates": Example("partition 0 is in it twice", 1, 0),
    "complete": Example("partition 0 has no owner", 1, 0),
    "valid_owners": Example("partition 0 goes to `a-stranger`", 1, 0),
    "no_violations": Example("the checker found `UNASSIGNED: t0-1 is with nobody`", 1, 0),
    "count_slack": Example(
        "`lag-aware` spreads each of three topics separately: 6 and 4 partitions", observed=2, allowed=1
    ),
    "max_moves": Example("`lag-aware` swaps two partitions where `max_moves` is 1", 2, 1),
    "min_gain": Example(
        "a swap brings the most loaded member from 1,700 to 910 where `min_gain` is 0.9", 0.4647, 0.9
    ),
    "saves_time": Example("the moved partitions stand still for longer than the backlog takes", -120.0, 0),
    "cross_rack": Example("the plan takes it from 0 to half of the load, the limit is 0.1", 0.5, 0.1),
    "lag_known": Example("partition 3 has no commit and the rule no `reset_policy`", 1, 0),
    "snapshot_fresh": Example(
        "the snapshot ended more than a second ago, `max_snapshot_age_s` is 1", VARYING, allowed=1
    ),
    "group_stable": Example(
        "the group was rebalancing in the snapshot", GroupState.PREPARING_REBALANCE, GroupState.STABLE
    ),
    "hint_protocol": Example("the group is a share group", "share", "classic or consumer"),
    "hint_assignor": Example("the group's consumers use `range`", "range", EVENLAG_ASSIGNOR),
    "cooldown": Example("the group had a hint moments ago, `cooldown_s` is 600", VARYING, 600),
    "payload_fits": Example(
        "instance ids of 241 characters, and a hint topic whose `max.message.bytes` is 2,800",
        VARYING,
        752,
    ),
}
