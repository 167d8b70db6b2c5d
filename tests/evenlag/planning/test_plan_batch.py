"""One group's decision, without a JVM: history, capacities, loads, unknown lag, groups without a plan."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TID253 - rows come and go as Arrow tables here
import pytest

from assignor_core.hint import HintPayload
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.logging_setup import JsonFormatter, WorkerLog, log_fields
from evenlag.planning.plan_batch import GroupHistory, PlanContext, plan_batch
from evenlag.policy.loader import parse_policy
from tests.support.lakes.snapshots import NOW, SNAPSHOT, TOPIC_IDS, member, plan_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlag.lake.tables import Table

POLICY = """
lake: /nowhere
clusters: {{c: {{bootstrap_servers: "localhost:9092"}}}}
groups:
  - {{match: g, mode: auto{more}}}
"""
OWNERS = ("m-1", "m-1", "m-2", "m-2")


def context(more: str = "", history: GroupHistory | None = None) -> PlanContext:
    return plan_context(POLICY.format(more=more), history={"g": history} if history else {})


def table(kind: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    schema = arrow_schema(kind)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def lag(
    lags: Sequence[int | None], rates: Sequence[float | None] = (None,) * 4, owners: Sequence[str] = OWNERS
) -> pa.Table:
    return table(
        LAG,
        [
            {
                "slot": NOW,
                "group_id": "g",
                "topic_id": TOPIC_IDS["t"],
                "topic": "t",
                "partition": number,
                "owner_member_id": owners[number],
                "status": "UNKNOWN" if value is None else "OK",
                "lag_records": value,
                "arrival_rate_records_per_s": rates[number],
                "stalled": False,
            }
            for number, value in enumerate(lags)
        ],
    )


def members(**more: Any) -> pa.Table:
    return table(MEMBERS, [member("m-1", **more), member("m-2", **more)])


def decide(
    lag_rows: pa.Table, member_rows: pa.Table, given: PlanContext
) -> tuple[dict[str, Any], dict[str, Any] | None, dict[int, str]]:
    """The decision, the plan's row if there is one, and the new owner of each partition."""
    (answer,) = plan_batch(lag_rows, member_rows, given).to_pylist()
    head = answer["head"] and answer | answer["head"]
    owners = {row["partition"]: row["owner_after"] for row in answer["rows"] or ()}
    return answer | answer["decided"], head, owners


SKEWED = lag([900, 800, 10, 10])


def test_a_plan_is_proposed_only_after_enough_readings_in_a_row() -> None:
    more = ", gates: {min_breaches: 3}"
    found = {}
    for breaches in (0, 1, 2, 7):
        decision, plan, _ = decide(SKEWED, members(), context(more, GroupHistory(breaches)))
        found[breaches] = (decision["decision"], decision["consecutive_breaches"], decision["reason"])
        assert (plan is not None) is (breaches >= 2)
        assert decision["is_breach"]
        if plan is not None:
            assert (plan["plan_id"], plan["consecutive_breaches"]) == (decision["plan_id"], breaches + 1)
    assert found[0] == ("BREACH", 1, "1 of 3 consecutive snapshots ask for a change")
    assert found[1][:2] == ("BREACH", 2)
    assert found[2] == ("PROPOSED", 3, None)
    assert found[7] == ("PROPOSED", 8, None)
    decision, plan, _ = decide(lag([5, 5, 5, 5]), members(), context(more, GroupHistory(2)))
    assert (plan, decision["decision"], decision["is_breach"]) == (None, "NO_CHANGE", False)
    assert decision["consecutive_breaches"] == 0


def test_a_group_that_backs_off_or_cannot_be_hinted_is_planned_in_shadow_with_the_reason() -> None:
    rests = GroupHistory(0, "backs off until tomorrow")
    cases = [
        (members(), None, "auto", None),
        (members(), rests, "shadow", "backs off until tomorrow"),
        (
            members(assignor="range"),
            rests,
            "shadow",
            "cannot be hinted: the group has selected range, not evenlag",
        ),
        (
            members(group_type="consumer", assignor="uniform"),
            None,
            "shadow",
            (
                "cannot be hinted: the brokers assign the group by uniform; its clients have to ask for "
                "group.remote.assignor=evenlag"
            ),
        ),
        (members(group_type="consumer"), None, "auto", None),
    ]
    for member_rows, history, mode, reason in cases:
        decision, plan, _ = decide(SKEWED, member_rows, context("", history))
        assert plan is not None
        assert (plan["mode"], plan["mode_reason"]) == (mode, reason)
        assert (decision["policy_mode"], decision["mode"], decision["reason"]) == ("auto", mode, reason)


def test_only_a_payload_for_brokers_names_its_static_members() -> None:
    rows = [member("m-1", group_instance_id="pod-1"), member("m-2")]
    found = {}
    for kind in ("classic", "consumer"):
        people = table(MEMBERS, [{**row, "group_type": kind} for row in rows])
        _, plan, _ = decide(SKEWED, people, context())
        assert plan is not None
        assert plan["group_type"] == kind
        found[kind] = HintPayload.decode(plan["payload"].encode())
    assert found["classic"].member_ids is None
    assert found["consumer"].member_ids == {"i:pod-1": "m-1"}
    assert found["consumer"].assignment == found["classic"].assignment


def test_a_group_that_cannot_be_planned_says_why() -> None:
    nobody = table(MEMBERS, [member(None, topics=None, group_state="Empty")])
    consumer = table(MEMBERS, [member(None, topics=None, group_type="consumer")])
    cases = [
        (nobody, "the group has no members: its application is not running, or takes partitions by assign()"),
        (consumer, "the group speaks the consumer protocol and does not show its members"),
        (members(topics=None, group_state="PreparingRebalance"), "the group is PreparingRebalance: the subs"),
        (members(error="not authorised"), "the group could not be read: not authorised"),
        (members(group_type="share"), "it is a share group: only classic and consumer groups are planned"),
        # Each fact that a plan needs.
        (
            members(topics=None, subscription_error="the expression is not RE2"),
            "the subscription of a member is unknown: the expression is not RE2",
        ),
        (
            members(assignment=None, assignment_error="cannot be decoded"),
            "the assignment of a member is unknown: cannot be decoded",
        ),
    ]
    for member_rows, reason in cases:
        decision, plan, _ = decide(SKEWED, member_rows, context())
        assert (plan, decision["decision"], decision["is_breach"]) == (None, "NOT_PLANNED", None)
        assert str(decision["reason"]).startswith(reason)
    for column, text, reason in (
        ("commit_problem", "not authorised", "the commit of each partition is unknown: not authorised"),
        (
            "owner_problem",
            "owned by 2 members: m-1, m-2",
            "the owner of a partition is unknown: t-3: owned by 2 members: m-1, m-2",
        ),
    ):
        rows = SKEWED.to_pylist()
        rows[3][column] = text
        decision, plan, _ = decide(table(LAG, rows), members(), context())
        assert (plan, decision["decision"], decision["reason"]) == (None, "NOT_PLANNED", reason)
    decision, _, _ = decide(lag([1, 1, 1, 1]).slice(0, 0), members(), context())
    assert decision["decision"] == "NOT_PLANNED"


def test_capacities_by_instance_id_reach_the_assignor() -> None:
    rows = table(
        MEMBERS, [member("m-1", group_instance_id="big-1"), member("m-2", group_instance_id="pod-1")]
    )
    even = lag([300, 300, 300, 300])
    _, plan, _ = decide(even, rows, context(", count_slack: 4"))
    assert plan is None
    big = ', count_slack: 4, capacities: [{match: "big-*", capacity: 3}]'
    _, plan, owners = decide(even, rows, context(big))
    assert plan is not None
    assert sorted(owners.values()) == ["m-1", "m-1", "m-1", "m-2"]
    # By capacity, from 600/1 to 300/1 on the small one.
    assert plan["gain"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("load", "lags", "rates", "is_planned"),
    [
        ("lag", [900, 800, 10, 10], [1.0, 1.0, 1.0, 1.0], True),
        ("rate", [900, 800, 10, 10], [1.0, 1.0, 1.0, 1.0], False),
        ("rate", [0, 0, 0, 0], [50.0, 40.0, 1.0, 1.0], True),
        # Lag pulls one way and rate as much the other.
        ("mix", [100, 100, 0, 0], [0.0, 0.0, 10.0, 10.0], False),
        ("mix", [100, 100, 0, 0], [10.0, 10.0, 0.0, 0.0], True),
    ],
)
def test_load_says_what_is_evened_out(
    load: str, lags: list[int], rates: list[float], *, is_planned: bool
) -> None:
    _, plan, _ = decide(lag(lags, rates), members(), context(f", load: {load}"))
    assert (plan is not None) is is_planned


def test_a_row_whose_load_is_not_known_is_planned_around() -> None:
    # Had the rest been planned without knowing that partition 0 stays, m-2 would hold three partitions.
    lags = lag([None, 900, 800, 10], owners=("m-1", "m-1", "m-1", "m-2"))
    _, plan, owners = decide(lags, members(), context())
    assert plan is not None
    assert owners[0] == "m-1"
    assert sorted(owners.values()) == ["m-1", "m-1", "m-2", "m-2"]
    assert (plan["num_unknown_partitions"], plan["count_gap"]) == (1, 0)
    _, plan, owners = decide(
        lag([9, 8, 1, 1], [None, 40.0, 1.0, 1.0]), members(), context(", load: rate, min_gain: 0")
    )
    assert plan is None or (owners[0] == "m-1" and plan["num_unknown_partitions"] == 1)


def test_an_executor_logs_a_group_that_failed_with_the_ids_of_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("nobody foresaw it")

    monkeypatch.setattr("evenlag.planning.group_planner.plan_group", fail)
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(json.loads(JsonFormatter().format(record)))  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        with log_fields(run_id="r", cluster="c", step="decide"):
            log = WorkerLog.of_driver()
        plan_batch(SKEWED, members(), replace(context(), log=log))
    finally:
        logging.getLogger().removeHandler(handler)
    [record] = found
    about = {"run_id": "r", "cluster": "c", "step": "decide", "group_id": "g", "snapshot_id": SNAPSHOT}
    assert about.items() <= record.items()
    assert "KeyError: 'nobody foresaw it'" in record["exception"]


def test_a_group_nobody_asked_for_gets_no_row() -> None:
    given = context()
    assert plan_batch(SKEWED, members(), given).num_rows > 0
    observed = parse_policy(POLICY.format(more=""), environ={"EVENLAG_MAX_MODE": "observe"}).policy
    assert plan_batch(SKEWED, members(), replace(given, policy=observed)).num_rows == 0
