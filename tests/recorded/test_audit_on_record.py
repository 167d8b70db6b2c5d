"""The audit's answers on the recorded period against what the consumers noted themselves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.audit.differences import diff
from evenlag.audit.owners import owners_at, snapshots_around
from evenlag.audit.period import AuditedPeriod, read_period
from evenlag.audit.published_hints import hint_finder, hint_verdicts, read_hints
from evenlag.audit.rebalances import find_rebalances
from evenlag.lake.reader import LakeReader
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.audit_ownership import audit_assignments
from tests.recorded.period import BILLING, CLUSTER, SHIPPING, journal, write_lake
from tests.recorded.truth import done, holders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.extended, pytest.mark.jvm]

NEEDED = frozenset({"snapshots", "members", "offsets", "plans", "plan_assignments", "plan_events"})
# From the broker's word to the listener's: a rebalance of this group took up to this long on that machine.
DELAY = timedelta(seconds=1.5)
STEP = timedelta(seconds=1)


@pytest.fixture(scope="module")
def reader(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakeReader:
    root = write_lake(tmp_path_factory.mktemp("recorded"), only=NEEDED)
    audit_assignments(Lake(spark, str(root)), CLUSTER)
    return LakeReader(str(root))


def _window(period: AuditedPeriod, at: datetime) -> tuple[datetime, datetime]:
    """The snapshots around a moment, and the delay of what they show."""
    around = snapshots_around(period, at)
    began, ended = (period.snapshots[name].to_pylist() for name in ("started_at", "finished_at"))
    first = began[around.before] if around.before is not None else at
    last = ended[around.after] if around.after is not None else at
    return min(first, at) - DELAY, max(last, at) + DELAY


@pytest.mark.parametrize(("group_id", "num_partitions"), [(BILLING, 15), (SHIPPING, 2)])
def test_owners_are_those_that_held_it_partition_by_partition_and_moment_by_moment(
    reader: LakeReader, group_id: str, num_partitions: int
) -> None:
    period = read_period(reader, CLUSTER, group_id=group_id)
    truth = holders(group_id)
    assert len(truth) == num_partitions
    at = period.snapshots["started_at"][0].as_py() + STEP
    end = period.snapshots["finished_at"][-1].as_py()
    num_certain = num_unchanged = 0
    while at < end:
        first, last = _window(period, at)
        found: dict[tuple[str, int], list[dict[str, object]]] = {}
        for row in owners_at(period, at):
            found.setdefault((row["topic"], row["partition"]), []).append(row)
        for partition, stretches in truth.items():
            held = [each for each in stretches if each.since <= last and each.until >= first]
            names = {each.name for each in held}
            rows = found.get(partition, [])
            owned = {row["client_id"] for row in rows if row["state"] == "OWNED"}
            # Whoever is named held it between these two snapshots.
            assert owned <= names, (at, partition, owned, names)
            whole = [each for each in held if each.since <= first and each.until >= last]
            if not whole:
                continue
            # Nothing changed between the snapshots: it is that name, or a snapshot fell into a rebalance.
            states = {row["state"] for row in rows}
            assert states <= {"OWNED", "UNKNOWN"}, (at, partition, rows)
            num_unchanged += 1
            if states == {"OWNED"}:
                assert owned == {whole[0].name}, (at, partition)
                num_certain += 1
        at += STEP
    assert num_unchanged > 200 * num_partitions
    # After each decision a minute passed without a snapshot, and the next one fell into the rebalance.
    assert num_certain > 0.6 * num_unchanged, (num_certain, num_unchanged)


def _owner(group_id: str, partition: tuple[str, int], at: datetime) -> str | None:
    """Who owned it for a while before and after the moment; None where nobody did all that time."""
    names = [
        each.name
        for each in holders(group_id)[partition]
        if each.since <= at - DELAY and each.until >= at + DELAY
    ]
    return names[0] if names else None


@pytest.mark.parametrize("group_id", [BILLING, SHIPPING])
def test_while_a_snapshot_is_taken_the_owner_is_among_those_named(reader: LakeReader, group_id: str) -> None:
    period = read_period(reader, CLUSTER, group_id=group_id)
    num_named = num_uncertain = 0
    for snapshot in period.snapshots.to_pylist():
        at = snapshot["started_at"] + (snapshot["finished_at"] - snapshot["started_at"]) / 2
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in owners_at(period, at):
            found.setdefault((row["topic"], row["partition"]), []).append(row)
        for partition, rows in found.items():
            owner = _owner(group_id, partition, at)
            if owner is None:
                continue
            # A snapshot in a rebalance shows no owner at all.
            is_hidden = any(row["state"] == "UNKNOWN" for row in rows)
            assert is_hidden or owner in {row["client_id"] for row in rows}, (at, partition, rows)
            num_named += not is_hidden
            num_uncertain += len(rows) > 1
    assert num_named > 20
    assert num_uncertain


@pytest.mark.parametrize("group_id", [BILLING, SHIPPING])
def test_differences_are_those_of_the_journals_also_between_snapshots(
    reader: LakeReader, group_id: str
) -> None:
    period = read_period(reader, CLUSTER, group_id=group_id)
    first, last = (period.snapshots["finished_at"][place].as_py() for place in (0, -1))
    moments = [first + number / 100 * (last - first) for number in range(100)]
    counts: dict[str, int] = {}
    for since, until in zip(moments, moments[3:], strict=False):
        for row in diff(period, since, until):
            old, new = (_owner(group_id, (row["topic"], row["partition"]), at) for at in (since, until))
            if old is None or new is None:
                continue
            counts[row["change"]] = counts.get(row["change"], 0) + 1
            if row["change"] in {"SAME", "RETURNED", "MOVED"}:
                assert (old == new) == (row["change"] != "MOVED"), (since, until, row)
    assert counts["SAME"] > 50
    assert counts["CHANGING"]


def test_a_group_that_was_stopped_holds_nothing(reader: LakeReader) -> None:
    period = read_period(reader, CLUSTER, group_id=SHIPPING)
    (stopped,), (started,) = (done(SHIPPING, what) for what in ("stop_shipping", "change_assignor"))
    rows = owners_at(period, stopped + (started - stopped) / 2)
    assert [(row["partition"], row["state"], row["certainty"]) for row in rows] == [
        (0, "NOBODY", "SEEN"),
        (1, "NOBODY", "SEEN"),
    ]


def test_each_rebalance_has_the_cause_that_was_made(reader: LakeReader) -> None:
    period = read_period(reader, CLUSTER, group_id=BILLING)
    hints = read_hints(reader, period)
    rebalances, _ = find_rebalances(period, find_hint=hint_finder(hints))
    made = {
        "MEMBER_JOINED": ["join"],
        "MEMBER_LEFT": ["leave"],
        "MEMBER_BOUNCED": ["bounce", "come_back"],
        "PARTITIONS_ADDED": ["add_partitions"],
    }
    for cause, actions in made.items():
        found = [each for each in rebalances if cause in each["causes"]]
        moments = sorted(at for what in actions for at in done(BILLING, what))
        assert len(found) == len(moments), (cause, found)
        for each, at in zip(found, moments, strict=True):
            assert each["after_seen_at"] - DELAY <= at <= each["seen_at"] + DELAY, (cause, each)
    followed = {each["plan_id"] for each in rebalances if "HINT_APPLIED" in each["causes"]}
    noted = {
        event["plan_id"]
        for event in journal(BILLING)
        if event["event"] == "hint" and event["reason"] == "FOLLOWED"
    }
    assert followed == noted
    assert len(noted) == 4
    assert {each["verdict"] for each in hint_verdicts(period, hints)} == {"FOLLOWED"}
    assert all("UNKNOWN" not in each["causes"] for each in rebalances)


def test_another_assignor_is_told_though_the_group_was_empty_between(reader: LakeReader) -> None:
    rebalances, _ = find_rebalances(read_period(reader, CLUSTER, group_id=SHIPPING))
    assert [each["assignor"] for each in rebalances if "ASSIGNOR_CHANGED" in each["causes"]] == ["range"]
