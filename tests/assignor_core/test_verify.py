"""The checker finds each kind of fault, and measures count what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assignor_core.errors import InvalidAssignmentError
from assignor_core.group import Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves, measure, member_lags
from assignor_core.verify import check_assignment, find_violations
from tests.support.improving_chain import has_improving_chain

MEMBERS = [
    Member("a", ("t", "u"), owned=(("t", 0), ("t", 1), ("u", 0)), generation=1),
    Member("b", ("t",), owned=(("t", 2),), generation=1),
    Member("c", ("u",), generation=1),
]
GROUP = Group.from_members({"t": 3, "u": 2, "v": 1}, MEMBERS, lags={"t": [5, 3, 0], "u": [1]})


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize(
    ("assignment", "limits", "rules"),
    [
        (array(0, 1, 1, 2, 2, -1), {"max_moves": 2, "count_slack": 0}, {}),
        (array(0, 1, 1, 2, 2, -1), {"max_moves": 1}, {"MAX_MOVES": 2}),
        (array(0, 0, 0, 0, 0, -1), {"count_slack": 3}, {"COUNT_SLACK": 5}),
        (array(0, 0, 0, 0, 0, -1), {"count_slack": 4}, {}),
        (array(0, 0, 1, 1, 0, -1), {}, {"NOT_SUBSCRIBED": 1}),
        (array(0, 0, 1, 0, 0, 0), {}, {"NOT_SUBSCRIBED": 1}),
        (array(0, 0, -1, 0, -1, -1), {}, {"UNASSIGNED": 2}),
        (array(0, 0, -1, 0, -1, -1), {"complete": False}, {}),
        (array(0, 0, 3, 0, -2, -1), {}, {"MEMBER_RANGE": 2}),
        (array(0, 0), {}, {"SHAPE": 1}),
        (np.zeros(6), {}, {"SHAPE": 1}),
    ],
)
def test_each_rule_is_found_and_counted(assignment: np.ndarray, limits: Any, rules: dict[str, int]) -> None:
    found = find_violations(GROUP, assignment, **limits)
    assert {violation.rule: violation.count for violation in found} == rules


def test_check_names_the_rows_and_numbers() -> None:
    with pytest.raises(InvalidAssignmentError, match=r"UNASSIGNED: 2 partitions .* t-2, u-1"):
        check_assignment(GROUP, array(0, 0, -1, 0, -1, -1))


def test_measures_are_what_they_say() -> None:
    metrics = measure(GROUP, array(0, 0, 1, 0, 2, -1))
    assert metrics.as_dict() == {
        "max_member_lag_records": 9,
        "mean_member_lag_records": 3.0,
        "lag_skew": 3.0,
        "min_member_partitions": 1,
        "max_member_partitions": 3,
        "balance_score": 4,
        "unassigned_partitions": 1,
    }
    assert count_moves(GROUP, array(1, -1, 1, 0, 2, -1)) == 2


def test_lags_beyond_what_a_float_holds_are_exact() -> None:
    group = Group.from_members({"t": 2}, [Member("a", ("t",))], lags={"t": [2**60, 1]})
    assert member_lags(group, array(0, 0)).tolist() == [2**60 + 1]


def test_certificate_sees_chains() -> None:
    members = [Member("a", ("t",)), Member("b", ("t", "u")), Member("c", ("u",))]
    group = Group.from_members({"t": 2, "u": 1}, members)
    assert has_improving_chain(group, array(0, 0, 1))
    assert not has_improving_chain(group, array(0, 1, 2))
