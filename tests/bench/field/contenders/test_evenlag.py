"""evenlag's contenders go through the product's gates, hints and loads."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.bench.field.contenders import make_contender
from tests.bench.field.contenders.test_group import END_S, small_trace
from tests.support.each import for_each

POLICY: dict[str, Any] = {
    "load": "rate", "count_slack": 2, "max_moves": 1_000, "min_gain": 0.05, "cooldown_s": 0, "every_s": 15.0,
}  # fmt: skip
# Partitions of the first member receive nearly all.
SKEW = np.array([9, 9, 9, 9, 9, 9, 1, 1, 1, 1, 1, 1])


def play(
    name: str, changes: tuple[tuple[int, tuple[int, ...]], ...] = ((0, (0, 1)),), **settings: Any
) -> tuple[Any, list[float]]:
    """Run a contender while records arrive, more of them on the first half; return when hints came."""
    contender: Any = make_contender(name, small_trace(changes, (None,) * 4), **(POLICY | settings))
    assert contender.owner.tolist() == [0] * 6 + [1] * 6
    hints_s, now_s = [], 0.0
    while now_s < END_S:
        # The other half receives more after a while, so that there is a reason for another plan.
        end = np.rint(SKEW * min(now_s, 60.0) + SKEW[::-1] * 3 * max(0.0, now_s - 60.0)).astype(np.int64)
        contender.act(now_s, np.zeros(12, dtype=np.int64), end)
        if contender.last_hint_s == now_s:
            hints_s.append(now_s)
        now_s = contender.next_s
    return contender, hints_s


def share(owner: np.ndarray, member: int) -> float:
    """Return what part of the later arrivals a member has."""
    return float(SKEW[::-1][owner == member].sum() / SKEW.sum())


def test_it_evens_out_the_load_and_again_when_the_load_has_changed() -> None:
    contender, hints_s = play("evenlag")
    assert hints_s[0] < 60 < hints_s[-1]
    assert abs(share(contender.owner, 0) - 0.5) < 0.1
    assert contender.counts.moves > 0
    assert contender.counts.rebalances >= 2 * len(hints_s)


@for_each(
    [
        ({"cooldown_s": 600}, 1),
        ({"min_gain": 0.9}, 0),
        ({"max_moves": 0}, 0),
    ]
)
def test_gates_hold_it_back(case: tuple[dict[str, Any], int]) -> None:
    settings, num_hints = case
    contender, hints_s = play("evenlag", **settings)
    assert len(hints_s) == num_hints
    assert (contender.counts.moves > 0) == (num_hints > 0)


def test_loads_alone_move_nothing_until_the_group_changes() -> None:
    contender, hints_s = play("evenlag-loads")
    assert (hints_s, contender.counts.moves, contender.counts.rebalances) == ([], 0, 0)
    contender, _ = play("evenlag-loads", changes=((0, (0, 1)), (56, (0, 1, 2))), every_s=5.0)
    # The joiner takes half of what the first member had, and not what its count asks for.
    received = [int(SKEW[contender.owner == member].sum()) for member in range(3)]
    assert max(received) - min(received) <= max(SKEW), received


def test_a_plan_is_not_published_when_its_group_has_changed_meanwhile() -> None:
    _, quiet = play("evenlag")
    at_s = int(quiet[0])
    _, hints_s = play("evenlag", changes=((0, (0, 1)), (at_s, (0, 1, 2))))
    assert quiet[0] not in hints_s


def test_members_report_with_each_commit_how_long_their_records_took() -> None:
    """Records of cost 1 are processed at once, 20 in a busy second; a commit is five seconds old at most."""
    trace = small_trace(((0, (0, 1)),), (None, None))
    contender: Any = make_contender("evenlag-busy", trace, **POLICY)
    end = trace.arrivals(12)[0].cumsum(axis=0)
    for second in range(1, 13):
        contender.act(float(second), np.zeros(12, dtype=np.int64), end[second - 1])
    for pod in range(2):
        own = contender.owner == pod
        (reported,) = set(contender._reports.busy_ms[own].tolist())
        assert reported in [1_000 * end[second, own].sum() // 20 for second in range(6, 12)]


def test_capacities_are_the_true_speeds() -> None:
    trace = small_trace(((0, (0, 1)),), (None, None))
    contender: Any = make_contender("evenlag-capacities", trace, **POLICY)
    assert [contender.rule.capacity_of(f"pod-{number}") for number in range(2)] == [20.0, 20.0]
    assert contender.member_id(0).startswith("pod-0-")
