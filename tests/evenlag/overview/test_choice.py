"""Search, filters and order of the overview, from the query of a URL."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evenlag.overview.model import GroupRow, Sign
from evenlag.overview.page import SORTS, Choice, row_html
from tests.support.overview.rows import HOSTILE, groups_of_each_kind

ROWS = groups_of_each_kind()


def shown(**query: str) -> list[str]:
    choice = Choice.from_query(query)
    return [row.group_id for row in choice.ordered(row for row in ROWS if choice.matches(row))]


def test_the_largest_lag_comes_first_and_an_unknown_one_last() -> None:
    assert shown()[:2] == ["payments", "review"]
    assert shown()[-1] == "gone"
    assert shown(sort="lag", order="reversed")[:2] == ["quiet", HOSTILE]
    assert shown(sort="lag", order="reversed")[-1] == "gone"


def test_a_group_that_never_drains_is_the_slowest() -> None:
    assert shown(sort="drain")[:2] == ["review", "payments"]


def test_names_are_in_the_order_of_the_alphabet() -> None:
    assert shown(sort="group")[:4] == [HOSTILE, "deaf", "gone", "payments"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"q": "PAY"}, {"payments", "pay\u202elor"}),
        ({"cluster": "orders", "q": "e"}, {"quiet", "payments", "review", "deaf"}),
        ({"state": "waiting"}, {"review"}),
        ({"state": "gates"}, {"review"}),
        ({"state": "not-followed"}, {"deaf"}),
        ({"state": "hot"}, {"pay\u202elor"}),
        ({"state": "unknown"}, {HOSTILE}),
        ({"state": "growing"}, {"payments"}),
        ({"state": "no-members"}, {"gone"}),
        ({"state": "approve"}, {"review"}),
        ({"state": "attention"}, {"review", "deaf", HOSTILE, "pay\u202elor"}),
        ({"state": "nonsense", "sort": "nonsense", "q": ""}, {row.group_id for row in ROWS}),
        ({"cluster": "nowhere"}, set()),
    ],
)
def test_filters_leave_what_they_name(query: dict[str, str], expected: set[str]) -> None:
    assert set(shown(**query)) == expected


def test_a_group_without_members_asks_for_a_look_if_somebody_waits_for_it() -> None:
    quiet = GroupRow("orders", "gone", "Empty", lag_records=0)
    behind = replace(quiet, lag_records=2_400)
    assert (quiet.signs, behind.signs) == ((Sign.NO_MEMBERS,), (Sign.NO_MEMBERS,))
    assert (quiet.asking_signs, behind.asking_signs) == (frozenset(), frozenset({Sign.NO_MEMBERS}))
    shown = [row_html(row, is_shown=True, has_clusters=False) for row in (quiet, behind)]
    assert ["attention" in row.partition("data-c")[0] for row in shown] == [False, True]


@pytest.mark.parametrize("sort", SORTS)
def test_every_column_orders_all_groups(sort: str) -> None:
    assert sorted(shown(sort=sort)) == sorted(row.group_id for row in ROWS)


def test_a_heading_s_link_turns_its_own_order_round_and_keeps_the_filters() -> None:
    choice = Choice.from_query({"q": "a&b", "state": "hot", "sort": "lag"})
    assert choice.link("lag") == "?q=a%26b&state=hot&sort=lag&order=reversed"
    assert choice.link("skew") == "?q=a%26b&state=hot&sort=skew"
    assert Choice.from_query({"sort": "lag", "order": "reversed"}).link("lag") == "?sort=lag"


@pytest.mark.parametrize(
    ("trend", "is_growing"),
    [
        ((10_000, 11_000), True),
        ((10_000, 10_999), False),
        ((20_000, 21_000), False),
        ((0, 999), False),
        ((None, 0, None, 1_000), True),
        ((0, 5_000, None), False),
        ((5_000,), False),
    ],
)
def test_a_lag_grows_from_a_tenth_and_a_thousand_records(
    trend: tuple[int | None, ...], is_growing: bool
) -> None:
    row = GroupRow("c", "g", num_members=1, lag_records=trend[-1], trend=trend)
    assert (Sign.GROWING in row.signs) is is_growing


def test_a_failed_gate_is_a_sign_only_where_it_keeps_a_hint_back() -> None:
    row = next(row for row in ROWS if row.group_id == "review")
    in_shadow = GroupRow("c", "g", num_members=1, policy_mode="shadow", plan=row.plan)
    assert Sign.GATES in row.signs
    assert Sign.GATES not in in_shadow.signs
