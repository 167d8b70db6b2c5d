"""Loads of groups: which groups have them, what they contain, and when they are written again."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.algorithms.present_loads import present_loads
from assignor_core.loads import LoadRacks, LoadsPayload, encode_loads
from assignor_core.objective import Load
from evenlag.enums import Mode, OnChange
from evenlag.lake.arrow_schema import arrow_schema
from evenlag.lake.tables import LAG, MEMBERS, SPEEDS
from evenlag.policy.group_settings import CapacityRule, GroupSettings
from evenlag.publishing.loads import build_loads, material_change, measure_loads, scale_capacities
from evenlag.publishing.scaled_loads import Measured, scale_loads, scale_measured
from tests.bench.field.contenders.published import record_flow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from evenlag.lake.tables import Table

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
AT = datetime(2026, 11, 23, 9, tzinfo=UTC)
AT_MS = 1_795_424_400_000
MINUTE_MS = 60_000
SNAPSHOT: dict[str, Any] = {
    "snapshot_id": "20261123T090000000Z-0badcafe",
    "kafka_cluster_id": "k",
    "finished_at": AT,
}
AUTO = GroupSettings(mode=Mode.AUTO, count_slack=1, max_moves=7, loads_valid_minutes=10)


def table_of(table: Table, rows: Sequence[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(table)
    return pa.table(
        {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in schema}
    )


def lag_rows(*lags: int | None, rates: Sequence[float | None] = (), group: str = "g") -> list[dict[str, Any]]:
    return [
        {
            "group_id": group,
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "partition": number,
            "owner_member_id": "a",
            "status": "OK" if lag is not None else "UNKNOWN",
            "lag_records": lag,
            "arrival_rate_records_per_s": rates[number] if rates else None,
        }
        for number, lag in enumerate(lags)
    ]


def member(name: str, *, instance: str | None = None, group: str = "g", **more: Any) -> dict[str, Any]:
    head = {"group_state": "Stable", "group_type": "classic", "assignor": "evenlag"}
    about = {"member_id": name, "group_instance_id": instance, "subscription": ["orders"]}
    return {"group_id": group, **head, **about, **more}


def build(
    lag: Sequence[dict[str, Any]], members: Sequence[dict[str, Any]], settings: GroupSettings = AUTO
) -> dict[str, LoadsPayload]:
    groups = {row["group_id"] for row in (*lag, *members)}
    return build_loads(
        table_of(LAG, lag), table_of(MEMBERS, members), dict.fromkeys(groups, settings), SNAPSHOT
    )


def test_loads_are_the_planners_load_scaled_to_a_million_with_three_digits() -> None:
    (payload,) = build(lag_rows(2_048, 3, None, 0), [member("a"), member("b")]).values()
    assert payload == LoadsPayload(
        cluster_id="k",
        group_id="g",
        snapshot_id=SNAPSHOT["snapshot_id"],
        measured_at_ms=AT_MS,
        valid_until_ms=AT_MS + 10 * MINUTE_MS,
        # 3 / 2048 * 1e6 = 1464.8
        loads={TOPIC_ID: [1_000_000, 1_460, None, 0]},
        capacities={},
        default_capacity=1,
        count_slack=1,
        max_moves=7,
    )
    assert LoadsPayload.decode(payload.encode()) == payload


def test_a_rule_that_balances_rates_publishes_rates() -> None:
    settings = AUTO.changed(load=Load.RATE)
    (payload,) = build(lag_rows(9, 9, 9, rates=[5.0, None, 2.0]), [member("a")], settings).values()
    assert payload.loads == {TOPIC_ID: [1_000_000, None, 400_000]}


def draining(seconds: int = 0, *, taken: int = 10, arrived: int = 2) -> list[dict[str, Any]]:
    """Rows of two partitions of one member and one of another, so many seconds after the first snapshot.

    The first member processes records of its partitions in turn; the other keeps up.
    """
    left = [6_000 + (arrived - taken // 2) * seconds, 3_000 - taken // 2 * seconds, 5 * arrived]
    rates = [float(arrived), 0.0, float(arrived)]
    rows = lag_rows(*left, rates=rates)
    for row, consumed in zip(rows, (taken / 2, taken / 2, float(arrived)), strict=True):
        row["consume_rate_records_per_s"] = consumed
    rows[2]["owner_member_id"] = "b"
    return rows


TWO_MEMBERS = [member("a"), member("b")]


def test_loads_that_drain_have_a_flow_that_brings_them_to_the_next_snapshot() -> None:
    found = build(draining(), TWO_MEMBERS)["g"]
    assert found.flow is not None
    assert found.flow.owners == {TOPIC_ID: [0, 0, 1]}
    assert LoadsPayload.decode(found.encode()) == found
    (present,) = present_loads(found, AT_MS + 300_000).loads.values()
    # 6,000 - 3 * 300 and 3,000 - 5 * 300 records, of which 6,000 were a million.
    assert present == pytest.approx([850_000, 250_000, 1_667], rel=0.01)


def test_a_stalled_partition_is_processed_by_nobody() -> None:
    rows = draining()
    rows[0] |= {"stalled": True, "consume_rate_records_per_s": 0.0}
    found = build(rows, TWO_MEMBERS)["g"]
    assert found.flow is not None
    assert found.flow.owners == {TOPIC_ID: [None, 0, 1]}
    (present,) = present_loads(found, AT_MS + 60_000).loads.values()
    assert present == pytest.approx([1_020_000, 450_000, 1_667], rel=0.01)


def test_a_measured_speed_goes_before_what_a_member_processes_at_the_moment() -> None:
    members = build_members(TWO_MEMBERS, speeds=[30.0, None])
    found = build_loads(table_of(LAG, draining()), members, {"g": AUTO}, SNAPSHOT)["g"]
    assert found.flow is not None
    assert found.flow.speeds[0] / found.flow.speeds[1] == pytest.approx(30 / 2)


def build_members(rows: Sequence[dict[str, Any]], *, speeds: Sequence[float | None]) -> pa.Table:
    import pyarrow as pa

    return table_of(MEMBERS, rows).append_column("speed_records_per_s", pa.array(speeds, pa.float64()))


def test_speeds_and_costs_are_those_of_the_snapshot() -> None:
    """Costs count for work in time only, and capacities are then the speeds by their median."""
    first = {"topic_id": TOPIC_ID, "topic": "orders", "partition": 0, "cost": 3.0}
    speeds = {
        "group_id": "g",
        "members": [
            {"member_id": name, "speed_records_per_s": speed, "is_bound": False, "confidence": 1.0}
            for name, speed in (("a", 30.0), ("b", 10.0))
        ],
        "partitions": [first],
    }
    lag = draining()
    tables = {
        LAG.name: table_of(LAG, lag),
        MEMBERS.name: table_of(MEMBERS, TWO_MEMBERS),
        SPEEDS.name: table_of(SPEEDS, [speeds]),
    }

    class Reader:
        def read(self, table: Table, columns: Sequence[str], filters: object) -> pa.Table:
            del filters
            return tables[table.name].select(list(columns))

        def count(self, *_: Any, **__: Any) -> int:
            return len(lag)

    def measure(kind: Load) -> LoadsPayload:
        rule = AUTO.changed(load=kind)
        policy: Any = SimpleNamespace(policy=SimpleNamespace(group_settings=lambda *_: rule))
        reader: Any = Reader()
        head = {"cluster": "c", "day": AT.date(), "end_read_at": AT}
        return measure_loads(reader, policy, "c", SNAPSHOT | head)["g"]

    by_lag, by_time = measure(Load.LAG), measure(Load.TIME)
    for found in (by_lag, by_time):
        assert found.flow is not None
        assert found.flow.speeds[0] / found.flow.speeds[1] == pytest.approx(3, rel=0.001)
    assert (by_lag.default_capacity, by_lag.capacities) == (1, {})
    assert (by_time.default_capacity, by_time.capacities) == (667, {"m:a": 1000, "m:b": 333})
    # Lag and the arrivals of 5 minutes at 2 a second, at cost 3 and 1: 6,600 * 3, 3,000 and 610.
    assert by_time.loads == {TOPIC_ID: [1_000_000, 152_000, 30_800]}


@pytest.mark.parametrize(
    "lag",
    [
        lag_rows(2_048, 3, None, 0),
        # As much arrives as is processed.
        draining(taken=2, arrived=1),
        # Loads of rates stay.
        [],
    ],
)
def test_loads_that_hardly_change_have_no_flow(lag: list[dict[str, Any]]) -> None:
    settings = AUTO if lag else AUTO.changed(load=Load.RATE)
    assert build(lag or draining(), TWO_MEMBERS, settings)["g"].flow is None


def test_capacities_are_whole_numbers_and_a_newcomer_has_the_default() -> None:
    settings = AUTO.changed(capacities=(CapacityRule(match="large-*", capacity=4),))
    members = [member("a", instance="large-0"), member("b", instance="small-0"), member("c")]
    (payload,) = build(lag_rows(1), members, settings).values()
    assert (payload.default_capacity, payload.capacities) == (250, {"i:large-0": 1000})
    assert scale_capacities({"i:tiny": 0.000_001, "i:big": 1_000_000}) == (1, {"i:big": 1000})
    assert scale_loads(build_array(0.0, 0.0)).tolist() == [0, 0]


def build_array(*values: float) -> Any:
    import numpy as np

    return np.array(values)


def test_a_group_of_the_consumer_protocol_is_known_by_its_member_ids() -> None:
    members = [member(name, group_type="consumer") for name in ("b", "a")]
    (payload,) = build(lag_rows(1), members).values()
    assert payload.member_ids == ["a", "b"]


def test_only_a_group_that_can_follow_has_loads_and_one_groups_fault_is_its_own() -> None:
    lag = [row for name in ("g", "range", "moving", "failed", "twice") for row in lag_rows(1, group=name)]
    members = [
        member("a"),
        member("a", group="range", assignor="range"),
        member("a", group="moving", group_state="PreparingRebalance"),
        member("a", group="failed", error="NotCoordinatorError"),
        member("a", group="twice"),
        member("a", group="twice"),
        member("a", group="unread"),
    ]
    assert set(build(lag, members)) == {"g"}


@pytest.mark.parametrize(
    ("mode", "on_change", "publishes"),
    [
        (Mode.AUTO, None, True),
        (Mode.AUTO, OnChange.LOADS, True),
        (Mode.AUTO, OnChange.COUNTS, False),
        (Mode.APPROVE, None, False),
        (Mode.APPROVE, OnChange.LOADS, True),
        (Mode.APPROVE, OnChange.COUNTS, False),
        (Mode.SHADOW, OnChange.LOADS, False),
        (Mode.OBSERVE, OnChange.LOADS, False),
    ],
)
def test_a_person_approves_each_plan_unless_the_rule_asks_for_loads(
    mode: Mode, on_change: OnChange | None, *, publishes: bool
) -> None:
    settings = GroupSettings(mode=mode, on_change=on_change)
    assert settings.publishes_loads is publishes
    # As executors have it.
    portable = pickle.loads(pickle.dumps(settings))  # noqa: S301 - as Spark does with what a task holds
    assert portable.publishes_loads is publishes


def test_racks_are_published_where_members_and_partitions_have_some() -> None:
    racks = [["y", "x"], None, ["x"], ["x", "y"]]
    lag = [row | {"racks": of} for row, of in zip(lag_rows(1, 2, 3, 4), racks, strict=True)]
    here = [member("a", rack_id="x"), member("b")]
    found = build(lag, here)["g"]
    assert found.racks == LoadRacks([["x"], ["x", "y"]], {TOPIC_ID: [1, None, 0, 1]}, 20)
    assert LoadsPayload.decode(found.encode()) == found
    for other_lag, members in (
        (lag, [member("a"), member("b")]),
        (lag_rows(1, 2, 3, 4), here),
        # Another group of the snapshot has racks.
        (
            [*lag_rows(1, 2), *(row | {"group_id": "h"} for row in lag)],
            [*here, member("c", group="h", rack_id="x")],
        ),
    ):
        assert build(other_lag, members)["g"].racks is None
    assert (
        material_change(found, replace(found, racks=None, measured_at_ms=AT_MS + 1), AT_MS) == "racks changed"
    )


def test_topics_that_stay_together_are_published_by_id() -> None:
    other = "AAAAAAAAAAAAAAAAAAAAAg"
    lag = [*lag_rows(1, 2), *(row | {"topic": "shipments", "topic_id": other} for row in lag_rows(3, 4))]
    members = [member(name, subscription=["orders", "shipments"]) for name in ("a", "b")]
    rule = AUTO.changed(together=(("shipments", "orders", "gone"), ("gone", "orders")))
    found = build(lag, members, rule)["g"]
    assert found.together == [sorted([TOPIC_ID, other])]
    plain = build(lag, members)["g"]
    assert plain.together is None
    assert material_change(plain, replace(found, measured_at_ms=AT_MS + 1), AT_MS) == "together changed"


def payload(*loads: int | None, at: int = 0, **changes: Any) -> LoadsPayload:
    made = build(lag_rows(1), [member("a")])["g"]
    times = {"measured_at_ms": AT_MS + at, "valid_until_ms": AT_MS + at + 10 * MINUTE_MS}
    return replace(made, loads={TOPIC_ID: list(loads)}, **times | changes)


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (payload(100, 100, at=1), None),
        # 109 of 200 are where 100 were: 4.5 %, 120: 10 %.
        (payload(109, 91, at=1), None),
        (payload(120, 80, at=1), "10% of the load moved"),
        (payload(0, 0, at=1), "100% of the load moved"),
        # An unknown load counts as the mean of the known ones: nothing moved.
        (payload(100, None, at=1), None),
        # Twice the load with the same shares is no change.
        (payload(200, 200, at=1), None),
        (payload(100, 100, 1, at=1), "partitions changed"),
        (payload(100, 100, at=1, default_capacity=2, capacities={"i:a": 1}), "capacities changed"),
        # Measured capacities always differ a little, and only their ratios count.
        (payload(100, 100, at=1, default_capacity=950, capacities={"i:a": 1_000}), None),
        (payload(100, 100, at=1, default_capacity=2), None),
        (payload(100, 100, at=1, capacities={"i:a": 5}), "capacities changed"),
        (payload(100, 100, at=1, max_moves=8), "limits changed"),
        (payload(100, 100, at=1, count_slack=2), "limits changed"),
        (payload(100, 100, at=1, member_ids=["a"]), "members changed"),
        (payload(100, 100, at=1, valid_until_ms=AT_MS + 2), "validity changed"),
        (payload(0, 200, at=0), None),
        (payload(0, 200, at=-1), None),
    ],
)
def test_loads_are_written_again_when_they_changed_materially(
    later: LoadsPayload, reason: str | None
) -> None:
    assert material_change(payload(100, 100), later, AT_MS + 5 * MINUTE_MS - 1) == reason


def test_loads_that_changed_as_their_flow_says_are_not_written_again() -> None:
    def at(seconds: int, rows: list[dict[str, Any]]) -> LoadsPayload:
        snapshot = SNAPSHOT | {"finished_at": AT + timedelta(seconds=seconds)}
        tables = table_of(LAG, rows), table_of(MEMBERS, TWO_MEMBERS)
        return build_loads(*tables, {"g": AUTO}, snapshot)["g"]

    published = at(0, draining())
    now_ms = AT_MS + 299_000
    assert material_change(published, at(290, draining(290)), now_ms) is None
    # The first two have 77 and 23 % of what is expected, and 67 and 33 % of what was measured.
    assert material_change(replace(published, flow=None), at(290, draining(290)), now_ms) is not None
    stopped = draining(0)
    assert material_change(published, at(290, stopped), now_ms) == "10% of the load moved"


def test_unchanged_loads_are_written_again_when_half_of_their_validity_has_passed() -> None:
    now, later = payload(100, 100), payload(100, 100, at=1)
    assert material_change(now, later, AT_MS + 5 * MINUTE_MS - 1) is None
    assert material_change(now, later, AT_MS + 5 * MINUTE_MS) == "half of the validity passed"


@pytest.mark.parametrize(("num_partitions", "size"), [(100, 995), (10_000, 46_337)])
@pytest.mark.parametrize("is_for_brokers", [False, True])
def test_a_record_has_the_size_that_the_operations_page_states(
    num_partitions: int, size: int, *, is_for_brokers: bool
) -> None:
    """Loads of Zipf exponent 0.8, signed; a KIP-848 group has a member per 100 partitions."""
    import numpy as np

    weights = 1 / np.arange(1, num_partitions + 1) ** 0.8
    values = np.random.default_rng(20).permutation(weights) * 500_000
    names = [f"consumer-payments-{number}-9b2c4d6e-1234-4abc-8def-0123456789ab" for number in range(100)]
    num_members = max(10, num_partitions // 100)
    made = payload(
        *scale_loads(values).tolist(),
        cluster_id="MkU3OEVBNTcwNTJENDM2Qk",
        group_id="payments",
        member_ids=sorted(names[:num_members]) if is_for_brokers else None,
    )
    found = len(encode_loads(made.encode(), group_key=b"k" * 32))
    ids = sum(len(name) + 3 for name in names[:num_members]) if is_for_brokers else 0
    assert found == pytest.approx(size + ids, rel=0.03)
    rates = np.random.default_rng(21).permutation(weights) * 1_000
    owner = np.arange(num_partitions) % num_members
    speed = np.full(num_members, 2 * rates.sum() / num_members)
    load, flow = scale_measured(
        Load.LAG, Measured(np.rint(values).astype(int), rates, owner, speed, np.ones(num_partitions))
    )
    assert flow is not None
    with_flow = replace(made, loads={TOPIC_ID: load.tolist()}, flow=record_flow(flow, TOPIC_ID))
    draining = len(encode_loads(with_flow.encode(), group_key=b"k" * 32))
    assert draining == pytest.approx({995: 1_793, 46_337: 102_299}[size] + ids, rel=0.03)
