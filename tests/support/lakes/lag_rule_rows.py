"""Rows of a snapshot that make up the cases of :mod:`tests.support.lag_rules`."""

from __future__ import annotations

from typing import Any, Final

from tests.support.lag_rules import BY_DURATION, GroupCase, LagRule
from tests.support.lakes.snapshots import NOW, commit, member, offset

REBALANCING: Final[dict[str, Any]] = {
    "group_state": "PreparingRebalance",
    "assignor": None,
    "assignment": None,
}


def rule_rows(rule: LagRule) -> dict[str, list[dict[str, Any]]]:
    """Rows of ``offsets``, ``commits`` and ``members`` that make up one rule."""
    place: dict[str, Any] = {"group": rule.name}
    own: dict[str, Any] = {"topic": rule.name, "topic_id": f"id of {rule.name}"}
    stable = rule.stable_end
    offsets = (
        offset(0, 0, start=0)
        | own
        | {
            "log_start_offset": rule.start,
            "high_watermark": rule.high_watermark,
            "last_stable_offset": stable,
            "error": rule.offset_error,
            "reset_offsets": [{"reset_policy": BY_DURATION, "offset": rule.reset_offset}],
        }
    )
    commits = [] if rule.committed is None else [commit(0, rule.committed, **place) | own]
    if rule.group is GroupCase.COMMITS_UNREAD:
        commits = [{"group_id": rule.name, "read_at": NOW, "error": "CoordinatorNotAvailableError"}]
    taken = [rule.name]
    people = {
        GroupCase.NOT_SUBSCRIBED: member(**place, topics=["another"]),
        GroupCase.EMPTY: member(None, **place, topics=None, group_state="Empty", assignor=None),
        GroupCase.DEAD: member(None, **place, topics=None, group_state="Dead", assignor=None),
        GroupCase.REBALANCING: member(**place, topics=None, **REBALANCING),
        GroupCase.NOT_DESCRIBED: member(None, **place, topics=None, error="NotCoordinatorError"),
        GroupCase.NO_MEMBERS_REPORTED: member(None, **place, topics=None, group_type="consumer"),
    }
    return {
        "offsets": [offsets],
        "commits": commits,
        "members": [people.get(rule.group, member(**place, topics=taken))],
    }
