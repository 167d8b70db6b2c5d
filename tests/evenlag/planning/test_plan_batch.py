"""One group's decision, without a JVM: history, capacities, loads, unknown lag, groups without a plan."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from assignor_core.hint import HintPayload
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS
from evenlag.logging_setup import JsonFormatter, WorkerLog, log_fields
from evenlag.planning.expectations import Expected
from evenlag.planning.group_work import GroupFacts
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
    lags: Sequence[int | None],
    rates: Sequence[float | None] = (None,) * 4,
    owners: Sequence[str | None] = OWNERS,
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
    # Of the known lag: 900 + 800 before; a mean or a skew of some partitions would mislead.
    known = {"max_member_lag_records": 1700, "mean_member_lag_records": None, "lag_skew": None}
    assert known.items() <= plan["metrics_before"].items()
    _, plan, owners = decide(
        lag([9, 8, 1, 1], [None, 40.0, 1.0, 1.0]), members(), context(", load: rate, min_gain: 0")
    )
    assert plan is None or (owners[0] == "m-1" and plan["num_unknown_partitions"] == 1)
    # Nobody owns two, so that they are planned although nothing is known.
    _, plan, _ = decide(lag([None] * 4, owners=(None, None, "m-2", "m-2")), members(), context())
    assert plan is not None
    assert known | {"max_member_lag_records": None} == {name: plan["metrics_before"][name] for name in known}


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


def racked(rows: pa.Table, name: str, racks: Sequence[Any]) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.field(place), pa.array(racks, rows.field(place).type))


def test_racks_choose_among_plans_that_are_as_even() -> None:
    """Of the two heavy partitions, that of m-1 can be read in both racks, so that it moves."""
    rows = lag([900, 880, 10, 20])
    anywhere = ["a", "b"]
    near_m1 = racked(rows, "racks", [anywhere, ["a"], anywhere, anywhere])
    member_rows = racked(members(), "rack_id", ["a", "b"])
    found = {}
    for name, lag_rows, other_rows in (
        ("unknown", rows, member_rows),
        ("no member", near_m1, members()),
        ("known", near_m1, member_rows),
        ("elsewhere", racked(rows, "racks", [["c"]] * 4), member_rows),
    ):
        _, plan, owners = decide(lag_rows, other_rows, context())
        assert plan is not None
        found[name] = owners[0], owners[1], plan["across_racks_before"], plan["across_racks_after"]
    assert found["unknown"] == found["no member"] == ("m-1", "m-2", None, None)
    assert found["known"] == ("m-2", "m-1", 0.0, 0.0)
    assert found["elsewhere"] == ("m-1", "m-2", 1.0, 1.0)


def two_topics(lags: Sequence[int], owners: Sequence[str]) -> pa.Table:
    """As `lag`, of the topics t and u with half of the partitions each."""
    rows, half = lag(lags, (None,) * len(lags), owners), len(lags) // 2
    names = ["t"] * half + ["u"] * half
    rows = racked(rows, "partition", [*range(half), *range(half)])
    return racked(racked(rows, "topic", names), "topic_id", [TOPIC_IDS[name] for name in names])


def test_topics_that_stay_together_move_together() -> None:
    rows = two_topics([500, 400, 9, 8, 7, 6, 5, 4], ["m-1", "m-1", "m-2", "m-2"] * 2)
    member_rows = members(subscription=["t", "u"])
    more = ", together: [[u, t]], count_slack: 0, max_moves: {}"
    (answer,) = plan_batch(rows, member_rows, context(more.format(4))).to_pylist()
    owners = {(row["topic"], row["partition"]): row["owner_after"] for row in answer["rows"]}
    assert [owners["t", number] for number in range(4)] == [owners["u", number] for number in range(4)]
    assert owners["t", 0] != owners["t", 1]
    assert (answer["head"]["moves"], answer["head"]["violations"]) == (4, [])
    payload = HintPayload.decode(answer["head"]["payload"].encode())
    assert payload.together == [sorted([TOPIC_IDS["t"], TOPIC_IDS["u"]])]
    # A unit has two partitions: three moves are enough for one unit only, and an exchange needs two.
    (answer,) = plan_batch(rows, member_rows, context(more.format(3))).to_pylist()
    assert answer["decided"]["decision"] == "NO_CHANGE"


def test_topics_that_are_apart_are_united_first() -> None:
    rows = two_topics([50, 40, 9, 8, 7, 6, 5, 4], ["m-1", "m-1", "m-2", "m-2", "m-2", "m-1", "m-2", "m-1"])
    (answer,) = plan_batch(
        rows, members(subscription=["t", "u"]), context(", together: [[t, u]], min_gain: 0, max_moves: 2")
    ).to_pylist()
    owners = {(row["topic"], row["partition"]): row["owner_after"] for row in answer["rows"]}
    assert owners["u", 0] == owners["t", 0] == "m-1"
    assert owners["u", 3] == owners["t", 3] == "m-2"
    assert answer["head"]["moves"] == 2


def test_topics_that_cannot_stay_together_are_the_reason_of_their_group() -> None:
    rows = lag([900, 800, 10, 10])
    rows = racked(rows, "topic", ["t", "t", "t", "u"])
    rows = racked(racked(rows, "topic_id", [TOPIC_IDS[n] for n in "tttu"]), "partition", [0, 1, 2, 0])
    decision, plan, _ = decide(rows, members(subscription=["t", "u"]), context(", together: [[t, u]]"))
    assert (decision["decision"], plan) == ("FAILED", None)
    assert decision["reason"] == "together: the topics 't' and 'u' have 3 and 1 partitions"


TIMED = ", load: time, horizon_s: 600"


def with_speeds(
    rows: pa.Table, speeds: Sequence[float | None], bounds: Sequence[bool] = (False, False)
) -> pa.Table:
    return rows.append_column("speed_records_per_s", pa.array(speeds, pa.float64())).append_column(
        "speed_is_bound", pa.array(bounds, pa.bool_())
    )


def with_forecasts(rows: pa.Table, rates: Sequence[float]) -> pa.Table:
    lists = pa.array([[rate] * 6 for rate in rates], pa.list_(pa.float64()))
    return rows.append_column("forecast_records_per_s", lists)


def test_members_of_other_speeds_get_other_shares_by_time() -> None:
    # Two partitions of 10 records a second each, with members of 5 and 40.
    rows = with_forecasts(lag([0, 0, 0, 0], (10.0,) * 4), [10.0] * 4)
    decision, plan, owners = decide(rows, with_speeds(members(), [5.0, 80.0]), context(TIMED))
    assert decision["decision"] == "PROPOSED"
    assert plan is not None
    assert list(owners.values()) == ["m-2"] * 4
    assert (plan["moves"], plan["horizon_ms"], plan["step_ms"], plan["follow_ms"]) == (
        2,
        600_000,
        100_000,
        6_500,
    )
    before, after = plan["prediction_before"], plan["prediction_after"]
    # 20 records a second come, 5 are processed: 15 more wait each second, 300 seconds' processing after 100.
    assert before["next_lag_records"] == pytest.approx(1_500, rel=0.01)
    assert before["next_wait_ms"] == pytest.approx(300_000, rel=0.01)
    assert before["record_s"] == pytest.approx(15 * 600**2 / 2, rel=0.01)
    assert after["horizon_lag_records"] == pytest.approx(0, abs=1)
    assert plan["record_s_saved"] == pytest.approx(before["record_s"], rel=0.01)
    assert 0 < plan["record_s_cost"] < 100
    assert plan["gain"] > 0.99
    assert plan["count_gap"] == 4


def test_a_plan_has_the_predictions_of_the_group_without_what_it_saves() -> None:
    rows = with_forecasts(lag([0, 0, 0, 0], (10.0,) * 4), [10.0] * 4)
    staying = Expected("total_lag_records", False, 100.0, 1_600.0, 1_550.0, 1_900.0)
    planned = context(TIMED, GroupHistory(expected=(staying,)))
    _, plan, _ = decide(rows, with_speeds(members(), [5.0, 80.0]), planned)
    assert plan is not None
    # 1,500 of the 1,600 records are those that the slow member would be behind by.
    (expected,) = plan["expected"]
    found = [expected[name] for name in ("ahead_s", "predicted", "lower", "upper")]
    assert found == pytest.approx([100.0, 100.0, 50.0, 400.0], abs=20)


def test_a_lower_bound_of_a_speed_is_no_speed() -> None:
    rows = with_forecasts(lag([0, 0, 0, 0], (10.0,) * 4), [10.0] * 4)
    # The first member has processed all it got, which says little: it is taken to be as fast as the other.
    bound = with_speeds(members(), [20.0, 80.0], (True, False))
    assert decide(rows, bound, context(TIMED))[0]["decision"] == "NO_CHANGE"
    known = with_speeds(members(), [20.0, 80.0])
    assert decide(rows, known, context(TIMED))[0]["decision"] == "PROPOSED"


def test_a_plan_that_would_save_little_is_not_made() -> None:
    rows = lag([12, 12, 0, 20], (0.0,) * 4)
    decision, plan, _ = decide(rows, with_speeds(members(), [100.0, 100.0]), context(TIMED))
    assert (decision["decision"], plan, decision["is_breach"]) == ("NO_CHANGE", None, False)
    # No plan was found: a reason would be about one without moves. So it is by lag, where nothing can move.
    assert decision["reason"] is None
    alone = decide(lag([24, 24, 0, 20], owners=["m-1"] * 4), table(MEMBERS, [member("m-1")]), context())
    assert (alone[0]["decision"], alone[0]["reason"]) == ("NO_CHANGE", None)
    # The lag itself is even by load: lag, and a plan of it saves next to nothing.
    rows = lag([24, 24, 0, 20], (0.0,) * 4)
    decision, plan, _ = decide(rows, with_speeds(members(), [100.0, 100.0]), context(", count_slack: 2"))
    assert (decision["decision"], plan) == ("NO_CHANGE", None)
    assert decision["reason"].endswith("at least 100 are required")
    more = ", count_slack: 2, min_saved_record_s: 0"
    fast, slow = (
        decide(rows, with_speeds(members(), each), context(more))[1] for each in ((9, 9), (0.1, 0.1))
    )
    assert fast is None
    assert slow is not None
    assert slow["record_s_saved"] > slow["record_s_cost"]
    # Without speeds nothing is known, and the lag decides.
    _, unknown, _ = decide(rows, members(), context(more))
    assert unknown is not None
    assert unknown["prediction_before"] is None


def test_lag_that_is_consumed_in_two_commit_intervals_is_noise() -> None:
    """Whatever has arrived: in a burst of seconds the rate of arrivals says nothing about commits."""
    for rate, decided in ((3.0, "NO_CHANGE"), (2.0, "PROPOSED"), (None, "PROPOSED")):
        rows = lag([50, 40, 5, 5], (300.0,) * 4)
        consumed = rows.column_names.index("consume_rate_records_per_s")
        rows = rows.set_column(consumed, "consume_rate_records_per_s", pa.array([rate] * 4, pa.float64()))
        decision, _, _ = decide(rows, members(), context(", count_slack: 2"))
        assert decision["decision"] == decided
    assert decision["reason"] is None


def test_the_group_s_own_plans_and_forecasts_count() -> None:
    facts = GroupFacts(follow_s=20.0, rebalancing_s=15.0, interval_s=60.0)
    rows = with_forecasts(lag([0, 0, 0, 0], (10.0,) * 4), [10.0] * 4)
    shown = with_speeds(members(), [5.0, 80.0])
    _, quick, _ = decide(rows, shown, context(TIMED))
    _, slow, _ = decide(rows, shown, context(TIMED, GroupHistory(facts=facts)))
    assert quick is not None
    assert slow is not None
    assert slow["follow_ms"] == 20_000
    assert slow["record_s_cost"] > 10 * quick["record_s_cost"]
    _, with_caches, _ = decide(rows, shown, context(TIMED + ", move_cost_s: 60"))
    assert with_caches is not None
    assert with_caches["record_s_cost"] > 1_000
