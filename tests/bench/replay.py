"""How far replays are off, and how wide their bounds are: ``python -m tests.bench.replay`` (two minutes).

Three comparisons of the lag of the most loaded member, at moments with lag (ten seconds of the group's
arrivals or more):

- ``snapshots``: recorded groups as they ran, at their snapshots. The lag there is known to the replay, which
  takes speeds and times of arrivals from it; so this says whether the model can repeat what it saw.
- ``between``: the same each second between the snapshots, which the replay does not know.
- ``other owners``: traces of the field, simulated second by second under one assignment, from whose snapshots
  another assignment is replayed; beside that other assignment, simulated on the same trace.

Shares, and errors relative to the true lag (or ten seconds of arrivals, if that is more). A bound that is off
by no more than a hundredth is held. ``docs/bench/replay.json`` has the result.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS
from evenlag.policy.settings import Pauses
from evenlag.simulation.estimates import Case, Estimates, estimate, estimate_speeds
from evenlag.simulation.fluid_model import Servers, advance, simulate
from evenlag.simulation.history import (
    GroupSnapshots,
    SnapshotMembers,
    build_history,
    read_snapshots,
    sum_by_member,
)
from evenlag.simulation.scenarios import ObservedScenario
from tests.bench.field.traces import SIZES, make_trace
from tests.recorded import bursts, period
from tests.support.probed_replay import simulate_probed
from tests.support.simulated_scenarios import FixedOwners, constant

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from evenlag.lag.arrays import Bools, Floats, Int32s
    from evenlag.simulation.history import History

_OUT: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "replay.json"
# The recorded consumers' heartbeat interval is 0.5 s: the medians of docs/hint-client.md for it.
_PAUSES: Final = Pauses(eager_s=0.6, moved_s=0.7, stall_s=0.15)
_IN_FLIGHT_S: Final = 10.0
_WIDE: Final = 0.25
_ROUNDING: Final = 0.01
_SEEDS: Final = range(2)
_SPEED: Final = 100.0
_LENGTH_S: Final = 3_600


def error_figures(true: Floats, replayed: Floats, floor: Floats, counts: Bools) -> dict[str, Any]:
    """Compare the true lag [N] with the replayed one, in all cases [3, N]."""
    true, floor, replayed = true[counts], floor[counts], replayed[:, counts]
    if not len(true):
        return {"moments": 0}
    scale = np.maximum(true, floor)
    error = np.abs(replayed[Case.LIKELY] - true) / scale
    allowed = np.maximum(_ROUNDING * true, 1.0)
    is_within = (true >= replayed[Case.LEAST] - allowed) & (true <= replayed[Case.MOST] + allowed)
    is_wide = replayed[Case.MOST] - replayed[Case.LEAST] > _WIDE * np.maximum(replayed[Case.LIKELY], floor)
    return {
        "moments": len(true),
        "median_error": round(float(np.median(error)), 3),
        "p95_error": round(float(np.percentile(error, 95)), 3),
        "mean_lag": round(float(true.mean())),
        "mean_replayed_lag": round(float(replayed[Case.LIKELY].mean())),
        "within_bounds": round(float(is_within.mean()), 3),
        "wide_bounds": round(float(is_wide.mean()), 3),
    }


def at_snapshots(history: History, estimates: Estimates) -> dict[str, Any]:
    """Compare the replay of what really ran with the measured lag, at the snapshots after the first."""
    simulated = simulate(history, [ObservedScenario(history, _PAUSES, estimates.has_stops)], estimates)
    lag = np.where(history.known, history.lag, 0.0)
    num_members = len(history.member_keys)
    true = sum_by_member(history.owner, history.owner >= 0, lag, num_members).max(axis=1)
    floor = _floor(history)
    counts = _is_shown(history) & (np.maximum(lag.sum(axis=1), simulated.backlog[:, 0].sum(axis=1)) >= floor)
    counts[0] = False
    return error_figures(true, simulated.max_member_lag[:, :, 0], floor, counts)


def _is_shown(history: History) -> Bools:
    """Whether the members and some lag are known: bool [S]."""
    shown = np.array([bool(group.members) and group.blocker is None for group in history.groups])
    return np.asarray(shown & history.known.any(axis=1))


def _floor(history: History) -> Floats:
    """The arrivals of ten seconds, before each snapshot: [S]."""
    rate = np.append(0.0, history.arrived.sum(axis=1) / history.interval_s)
    return np.maximum(_IN_FLIGHT_S * rate, 1.0)


def between_snapshots(history: History, estimates: Estimates, group: str) -> dict[str, Any]:
    """Compare each second of the intervals in which the members and their partitions stayed."""
    at_s, end, position = _seconds(group)
    place = np.searchsorted(history.at_s, at_s, side="right") - 1
    inside = (place >= 0) & (place < history.num_snapshots - 1)
    shown = _is_shown(history)
    stable = shown[:-1] & shown[1:] & (history.owner[:-1] == history.owner[1:]).all(axis=1)
    stable &= ~(estimates.is_set | history.may_lose)[1:].any(axis=1)
    chosen = inside & stable[place.clip(0, len(stable) - 1)]
    at_s, place = at_s[chosen], place[chosen]
    scenario = ObservedScenario(history, _PAUSES, estimates.has_stops)
    _, probed = simulate_probed(history, [scenario], estimates, at_s)
    lag = (end - position)[chosen]
    owner = history.owner[place]
    true = sum_by_member(owner, owner >= 0, lag, len(history.member_keys)).max(axis=1)
    replayed = probed[:, :, 0].T
    floor = _floor(history)[place + 1]
    return error_figures(true, replayed, floor, np.maximum(lag.sum(axis=1), replayed[0]) >= floor)


def _seconds(group: str) -> tuple[Floats, Floats, Floats]:
    """When the offsets of a group were read, and its ends and positions [T], [T, P]."""
    import pyarrow.compute as pc

    rows = bursts.read("seconds")
    rows = rows.filter(pc.equal(rows["group_id"], group)).sort_by(
        [("at", "ascending"), ("partition", "ascending")]
    )
    num_partitions = len(pc.unique(rows["partition"]))
    at_s = rows["at"].cast("int64").to_numpy()[::num_partitions] / 1e6
    start, end, committed = (
        rows[name].to_numpy().astype(np.float64).reshape(-1, num_partitions)
        for name in ("log_start", "end", "committed")
    )
    return at_s, end, np.fmax(committed, start)


def recorded_history(
    group: str, lag: pa.Table, members: pa.Table, snapshots: pa.Table, every: int
) -> History:
    """Build the history of a group from each so many snapshots."""
    import pyarrow as pa
    import pyarrow.compute as pc

    snapshots = snapshots.sort_by("end_read_at")
    snapshots = snapshots.take(pa.array(range(0, snapshots.num_rows, every)))
    ids = snapshots["snapshot_id"].combine_chunks()
    at_s = snapshots["end_read_at"].cast("int64").to_numpy() / 1e6
    lag, members = (
        rows.filter(pc.and_(pc.equal(rows["group_id"], group), pc.is_in(rows["snapshot_id"], value_set=ids)))
        for rows in (lag, members)
    )
    return build_history(read_snapshots(lag, members, ids.to_pylist(), at_s)[0])


def recorded() -> Iterator[dict[str, Any]]:
    """Compare the recorded groups as they ran."""
    tables = [period.read_table(table) for table in (LAG, MEMBERS, SNAPSHOTS)]
    cases = [(group, 1, tables) for group in (period.BILLING, period.SHIPPING)]
    tables = [bursts.read(name) for name in ("lag", "members", "snapshots")]
    cases += [(group, every, tables) for group in (bursts.PAYMENTS, bursts.REFUNDS) for every in (1, 3, 6)]
    for group, every, (lag, members, snapshots) in cases:
        history = recorded_history(group, lag, members, snapshots, every)
        estimates = estimate(history)
        named = {"of": group, "interval_s": round(float(np.median(history.interval_s)))}
        even = constant(history, estimate_speeds(history).likely)
        yield named | {"what": "snapshots", "even_arrivals": True} | at_snapshots(history, even)
        yield named | {"what": "snapshots"} | at_snapshots(history, estimates)
        if tables[0] is lag:
            yield named | {"what": "between"} | between_snapshots(history, estimates, group)


def true_lag(arrivals: Floats, owner: Int32s, speed: Floats) -> Floats:
    """Simulate a trace second by second: lag [T + 1, P]."""
    backlog = np.zeros((len(arrivals) + 1, len(owner)))
    servers = Servers(owner.astype(np.int64))
    for second, records in enumerate(arrivals):
        backlog[second + 1] = advance(
            backlog[second],
            arrival=records,
            servers=servers,
            capacity=speed,
            ready_s=np.zeros(len(owner)),
            duration_s=1.0,
        ).backlog
    return backlog


def history_of_trace(arrivals: Floats, lag: Floats, owner: Int32s, num_pods: int, every_s: int) -> History:
    """Build the history that snapshots would show."""
    seconds = np.arange(0, len(lag), every_s)
    end = np.vstack([np.zeros(len(owner)), np.cumsum(arrivals, axis=0)])[seconds]
    names = tuple(f"pod-{number:02d}" for number in range(num_pods))
    members = SnapshotMembers(tuple((name, None, ("t",)) for name in names), "range")
    cells = len(seconds) * len(owner)
    return build_history(
        GroupSnapshots(
            snapshot=np.repeat(np.arange(len(seconds)), len(owner)),
            topic=np.zeros(cells, dtype=np.int64),
            topic_id=np.zeros(cells, dtype=np.int64),
            partition=np.tile(np.arange(len(owner)), len(seconds)),
            lag=lag[seconds].ravel(),
            start=np.zeros(cells),
            end=end.ravel(),
            age_s=np.full(cells, np.nan),
            owner=np.tile(owner, len(seconds)).astype(np.int64),
            at_s=seconds.astype(np.float64),
            topics=("t",),
            member_ids=names,
            groups=(members,) * len(seconds),
        )
    )


def bursty_arrivals(seed: int, num_partitions: int, num_pods: int) -> Floats:
    """Steady arrivals of a third of the pods' speed, and bursts of 5 to 60 s of a pod's work in a second.

    A burst on any partition each 20 s: 27 % of the pods' speed.
    """
    chance = np.random.default_rng([40, 1, seed])
    weights = chance.dirichlet(np.full(num_partitions, 4.0))
    arrivals = chance.poisson(_SPEED * num_pods / 3 * weights, (_LENGTH_S, num_partitions)).astype(np.float64)
    num_bursts = _LENGTH_S // 20
    at_s = chance.integers(0, _LENGTH_S, num_bursts)
    np.add.at(
        arrivals,
        (at_s, chance.integers(0, num_partitions, num_bursts)),
        _SPEED * chance.uniform(5, 60, num_bursts),
    )
    return arrivals


def walking_arrivals(seed: int, num_partitions: int, num_pods: int) -> Floats:
    """The field's random walks at 75 %."""
    size = SIZES["simulation"]._replace(
        num_partitions=num_partitions, num_pods=num_pods, duration_s=_LENGTH_S, speed=_SPEED
    )
    return make_trace("walks", seed, 0.75, size).arrivals(num_partitions)[0].astype(np.float64)


_TRACES: Final = {"walks": walking_arrivals, "bursts": bursty_arrivals}
_PODS, _PARTITIONS = 6, 24


@cache
def _trace(name: str, seed: int) -> tuple[Floats, Int32s, Int32s, Floats, Floats]:
    """Arrivals of a trace, two assignments, and the true lag under each."""
    arrivals = _TRACES[name](seed, _PARTITIONS, _PODS)
    owners = np.arange(_PARTITIONS, dtype=np.int32) % _PODS
    others = np.random.default_rng([40, seed]).permutation(owners)
    speed = np.full(_PODS, _SPEED)
    return arrivals, owners, others, true_lag(arrivals, owners, speed), true_lag(arrivals, others, speed)


def other_owners(name: str, seed: int, every_s: int, *, even: bool) -> tuple[Floats, Floats, Floats, Bools]:
    """Replay other owners than those of the history: true and replayed lag, floor, and which count."""
    arrivals, owners, others, lag, other_lag = _trace(name, seed)
    history = history_of_trace(arrivals, lag, owners, _PODS, every_s)
    estimates = constant(history, estimate_speeds(history).likely) if even else estimate(history)
    simulated = simulate(history, [FixedOwners(others.tolist())], estimates)
    other_lag = other_lag[::every_s]
    of_members = np.broadcast_to(others, other_lag.shape)
    true = sum_by_member(of_members, np.ones(other_lag.shape, np.bool_), other_lag, _PODS).max(axis=1)
    floor = _floor(history)
    counts = other_lag.sum(axis=1) >= floor
    counts[0] = False
    return true, simulated.max_member_lag[:, :, 0], floor, counts


def simulated_traces() -> Iterator[dict[str, Any]]:
    """Compare other owners on the traces of the field."""
    for every_s in (10, 60, 300):
        for name in _TRACES:
            for even in (True, False):
                parts = [other_owners(name, seed, every_s, even=even) for seed in _SEEDS]
                joined = [np.concatenate(each, axis=-1) for each in zip(*parts, strict=True)]
                label = {"of": name, "interval_s": every_s, "what": "other owners"}
                yield label | ({"even_arrivals": True} if even else {}) | error_figures(*joined)


def main(argv: list[str]) -> int:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(prog="tests.bench.replay", description=__doc__)
    parser.add_argument("--out", type=Path, default=_OUT, help="the result")
    arguments = parser.parse_args(argv)
    rows = []
    for row in (*recorded(), *simulated_traces()):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        rows.append(row)
    lines = ",\n ".join(json.dumps(row) for row in rows)
    arguments.out.write_text(f"[{lines}]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
