"""Rows of a snapshot that make up the cases of :mod:`tests.support.lag_rules`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from tests.support.lag_rules import BY_DURATION, GroupCase, LagRule, TimeRule
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
    at = NOW + timedelta(seconds=1) if rule.is_commit_later else NOW
    more = {"leader_epoch": rule.epoch, "reported_lag_records": rule.reported, "read_at": at}
    commits = [row | more for row in commits]
    if rule.group is GroupCase.COMMITS_UNREAD:
        commits = [{"group_id": rule.name, "read_at": NOW, "error": "CoordinatorNotAvailableError"}]
    return {"offsets": [offsets], "commits": commits, "members": group_rows(rule.group, rule.name)}


def group_rows(case: GroupCase, name: str) -> list[dict[str, Any]]:
    """Rows of ``members`` of a group in a condition; it and its topic have this name."""
    place: Any = {"group": name}
    nobody: dict[str, Any] = {**place, "topics": None, "assignment": None}
    mine = {name: [0]}
    consumer: Any = {"group_type": "consumer"}
    unread: Any = {"subscription_error": "the expression is not RE2: look-ahead", **consumer}
    people = {
        GroupCase.NOT_SUBSCRIBED: [member(**place, topics=["another"])],
        GroupCase.EMPTY: [member(None, **nobody, group_state="Empty", assignor=None)],
        GroupCase.DEAD: [member(None, **nobody, group_state="Dead", assignor=None)],
        GroupCase.REBALANCING: [member(**place, topics=None, **REBALANCING)],
        GroupCase.NOT_DESCRIBED: [member(None, **nobody, error="NotCoordinatorError")],
        GroupCase.NO_MEMBERS_REPORTED: [member(None, **nobody, **consumer)],
        GroupCase.STREAMS: [member(None, **nobody, group_type="streams")],
        GroupCase.SHARE: [
            member(n, **place, topics=[name], held=mine, group_type="share") for n in ("a", "b")
        ],
        GroupCase.EXPRESSION: [member(**place, topics=None, held=mine, **unread)],
        GroupCase.HALF_KNOWN: [
            member("m-1", **place, topics=["another"]),
            member("m-2", **place, topics=None, **unread),
        ],
        GroupCase.TWO_OWNERS: [member(n, **place, topics=[name], held=mine) for n in ("m-1", "m-2")],
        GroupCase.OWNED_ONLY: [member(**place, topics=["another"], held=mine)],
    }
    return people.get(case, [member(**place, topics=[name])])


def time_rule_rows(rule: TimeRule) -> dict[str, list[dict[str, Any]]]:
    """Rows of a snapshot, and ``past_offsets`` of those before it, that make up one rule of times."""
    own: dict[str, Any] = {"topic": rule.name, "topic_id": f"id of {rule.name}"}
    commits = [] if rule.committed is None else [commit(0, rule.committed, group=rule.name) | own]
    return {
        "offsets": [offset(0, rule.end, start=rule.start) | own],
        "commits": [row | {"leader_epoch": rule.epoch} for row in commits],
        "members": group_rows(rule.group, rule.name),
        "past_offsets": [
            offset(0, end, end_read_at=NOW - timedelta(seconds=age)) | own for age, end in rule.points
        ],
    }
