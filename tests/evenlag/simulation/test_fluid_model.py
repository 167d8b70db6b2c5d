"""The fluid model: nothing is lost or negative, more capacity never hurts, and small steps give the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlag.simulation.fluid_model import Advanced, Servers, advance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Case = tuple[dict[str, NDArray[np.float64]], NDArray[np.int64], NDArray[np.float64], float]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rows and members with round numbers, so that events fall together."""
    num_rows, num_members = draw(st.integers(1, 7)), draw(st.integers(1, 3))

    def column(choices: list[float]) -> NDArray[np.float64]:
        values = draw(st.lists(st.sampled_from(choices), min_size=num_rows, max_size=num_rows))
        return np.array(values, dtype=np.float64)

    rows = {
        "backlog": column([0.0, 0.5, 5.0, 20.0, 100.0]),
        "arrival": column([0.0, 1.0, 3.0, 8.0]),
        "ready_s": column([0.0, 0.0, 1.0, 3.0, 50.0]),
    }
    server = np.array(draw(st.lists(st.integers(0, num_members - 1), min_size=num_rows, max_size=num_rows)))
    speeds = st.sampled_from([0.0, 2.0, 5.0, 10.0, 40.0])
    rates = st.lists(speeds, min_size=num_members, max_size=num_members)
    return rows, server, np.array(draw(rates)), draw(st.sampled_from([1.0, 7.5, 20.0]))


def run(case: Case, more: float = 0.0) -> Advanced:
    rows, server, capacity, duration_s = case
    return advance(
        rows["backlog"],
        arrival=rows["arrival"],
        servers=Servers(server),
        capacity=capacity + more,
        ready_s=rows["ready_s"],
        duration_s=duration_s,
    )


@given(cases())
def test_what_arrives_is_processed_or_waits_and_no_backlog_is_negative(case: Case) -> None:
    rows, server, capacity, duration_s = case
    done = run(case)
    after, processed = done.backlog, done.processed
    arrived = rows["arrival"] * duration_s
    assert rows["backlog"] + arrived == pytest.approx(after + processed, abs=1e-6)
    assert (after >= 0).all()
    assert (processed >= 0).all()
    by_member = np.bincount(server, processed, minlength=len(capacity))
    assert (by_member <= capacity * duration_s + 1e-6).all()
    assert (processed[rows["ready_s"] >= duration_s] == 0).all()


@given(cases(), st.sampled_from([0.5, 3.0, 100.0]))
def test_more_capacity_leaves_no_more_backlog(case: Case, more: float) -> None:
    assert (run(case, more).backlog <= run(case).backlog + 1e-6).all()


@given(cases())
def test_a_member_with_work_is_never_idle(case: Case) -> None:
    """Who has a backlog at the end that it could have served has spent its whole capacity."""
    rows, server, capacity, duration_s = case
    done = run(case)
    after, processed = done.backlog, done.processed
    is_ready = rows["ready_s"] == 0
    by_member = np.bincount(server, processed, minlength=len(capacity))
    for member in np.unique(server[is_ready & (after > 1e-6) & (rows["backlog"] > 0)]).tolist():
        waited = is_ready & (server == member) & (after > 1e-6) & (processed < rows["backlog"] - 1e-6)
        if waited.any():
            assert by_member[member] == pytest.approx(capacity[member] * duration_s, abs=1e-6)


def by_small_steps(case: Case, num_steps: int) -> NDArray[np.float64]:
    """Each member gives equal parts of what it can do in a step to whoever still has something."""
    rows, server, capacity, duration_s = case
    backlog, step_s = rows["backlog"].copy(), duration_s / num_steps
    for step in range(num_steps):
        backlog += rows["arrival"] * step_s
        # A step in which a row becomes ready counts as after it: an error of at most one step.
        is_ready = rows["ready_s"] <= step * step_s + 1e-9
        for member, rate in enumerate(capacity.tolist()):
            left = rate * step_s
            while left > 1e-12:
                open_rows = np.flatnonzero((server == member) & is_ready & (backlog > 1e-12))
                if not len(open_rows):
                    break
                given_each = min(left / len(open_rows), float(backlog[open_rows].min()))
                backlog[open_rows] -= given_each
                left -= given_each * len(open_rows)
    return backlog


@settings(max_examples=25)
@given(cases())
def test_it_is_what_many_small_steps_come_to(case: Case) -> None:
    num_steps = 300
    allowed = 3 * (case[2].max() + case[0]["arrival"].max()) * case[3] / num_steps
    assert run(case).backlog == pytest.approx(by_small_steps(case, num_steps), abs=allowed)


def test_what_a_partition_does_not_need_goes_to_the_others() -> None:
    """10 records/s for three: one without backlog takes its 2, the others 4 each, then one alone 8."""
    done = advance(
        np.array([0.0, 20.0, 100.0]),
        arrival=np.array([2.0, 0.0, 0.0]),
        servers=Servers(np.zeros(3, dtype=np.int64)),
        capacity=np.array([10.0]),
        ready_s=np.zeros(3),
        duration_s=10.0,
    )
    assert done.backlog.tolist() == pytest.approx([0.0, 0.0, 40.0])
    assert done.processed.tolist() == pytest.approx([20.0, 20.0, 60.0])


def test_a_row_that_stands_still_leaves_its_share_to_the_others() -> None:
    done = advance(
        np.array([50.0, 50.0]),
        arrival=np.zeros(2),
        servers=Servers(np.zeros(2, dtype=np.int64)),
        capacity=np.array([10.0]),
        ready_s=np.array([0.0, 2.0]),
        duration_s=4.0,
    )
    assert done.backlog.tolist() == pytest.approx([20.0, 40.0])
