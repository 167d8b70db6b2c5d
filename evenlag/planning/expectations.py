"""What a plan is expected to lead to, with intervals, and whether that held.

The predictions of ``forecasts`` are for the present assignment, with intervals of 90 % by their past errors.
A plan's are these, changed by what the model of waiting says of the plan and of staying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlag.lag.group_lag import GroupLag
    from evenlag.planning.time_plans import TimePlan

_LAG, _WAIT = "total_lag_records", "time_lag_ms"
# A prediction is not scored by a snapshot that is so much earlier or later than it was made for.
_MOST_OFF: Final = 0.5


class Expected(NamedTuple):
    """A prediction so many seconds ahead; the bounds are None before enough of them were scored."""

    measure: str
    is_horizon: bool
    ahead_s: float
    predicted: float
    lower: float | None
    upper: float | None


def expected_of(predictions: Iterable[Mapping[str, Any]] | None) -> tuple[Expected, ...]:
    """Return the newest predictions of a row of ``forecasts``: of the group's lag and its time behind."""
    return tuple(
        Expected(*(row[name] for name in Expected._fields))
        for row in predictions or ()
        if row["measure"] in {_LAG, _WAIT} and row["predicted"] is not None and row["ahead_s"] is not None
    )


def expect_plan(staying: Sequence[Expected], time: TimePlan | None) -> list[dict[str, Any]] | None:
    """Return what is expected with a plan, for its row of ``plans``; None if that is not known."""
    if time is None or not staying:
        return None
    return [_with_plan(each, time)._asdict() for each in staying]


def _with_plan(each: Expected, time: TimePlan) -> Expected:
    ends_s = time.stay.step_s * np.arange(1, len(time.stay.lag) + 1)
    scale, more = 1.0, 0.0
    if each.measure == _LAG:
        change = np.append(0.0, time.planned.lag - time.stay.lag)
        more = float(np.interp(each.ahead_s, np.append(0.0, ends_s), change))
    else:
        stay, planned = (
            float(np.interp(each.ahead_s, ends_s, one.largest_wait_s)) for one in (time.stay, time.planned)
        )
        # Of hardly any waiting, a plan's stop would be many times as much.
        scale, more = (planned / stay, 0.0) if planned < stay else (1.0, 1000 * (planned - stay))
    changed = (
        None if value is None else max(scale * value + more, 0.0)
        for value in (each.predicted, each.lower, each.upper)
    )
    return Expected(each.measure, each.is_horizon, each.ahead_s, *changed)  # type: ignore[arg-type]  # not None


def score_expected(
    head: Mapping[str, Any], marker: Mapping[str, Any], actual: GroupLag | None, *, is_horizon: bool
) -> list[dict[str, Any]] | None:
    """Return how a plan's predictions for the next snapshot, or for the horizon, came true; None: unknown.

    head: Its row of ``plans``. marker: Of the snapshot. actual: The group's lag in it.
    """
    if actual is None or actual.num_unknown_partitions:
        return None
    passed_s = (marker["slot"] - head["slot"]).total_seconds()
    found = {_LAG: actual.total_lag_records, _WAIT: actual.time_lag_ms}
    scored = []
    for each in head["expected"] or ():
        value, is_near = (
            found[each["measure"]],
            abs(passed_s - each["ahead_s"]) <= _MOST_OFF * each["ahead_s"],
        )
        if each["is_horizon"] is not is_horizon or value is None or not is_near:
            continue
        held = None if each["lower"] is None else bool(each["lower"] <= value <= each["upper"])
        names = ("measure", "predicted", "lower", "upper")
        scored.append({name: each[name] for name in names} | {"actual": float(value), "held": held})
    return scored or None
