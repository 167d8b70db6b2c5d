"""The model against reality: the period recorded from a real broker, simulated as it really ran."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lag.speed_rows import with_speeds
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS, SNAPSHOTS, SPEEDS
from evenlag.policy.candidates import parse_candidate
from evenlag.policy.loader import parse_policy
from evenlag.policy.settings import Pauses
from spark_jobs.transforms.simulations import REPLAY, ComparisonContext, compare_one_group
from tests.recorded.period import BILLING, CLUSTER, SHIPPING, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

# The recorded consumers' heartbeat interval is 0.5 s: the medians of docs/hint-client.md for it.
PAUSES = Pauses(eager_s=0.6, moved_s=0.7, stall_s=0.15)


def simulated(group: str, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The group's replays by policy."""
    import pyarrow.compute as pc

    snapshots = read_table(SNAPSHOTS).sort_by("slot")
    policy = parse_policy(
        f"lake: /x\nclusters: {{{CLUSTER}: {{bootstrap_servers: a:1}}}}\n", environ={}
    ).policy
    context = ComparisonContext(
        policy=policy,
        cluster=CLUSTER,
        day=snapshots["day"][0].as_py(),
        compared=tuple(parse_candidate(name) for name in names),
        pauses=PAUSES,
        snapshot_ids=tuple(snapshots["snapshot_id"].to_pylist()),
        slots=tuple(snapshots["slot"].to_pylist()),
        at_us=tuple(round(1e6 * at.timestamp()) for at in snapshots["end_read_at"].to_pylist()),
        comparison_id="test",
    )
    lag, members = (
        rows.filter(pc.equal(rows["group_id"], group)) for rows in map(read_table, (LAG, MEMBERS))
    )
    rows = compare_one_group(lag, with_speeds(members, arrow_schema(SPEEDS).empty_table()), context)
    found = rows[REPLAY.name].drop_null().to_pylist()
    return {row["policy"]: row for row in found}


@pytest.mark.parametrize(
    ("group", "num_with_lag", "median", "p95", "p95_records"),
    [(BILLING, 41, 0.05, 0.1, 1_000), (SHIPPING, 2, 0.05, 0.05, 50)],
)
def test_replaying_what_really_ran_comes_near_to_the_lag_that_was_really_seen(
    group: str, num_with_lag: int, median: float, p95: float, p95_records: float
) -> None:
    """From the first snapshot alone, over joins, leaves, bounces, hints and a killed member.

    `shipping` is behind in two snapshots only: the errors are of these, whatever the idle ones are.
    """
    observed = simulated(group, ["range"])["observed"]
    assert observed["reason"] is None
    assert observed["num_snapshots"] > 40
    assert observed["median_error"] < median
    assert observed["p95_error"] < p95
    assert observed["p95_error_records"] < p95_records
    assert observed["num_error_snapshots"] == num_with_lag


def test_what_was_measured_is_kept_beside_it_by_the_time_at_which_ends_were_read() -> None:
    observed = simulated(BILLING, ["range"])["observed"]
    read_at = {row["snapshot_id"]: row["end_read_at"] for row in read_table(SNAPSHOTS).to_pylist()}
    totals: dict[str, int] = {}
    unknown = 0
    for row in read_table(LAG).to_pylist():
        if row["group_id"] == BILLING and row["status"] != "NOT_SUBSCRIBED":
            totals[row["snapshot_id"]] = totals.get(row["snapshot_id"], 0) + (row["lag_records"] or 0)
            unknown += row["lag_records"] is None
    in_order = sorted((read_at[name], total) for name, total in totals.items())
    assert observed["at"] == [seen for seen, _ in in_order]
    area = sum(
        (later - at).total_seconds() * (total + then) / 2 for (at, total), (later, then) in pairwise(in_order)
    )
    period_s = (in_order[-1][0] - in_order[0][0]).total_seconds()
    assert observed["measured_mean_lag_records"] == pytest.approx(area / period_s, rel=1e-4)
    assert observed["measured_max_lag_records"] == max(totals.values())
    assert observed["measured_max_lag_records"] != observed["max_lag_records"]
    assert observed["num_unknown_lags"] == unknown


def test_a_policy_by_lag_would_have_kept_the_hot_group_s_lag_lower() -> None:
    rows = simulated(BILLING, ["cooperative-sticky", "lag-aware-sticky"])
    means = {name: row["mean_lag_records"] for name, row in rows.items()}
    # Hints moved it on the way, so what really ran lies between the two.
    assert means["lag-aware-sticky"] < means["observed"] < means["cooperative-sticky"]
