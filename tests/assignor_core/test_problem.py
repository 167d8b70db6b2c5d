"""Problems and answers as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assignor_core.errors import ProblemError
from assignor_core.problem import parse_problem, read_problem, solve

EXAMPLE: dict[str, Any] = {
    "assignor": "sticky",
    "topics": {"t0": 8, "t1": 4},
    "members": [
        {
            "id": "c0",
            "instance": "pod-0",
            "rack": "a",
            "topics": ["t0", "t1", "gone"],
            "owned": [["t0", 0], ["gone", 3]],
            "generation": 5,
        }
    ],
    "lags": {"t0": [10, 0, 0, 0, 0, 0, 0, 0]},
    "racks": {"t0": [["a", "b"], ["b"]]},
}


def test_example_of_the_design_is_answered_in_its_form() -> None:
    answer = solve(parse_problem(json.dumps(EXAMPLE)))
    assert list(answer) == ["assignor", "assignment", "unassigned", "metrics", "assign_ms"]
    everything = [["t0", p] for p in range(8)] + [["t1", p] for p in range(4)]
    assert answer["assignor"] == "sticky"
    assert answer["assignment"] == {"c0": everything}
    assert answer["unassigned"] == []
    assert answer["metrics"]["max_member_lag_records"] == 10
    assert answer["assign_ms"] > 0


def test_first_phase_withholds_and_rounds_settle() -> None:
    problem = read_problem(
        {
            "topics": {"t": 2, "alone": 1},
            "members": [
                {"id": "a", "topics": ["t"], "owned": [["t", 0], ["t", 1]], "generation": 1},
                {"id": "b", "topics": ["t"]},
            ],
        }
    )
    first = solve(problem, "cooperative-sticky")
    assert first["assignment"] == {"a": [["t", 0]], "b": []}
    assert first["unassigned"] == [["alone", 0], ["t", 1]]
    for name in ("cooperative-sticky", "lag-aware-sticky", "constrained-cooperative-sticky"):
        last = solve(problem, name, to_the_end=True)
        assert last["rounds"] == 2 or name == "lag-aware-sticky"
        assert len(last["assignment"]["a"]) + len(last["assignment"]["b"]) == 2


def test_plan_made_once_is_completed_without_a_new_budget() -> None:
    problem = read_problem(
        {
            "topics": {"t": 8},
            "members": [
                {"id": "a", "topics": ["t"], "owned": [["t", p] for p in range(8)], "generation": 1},
                {"id": "b", "topics": ["t"]},
            ],
            "lags": {"t": [10] * 8},
        }
    )
    answer = solve(problem, "lag-aware-sticky", to_the_end=True, max_moves=2)
    assert (answer["rounds"], answer["metrics"]["moves"]) == (2, 2)
    assert len(answer["assignment"]["b"]) == 2


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"topics": []}, "topics: an object is wanted"),
        ({"topics": {"t": True}}, r"topics.t: a whole number is wanted, not True"),
        ({"topics": {"t": 1.5}}, r"topics.t: a whole number"),
        ({"topics": {"t": 10**9}}, "more than 20000000 partitions"),
        ({"members": {}}, "members: a list is wanted"),
        ({"members": [{}]}, r"members\[0\] has no 'id'"),
        ({"members": [{"id": 7}]}, r"members\[0\].id: text is wanted"),
        ({"members": [{"id": "a", "topics": "t"}]}, r"members\[0\].topics: a list is wanted"),
        ({"members": [{"id": "a", "owned": [["t", "0"]]}]}, r"members\[0\].owned\[0\]\[1\]: a whole number"),
        ({"members": [{"id": "a"}, {"id": "a"}]}, "member 'a' is repeated"),
        ({"lags": {"t0": [1, -1]}}, r"lags.t0\[1\]: a whole number from 0 to"),
        ({"lags": {"t0": [2**63]}}, r"lags.t0\[0\]: a whole number"),
        ({"lags": {"t0": 3}}, "lags.t0: a list is wanted"),
        ({"racks": {"t0": ["a"]}}, r"racks.t0\[0\]: a list is wanted"),
        ({"assignor": 3}, "the problem.assignor: text is wanted"),
        ({"memebers": []}, "the problem has an unknown key 'memebers'; did you mean 'members'"),
        (
            {"members": [{"id": "a", "ownd": []}]},
            r"members\[0\] has an unknown key 'ownd'; did you mean 'owned'",
        ),
        ({"topics": {"t": -1}}, r"topics.t: a whole number from 0 to"),
        ({"topics": {"t": 10**12}}, "more than 20000000 partitions"),
        ({"topics": {"": 1}}, "topics: text is wanted, not an empty one"),
        ({"topics": {"\ud800": 1}}, "half a surrogate pair"),
        ({"lags": {"t0": [1]}}, "lags.t0: 1 lags for"),
        ({"lags": {"t0": [1] * 99}}, "lags.t0: 99 lags for"),
        ({"lags": {"tt0": []}}, "lags.tt0: topics has no such topic; did you mean 't0'"),
        ({"racks": {"x": []}}, "racks.x: topics has no such topic$"),
        ({"racks": {"t0": [["a"]] * 99}}, "racks.t0: 99 racks for"),
        (
            {"topics": {"t": 2}, "lags": {}, "racks": {}, "members": [{"id": "a", "owned": [["t", 5]]}]},
            r"members\[0\].owned\[0\]: topic 't' has 2 partitions, no 5",
        ),
        ({"members": [{"id": "a", "owned": [["t", -1]]}]}, r"owned\[0\]\[1\]: a whole number from 0 to"),
        ({"members": [{"id": "a", "generation": 2**31}]}, "generation: a whole number from -1 to"),
        (
            {"members": [{"id": "a", "instance": "i"}, {"id": "b", "instance": "i"}]},
            r"members\[1\].instance: 'i' is members\[0\]'s too",
        ),
        ({"members": [{"id": ""}]}, r"members\[0\].id: text is wanted, not an empty one"),
    ],
)
def test_malformed_problem_says_what_and_where(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ProblemError, match=match):
        read_problem({**EXAMPLE, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "NaN",
        "3",
        '{"topics": {}}',
        '{"topics": {"t": 1}, "topics": {"t": 2}, "members": []}',
        '{"topics": {"t": 1}, "members": [], "lags": {"t": [Infinity]}}',
        '{"topics": {"t": 1}, "members": [], "lags": {"t": [1e400]}}',
        '{"topics": {"t": ' + "1" * 5_000 + '}, "members": []}',
        '{"topics": {"\udcff": 1}, "members": []}',
    ],
)
def test_text_that_is_no_problem_is_refused(text: str) -> None:
    with pytest.raises(ProblemError):
        parse_problem(text)


def test_assignor_must_be_named_somewhere() -> None:
    with pytest.raises(ProblemError, match="names no assignor"):
        solve(read_problem({"topics": {}, "members": []}))
