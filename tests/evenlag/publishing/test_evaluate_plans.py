"""Evaluations: each published plan once, by the first snapshot after its horizon, with what it has saved."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import LAG, MEMBERS, OUTCOMES, PLAN_EVALUATIONS, PLANS, SNAPSHOTS
from evenlag.policy.group_settings import BackOff, GroupSettings
from evenlag.publishing import plan_outcomes
from evenlag.publishing.event_log import append_plan_events
from evenlag.publishing.plan_outcomes import read_published, score_plans
from spark_jobs.steps.snapshot_rows import SnapshotRows
from tests.support.lakes.snapshots import DAY, HEAD, NOW, SNAPSHOT, TOPIC_IDS, arrow, marker, member
from tests.support.spark_tables import write_rows

if TYPE_CHECKING:
    from spark_jobs.runtime.delta_lake import Lake

pytestmark = pytest.mark.jvm

SETTINGS = GroupSettings(min_gain=0.1, back_off=BackOff(horizon_s=600))
FLOOR = GroupSettings(min_saved_record_s=2e6, back_off=BackOff(horizon_s=600))


STEP_S = 120
STEPS, FIRST = 10, 3


def snapshot_id(place: int) -> str:
    """Ten snapshots, each two minutes, the last one now; plans are made from the fourth."""
    at = NOW - timedelta(seconds=STEP_S * (STEPS - 1 - place))
    return SNAPSHOT if place == STEPS - 1 else f"{at:%Y%m%dT%H%M%S}000Z-00000000"


BEFORE = snapshot_id(FIRST)


def lag_rows(group: str, place: int) -> list[dict[str, Any]]:
    """8 records/s come to each partition; both are with the first member, then one with each."""
    known, end = LAGS.get(group, DRAINED)[place], 8 * STEP_S * place
    owners = ("m-1", "m-1" if place <= FIRST or group == "unseen" else "m-2")
    return [
        {
            "snapshot_id": snapshot_id(place),
            "slot": NOW,
            "group_id": group,
            "topic_id": TOPIC_IDS["t"],
            "topic": "t",
            "partition": number,
            "owner_member_id": owners[number],
            "status": "UNKNOWN" if lag is None else "OK",
            "lag_records": lag,
            "end_offset": end,
        }
        for number, lag in enumerate(known)
    ]


def head(group: str) -> dict[str, Any]:
    metrics = {"mean_member_lag_records": 500.0, "lag_skew": 1.8, "balance_score": 0}
    return {
        "snapshot_id": BEFORE,
        "slot": NOW - timedelta(hours=1),
        "plan_id": group,
        "group_id": group,
        "mode": "auto",
        "settings": (FLOOR if group == "floor" else SETTINGS).canonical_json(),
        "group_type": "classic",
        "gain": {"racks": 0.0, "united": None}.get(group, 0.4),
        "metrics_before": metrics | {"max_member_lag_records": 900},
        "metrics_after": metrics | {"max_member_lag_records": 540},
    }


def event(
    group: str, name: str, *, minutes_ago: float = 11, plan: str | None = None, sequence: int = 1
) -> Any:
    return {
        "cluster": "c",
        "day": DAY,
        "snapshot_id": BEFORE,
        "plan_id": plan or group,
        "group_id": group,
        "event": name,
        "reason": "a person did",
        "actor": "evenlag",
        "at": NOW - timedelta(minutes=minutes_ago),
        "sequence": sequence,
    }


Lags = list[tuple[int | None, int | None]]
# Members process 10 records/s: 6 wait more each second; then each half is gone after 720 s.
DRAINED: Lags = [(360 * place, 360 * place) for place in range(5)]
DRAINED += [(1440 - 240 * place, 1440 - 240 * place) for place in range(1, 6)]
LAGS: dict[str, Lags] = {
    "kept up": [(0, 0)] * STEPS,
    # Without the partition that is not known, all lag would seem to be gone.
    "unknown": [*DRAINED[:-1], (0, None)],
    "unseen": [(360 * place, 360 * place) for place in range(STEPS)],
    "dark": [(None, None)] * (STEPS - 1) + [(0, 0)],
}
FOLLOWED = ("paid", "floor", "racks", "united", *LAGS, "broken")
OTHERS = ("ignored", "withdrawn", "replaced", "early", "unsettled")
GROUPS = (*FOLLOWED, *OTHERS)


def fill(lake: Lake) -> None:
    root, places = lake.paths.root, range(STEPS)
    lag = [row for group in GROUPS for place in places for row in lag_rows(group, place)]
    write_rows(root, LAG, arrow(LAG, lag))
    people = [
        member(name, group=group) | {"snapshot_id": snapshot_id(place)}
        for group in GROUPS
        for place in places
        for name in ("m-1", "m-2")
        if group != "broken"
    ]
    write_rows(root, MEMBERS, arrow(MEMBERS, people))
    moments = [NOW - timedelta(seconds=STEP_S * (STEPS - 1 - place)) for place in places]
    markers = [marker(end_read_at=at) | {"snapshot_id": snapshot_id(n)} for n, at in enumerate(moments)]
    write_rows(root, SNAPSHOTS, arrow(SNAPSHOTS, markers))
    write_rows(root, PLANS, arrow(PLANS, [head(group) for group in GROUPS]))
    outcomes = [
        {
            "slot": NOW,
            "plan_id": group,
            "group_id": group,
            "outcome": "IGNORED" if group == "ignored" else "APPLIED",
            "reason": "the group has selected range" if group == "ignored" else None,
        }
        for group in GROUPS
        if group not in {"withdrawn", "unsettled"}
    ]
    write_rows(root, OUTCOMES, arrow(OUTCOMES, outcomes))
    events = [event(group, "PUBLISHED", minutes_ago=9 if group == "early" else 11) for group in GROUPS]
    events += [event("withdrawn", "WITHDRAWN", minutes_ago=5)]
    events += [event("replaced", "PUBLISHED", minutes_ago=3, plan="next", sequence=2)]
    append_plan_events(root, events)


def score(lake: Lake) -> int:
    """Score as a cycle does."""
    reader = LakeReader(lake.paths.root)
    return score_plans(SnapshotRows(lake, reader, HEAD | marker()), read_published(reader, "c"), "r")


def test_plans_are_scored_once_when_their_horizon_has_passed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert score(lake) == 0
    fill(lake)
    # Those that are left are evaluated by the next snapshot.
    monkeypatch.setattr(plan_outcomes, "_MOST_DUE", 6)
    assert [score(lake) for _ in range(3)] == [6, len(GROUPS) - 2 - 6, 0]
    found = LakeReader(lake.paths.root).read(PLAN_EVALUATIONS).to_pylist()
    rows = {row["plan_id"]: SimpleNamespace(**row) for row in found}
    assert {plan: (row.paid_off, row.reason) for plan, row in rows.items()} == {
        "paid": (True, EFFECT),
        # It saves less than the policy requires.
        "floor": (False, EFFECT),
        **dict.fromkeys(("racks", "united"), (None, f"it was not made to save waiting: {EFFECT}")),
        # `m-1` has processed 16 records/s, so 6.4 and 3.2 that wait for the stops are gone as soon as these.
        "kept up": (
            False,
            "until its horizon records waited 0 record-seconds, 0 if nothing had moved; following it cost 6",
        ),
        "unknown": (None, "the lag of 1 of 2 partitions is not known at the horizon"),
        "unseen": (None, "no snapshot before its horizon shows it followed"),
        "dark": (
            None,
            "its effect could not be replayed: no snapshot before the last one knows the lag of a partition",
        ),
        "broken": (None, "its effect could not be replayed: the group has no members"),
        "ignored": (False, "it was not followed: the group has selected range"),
        "withdrawn": (None, "it was withdrawn before its horizon"),
        "replaced": (None, "a newer plan took its place before its horizon"),
    }
    paid = rows["paid"]
    assert (paid.stay_record_s, paid.actual_record_s) == pytest.approx((STAY, ACTUAL))
    assert paid.cost_record_s == pytest.approx(COST)
    assert (paid.max_member_lag_before_records, paid.max_member_lag_predicted_records) == (900, 540)
    assert (paid.max_member_lag_actual_records, paid.total_lag_actual_records) == (240, 480)
    assert (paid.scored_after_ms, paid.outcome) == (11 * 60_000 - 1_000, "APPLIED")
    assert (paid.num_partitions, paid.num_unknown_partitions) == (2, 0)
    assert rows["unknown"].num_unknown_partitions == 1
    assert rows["withdrawn"].outcome == "WITHDRAWN"


# Without the plan the lag grows by 6 records/s for 12 minutes more.
STAY = (2160 + 2160 + 6 * 720) / 2 * 720
# For two minutes so, too; then it shrinks by 4 records/s.
ACTUAL = (2160 + 2880) / 2 * 120 + (2880 + 480) / 2 * 600
# Kafka's Java client stops a moved partition for 0.8 s, others for 0.4 s: so much more waits until the end.
COST = sum(
    8 * stop_s * stop_s / 2 + 10 * stop_s * (600 - stop_s) + 2 * stop_s * stop_s / 2 for stop_s in (0.8, 0.4)
)
EFFECT = (
    f"until its horizon records waited {ACTUAL:,.0f} record-seconds, {STAY:,.0f} if nothing had moved; "
    f"following it cost {COST:,.0f}"
)
