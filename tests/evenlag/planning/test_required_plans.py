"""Plans that place free partitions, unite topics or even out counts are made whatever they save."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd  # noqa: TID253 - the frame that is judged is pandas'
import pytest

from evenlag.kafka.live_groups import LiveGroup, LiveOffsets
from evenlag.lake.tables import COMMITS, LAG, MEMBERS, OFFSETS
from evenlag.planning.gate_inputs import COUNTED_INPUTS, build_gate_rows
from evenlag.planning.plan_batch import PlanContext, plan_batch
from evenlag.policy.gates import GATES
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing import publish_checks
from evenlag.publishing.answers.actors import POLICY_ACTOR
from evenlag.publishing.publish_checks import Checked, expire_stale
from spark_jobs.steps.expectations import gate_verdicts
from tests.support.lakes.snapshots import (
    HEAD,
    NOW,
    TOPIC_IDS,
    arrow,
    commit,
    marker,
    member,
    offset,
    plan_context,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

POLICY = """
lake: /nowhere
clusters: {{c: {{bootstrap_servers: "localhost:9092"}}}}
groups: [{{match: g, mode: auto, load: {load}, count_slack: 0{more}}}]
"""
PARTITIONS = (("t", 0), ("t", 1), ("u", 0), ("u", 1))


class Case(NamedTuple):
    """An idle group's owners of t-0, t-1, u-0 and u-1, and how many of them a plan moves."""

    owners: Sequence[str | None]
    moves: int
    more: str = ""


CASES = {
    "a free partition": Case(("m-1", "m-2", "m-1", None), 0),
    "uneven counts": Case(("m-1", "m-1", "m-1", "m-2"), 1),
    # Each of the two units has a partition with each member.
    "topics apart": Case(("m-1", "m-2", "m-2", "m-1"), 2, ", together: [[t, u]]"),
}
LOADS = ("lag", "rate", "time")


def plan(case: Case, load: str) -> tuple[PlanContext, dict[str, Any]]:
    """The plan of an idle group, as its row of ``plans``, and what it was planned by."""
    context = plan_context(POLICY.format(load=load, more=case.more))
    rows = [
        {
            "slot": NOW,
            "group_id": "g",
            "topic_id": TOPIC_IDS[topic],
            "topic": topic,
            "partition": number,
            "owner_member_id": owner,
            "status": "OK",
            "lag_records": 0,
            "arrival_rate_records_per_s": 0.0,
            "consume_rate_records_per_s": 0.0,
        }
        for (topic, number), owner in zip(PARTITIONS, case.owners, strict=True)
    ]
    members = [member(name, topics=("t", "u")) for name in ("m-1", "m-2")]
    (answer,) = plan_batch(arrow(LAG, rows), arrow(MEMBERS, members), context).to_pylist()
    return context, {"plan_id": "p", "group_id": "g", **answer["head"]}


def test_such_plans_of_idle_groups_pass_the_gates() -> None:
    heads = []
    for load in LOADS:
        for name, case in CASES.items():
            _, head = plan(case, load)
            found = tuple(head[key] for key in ("moves", "count_gap", "gain", "record_s_saved"))
            assert found == (case.moves, 0, None, None)
            heads.append(head | {"plan_id": f"{name}, {load}"})
    counts = {head["plan_id"]: dict.fromkeys(COUNTED_INPUTS, 0) for head in heads}
    ended = HEAD | marker(hint_topic_max_bytes=None)
    rows = build_gate_rows(heads, counts, last_hints={}, marker=ended, decided_at=NOW)
    # By what it saves it would not pass.
    verdicts = gate_verdicts(pd.DataFrame([*rows, rows[0] | {"plan_id": "with a gain", "gain": 0.0}]))
    assert [(row["plan_id"], row["gate"]) for row in verdicts if not row["passed"]] == [
        ("with a gain", "min_gain")
    ]
    values = {
        (row["observed"], row["allowed"]) for row in verdicts[: -len(GATES)] if row["gate"] == "min_gain"
    }
    assert values == {(None, "0.05")}


def check(context: PlanContext, row: dict[str, Any], case: Case, monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Check a plan before publishing, while the group is as it was planned and still idle."""
    held: dict[str, dict[str, list[int]]] = {"m:m-1": {}, "m:m-2": {}}
    for (topic, number), owner in zip(PARTITIONS, case.owners, strict=True):
        if owner is not None:
            held[f"m:{owner}"].setdefault(TOPIC_IDS[topic], []).append(number)
    topics = tuple((topic, TOPIC_IDS[topic], 2) for topic in ("t", "u"))
    live = LiveGroup("Stable", "evenlag", row["fingerprint"], topics=topics, held=held)
    offsets = LiveOffsets(
        arrow(OFFSETS, [offset(number, 7, topic=topic) for topic, number in PARTITIONS]),
        arrow(COMMITS, [commit(number, 7, topic=topic) for topic, number in PARTITIONS]),
    )
    monkeypatch.setattr(publish_checks, "read_live_groups", lambda *_: {"g": live})
    monkeypatch.setattr(publish_checks, "read_live_offsets", lambda *_: offsets)
    approved = {"refusal": None, "approved_by": POLICY_ACTOR, "approved_at": None, "slot": datetime.now(UTC)}
    return expire_stale(LoadedPolicy(context.policy, ""), "c", [row | approved], None)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_such_a_plan_of_an_idle_group_is_published(
    case: Case, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, head = plan(case, load)
    found = check(context, head, case, monkeypatch)
    assert ([one["plan_id"] for one in found.accepted], found.expired, found.held) == (["p"], (), ())


def test_a_plan_that_is_to_lower_lag_is_not_published_for_an_idle_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = CASES["uneven counts"]
    context, head = plan(case, "lag")
    found = check(context, head | {"gain": 0.4}, case, monkeypatch)
    [expired] = found.expired
    assert expired.reason == (
        "on the current lag it lowers the largest load of a member by 0.0% (40.0% when planned), "
        "min_gain is 5.0%"
    )
