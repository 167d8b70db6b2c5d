"""One group's history with every candidate: each snapshot is scored, and the period is simulated."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assignor_core.algorithms.partition_classes import classes_of
from assignor_core.errors import AssignorError
from evenlag.policy.candidates import OBSERVED, Candidate, CandidateSettings
from evenlag.simulation.estimates import Case, Estimates, KnownSpeeds, estimate
from evenlag.simulation.fluid_model import Simulated, simulate
from evenlag.simulation.history import History, Structure, sum_by_member
from evenlag.simulation.replay_metrics import (
    ScenarioMetrics,
    count_unknown_ages,
    measure_history,
    measure_scenarios,
    model_error,
    wide_share,
)
from evenlag.simulation.scenarios import CandidateScenario, ObservedScenario, Planner, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assignor_core.group import Group
    from evenlag.lag.arrays import Bools, Floats, Int32s, Int64s
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Pauses

_NEVER = np.iinfo(np.int64).max // 2


def score_snapshots(group: Group, lag: Floats, before: Int32s, after: Int32s) -> dict[str, NDArray[Any]]:
    """Score assignments in R snapshots, by lag [R, P] and by owners before and after, int32 [R, P].

    Returns columns of ``comparisons``, [R] each: the metrics of :func:`assignor_core.metrics.measure` and
    related functions, vectorized over snapshots.
    """
    num_snapshots, num_members = len(lag), group.num_members
    by_member = partial(sum_by_member, num_members=num_members)
    counts = by_member(after, after >= 0, None).astype(np.int64)
    lags = by_member(after, after >= 0, lag)
    largest, mean = lags.max(axis=1, initial=0.0), lags.mean(axis=1)
    held_before = by_member(before, before >= 0, lag).max(axis=1, initial=0.0)
    ranks = 2 * np.arange(num_members) - num_members + 1
    bound = lag_bound(group, lag)
    return {
        "num_unassigned_partitions": (after < 0).sum(axis=1),
        "moves": ((before >= 0) & (before != after)).sum(axis=1),
        "min_member_partitions": counts.min(axis=1, initial=_NEVER),
        "max_member_partitions": counts.max(axis=1, initial=0),
        "count_gap": _count_gaps(group, after, counts),
        "balance_score": (ranks * np.sort(counts, axis=1)).sum(axis=1),
        "max_member_lag_records": np.rint(largest).astype(np.int64),
        "mean_member_lag_records": mean,
        "lag_skew": np.divide(largest, mean, out=np.ones(num_snapshots), where=largest > 0),
        "lower_bound_records": bound,
        "optimality_gap": np.divide(largest, bound, out=np.ones(num_snapshots), where=bound > 0) - 1.0,
        "gain": 1.0 - np.divide(largest, held_before, out=np.ones(num_snapshots), where=held_before > 0),
    }


def lag_bound(group: Group, lag: Floats) -> Floats:
    """Return a lower bound of the largest member lag over all assignments: [R] records.

    The maximum of: the lag of one partition; the lag that only a set of members subscribes to, divided by
    their number; and all lag divided by the number of members. The same as `LoadPlan.bound` for equal
    capacities.
    """
    classes = classes_of(group)
    taken = classes.class_of_row >= 0
    if not taken.any():
        return np.zeros(len(lag))
    member_of = np.zeros((int(taken.sum()), len(classes.size)))
    member_of[np.arange(len(member_of)), classes.class_of_row[taken]] = 1.0
    by_class = lag[:, taken] @ member_of
    outside = classes.eligible.astype(np.int64) @ (~classes.eligible).astype(np.int64).T
    shares = by_class @ (outside == 0) / classes.eligible.sum(axis=1)
    by_all = by_class.sum(axis=1) / classes.eligible.any(axis=0).sum()
    single = lag[:, taken].max(axis=1)
    return np.asarray(np.maximum(np.maximum(shares.max(axis=1), by_all), single))


def _count_gaps(group: Group, owner: Int32s, counts: Int64s) -> Int64s:
    """As :func:`assignor_core.verify.largest_count_gap`, by partition classes: [R]."""
    classes = classes_of(group)
    num_snapshots, num_members = counts.shape
    num_classes = len(classes.size)
    if not num_classes:
        return np.zeros(num_snapshots, dtype=np.int64)
    held_rows = (owner >= 0) & (classes.class_of_row >= 0)
    cell = (np.arange(num_snapshots)[:, None] * num_classes + classes.class_of_row) * num_members + owner
    held = np.bincount(cell[held_rows], minlength=num_snapshots * num_classes * num_members)
    held = held.reshape(num_snapshots, num_classes, num_members)
    most = np.where(held > 0, counts[:, None, :], 0).max(axis=2)
    least = np.where(classes.eligible, counts[:, None, :], _NEVER).min(axis=2)
    return np.asarray(np.where(most > 0, most - least, 0).max(axis=1).clip(min=0))


_TOO_FEW: Final = "a simulation needs at least two snapshots"
_NO_ROWS: Final = "no partition of the group was read"
_NO_MEMBERS: Final = "the group has no members"
_NO_LAG: Final = "no snapshot before the last one knows the lag of a partition"
_ALL_UNKNOWN: Final = "the lag of no partition is known"


# Scores without a lower bound: unknown where any lag is.
_OF_ALL_LAGS: Final = ("mean_member_lag_records", "lag_skew", "optimality_gap", "gain")


class ScoredSnapshots(NamedTuple):
    """Rows of ``comparisons`` of R snapshots with the same members, subscriptions and partitions.

    places: int64 [R], indices of the snapshots in the history.
    columns: By name the values [R], or the value of all rows: scores, or the ``reason`` why there are none.
    """

    places: Int64s
    columns: dict[str, Any]


def score_group(
    history: History, rule: GroupSettings, compared: Sequence[Candidate]
) -> Iterator[ScoredSnapshots]:
    """Score the observed assignment of every snapshot, and each candidate's from there, or say why not."""
    contenders: list[tuple[dict[str, Any], Planner | None]] = [({"policy": OBSERVED}, None)]
    for policy in compared:
        settings = policy.settings_for(rule)
        contenders.append((_policy_columns(policy, settings), Planner(policy, settings)))
    blockers = np.array([snapshot.blocker or "" for snapshot in history.groups], dtype=object)
    blockers[(blockers == "") & (history.structure < 0)] = _NO_MEMBERS
    for names, planner in contenders:
        for reason in sorted(set(blockers.tolist()) - {""}):
            yield ScoredSnapshots(np.flatnonzero(blockers == reason), names | {"reason": reason})
        for number, structure in enumerate(history.structures):
            group = structure.group
            shared = names | {"num_members": group.num_members, "num_partitions": group.num_partitions}
            places = np.flatnonzero((history.structure == number) & (blockers == ""))
            # A group without partitions has another reason, see _score.
            is_known = history.known[np.ix_(places, structure.rows)].any(axis=1) | (not len(structure.rows))
            if len(unknown := places[~is_known]):
                yield ScoredSnapshots(unknown, shared | {"reason": _ALL_UNKNOWN})
            if len(places := places[is_known]):
                yield ScoredSnapshots(places, shared | _score(history, structure, places, planner))


def _policy_columns(policy: Candidate, settings: CandidateSettings) -> dict[str, Any]:
    return {"policy": policy.name, "assignor": policy.assignor, "settings": settings.canonical_json()}


def _score(history: History, structure: Structure, places: Int64s, planner: Planner | None) -> dict[str, Any]:
    """Score the observed assignment, or that of a planner, in some snapshots; or say why not."""
    group, rows = structure.group, structure.rows
    if not group.num_partitions:
        return {"reason": _NO_ROWS}
    measured = history.lag[np.ix_(places, rows)]
    is_unknown: Bools = np.isnan(measured)
    lag = np.where(is_unknown, 0.0, measured)
    owner = structure.place[history.owner[np.ix_(places, rows)]]
    after = owner
    if planner is not None:
        rates = _rates_before(history, places, rows)
        whole = lag.astype(np.int64)
        try:
            after = np.stack(
                [
                    planner.target(group.with_state(owner[i], whole[i]), rates[i], is_unknown[i])
                    for i in range(len(places))
                ]
            )
        except AssignorError as error:
            return {"reason": str(error)}
    scores = score_snapshots(group, lag, owner, after)
    for name in _OF_ALL_LAGS:
        scores[name] = np.where(is_unknown.any(axis=1), np.nan, scores[name])
    return scores | {"num_unknown_partitions": is_unknown.sum(axis=1)}


def _rates_before(history: History, places: Int64s, rows: Int64s) -> Floats:
    """Arrivals in the interval before each snapshot, in records per second; NaN at the first: [R, P]."""
    rates = np.full(history.live.shape, np.nan)
    rates[1:] = history.arrived / history.interval_s[:, None]
    found: Floats = rates[np.ix_(places, rows)]
    return found


def simulate_group(
    history: History,
    rule: GroupSettings,
    compared: Sequence[Candidate],
    pauses: Pauses,
    known: KnownSpeeds | None = None,
) -> list[dict[str, Any]]:
    """Simulate the observed scenario and each candidate: one row of ``replays`` each, or with a reason."""
    settings = [policy.settings_for(rule) for policy in compared]
    names: list[dict[str, Any]] = [{"policy": OBSERVED} | measure_history(history)]
    names += map(_policy_columns, compared, settings)
    fixed = {
        "period_start": _moment(history.at_s[0]),
        "period_end": _moment(history.at_s[-1]),
        "num_snapshots": history.num_snapshots,
    }
    reason = replay_blocker(history)
    if reason is not None:
        return [fixed | name | {"reason": reason} for name in names]
    relative = np.array(rule.configured_capacities(history.instance_ids))
    estimates = estimate(history, relative, known)
    scenarios: list[Scenario] = [ObservedScenario(history, pauses, estimates.has_stops)]
    scenarios += [
        CandidateScenario(history, pauses, policy, each, estimates.speed[Case.LIKELY])
        for policy, each in zip(compared, settings, strict=True)
    ]
    try:
        simulated = simulate(history, scenarios, estimates)
    except AssignorError as error:
        return [fixed | name | {"reason": str(error)} for name in names]
    measured = measure_scenarios(history, estimates, simulated)
    fixed |= _of_history(history, estimates)
    rows = [
        fixed
        | name
        | _of_scenario(measured, simulated, number, scenario)
        | _bounds(history, measured, simulated, number)
        for number, (name, scenario) in enumerate(zip(names, scenarios, strict=True))
    ]
    for row, policy in zip(rows[1:], compared, strict=True):
        row["protocol"] = policy.protocol
    rows[0] |= model_error(history, simulated.backlog[:, 0])
    return rows


def replay_blocker(history: History) -> str | None:
    """Return why a history cannot be simulated; None if it can."""
    if history.num_snapshots < 2:  # noqa: PLR2004 - an interval has two ends
        return _TOO_FEW
    if not history.live.any():
        return _NO_ROWS
    if not len(history.structures):
        return _NO_MEMBERS
    # A replay needs an interval that starts with a known lag: an unknown lag is not a lag of 0.
    begun = history.begun
    return None if (begun[:-1] & begun[1:]).any() else _NO_LAG


def _of_history(history: History, estimates: Estimates) -> dict[str, Any]:
    return {
        "num_partitions": history.live.shape[1],
        "num_members": len(history.member_keys),
        "at": [_moment(at_s) for at_s in history.at_s.tolist()],
        "drain_from": _moment(history.at_s[history.most_lag]),
        "arrived_records": round(float(history.arrived.sum())),
        "num_observed_capacities": int(estimates.is_observed.sum()),
        "num_assumed_capacities": int((~estimates.is_observed).sum()),
        "num_unknown_ages": count_unknown_ages(history),
        "unknown_share": _unknown_share(history),
        "num_unknown_partitions": int((~history.known.any(axis=0)).sum()),
    }


def _unknown_share(history: History) -> float:
    """Share of the partitions' time before their lag was first measured; no metric includes it."""
    interval_s = history.interval_s[:, None]
    there = history.live[:-1] & history.live[1:]
    replayed_s = float(((there & history.begun[:-1]) * interval_s).sum())
    return 1.0 - replayed_s / float((there * interval_s).sum())


def _of_scenario(
    measured: ScenarioMetrics, simulated: Simulated, number: int, scenario: Scenario
) -> dict[str, Any]:
    lag, drain_ms, counts = measured.lag[number], measured.drain_time_ms[number], scenario.counts
    waiting = simulated.waiting[number]
    return {
        "lag_records": _whole(lag),
        "max_member_lag_records": _whole(measured.max_member_lag[Case.LIKELY, number]),
        "time_lag_ms": _whole(measured.time_lag_ms[number]),
        "mean_lag_records": float(measured.mean_lag[Case.LIKELY, number]),
        "max_lag_records": round(float(lag.max())),
        "max_time_lag_ms": round(float(measured.time_lag_ms[number].max())),
        "drain_time_ms": None if np.isnan(drain_ms) else round(float(drain_ms)),
        "moves": counts.moves,
        "takeover_moves": counts.takeover_moves,
        "rebalances": counts.rebalances,
        "forced_rebalances": counts.forced_rebalances,
        "paused_ms": round(1000 * counts.paused_s),
        "processed_records": round(float(simulated.processed[:, number].sum())),
        "waiting_p50_ms": round(1000 * waiting.p50_s),
        "waiting_p95_ms": round(1000 * waiting.p95_s),
        "waiting_p99_ms": round(1000 * waiting.p99_s),
        "record_s": waiting.record_s,
        "record_s_above_5s": waiting.record_s_above_5s,
        "record_s_above_30s": waiting.record_s_above_30s,
        "record_s_above_300s": waiting.record_s_above_300s,
    }


def _bounds(history: History, measured: ScenarioMetrics, simulated: Simulated, number: int) -> dict[str, Any]:
    """What the snapshots leave open, from the least to the most."""
    lag, area = measured.max_member_lag[:, number], simulated.lag_records_s[:, :, number].sum(axis=1)
    record_s = simulated.waiting[number].record_s
    # The area under the lag, less that under the first backlog.
    least_s, most_s = (area[Case.LEAST :] - (area[Case.LIKELY] - record_s)).clip(min=0.0)
    peak = lag.max(axis=1)
    return {
        "peak_member_lag_records": round(float(peak[Case.LIKELY])),
        "least_member_lag_records": _whole(lag[Case.LEAST]),
        "most_member_lag_records": _whole(lag[Case.MOST]),
        "least_peak_member_lag_records": round(float(peak[Case.LEAST])),
        "most_peak_member_lag_records": round(float(peak[Case.MOST])),
        "least_record_s": min(float(least_s), record_s),
        "most_record_s": max(float(most_s), record_s),
        "wide_share": wide_share(history, measured.lag[number], lag),
    }


def _whole(values: Floats) -> list[int]:
    whole: list[int] = np.rint(values).astype(np.int64).tolist()
    return whole


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(float(at_s), UTC)
