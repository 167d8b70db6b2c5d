"""Withdrawing a hint, stopping all and letting them go on: real broker, real consumers, no JVM."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import CONTROL_ACTIONS
from evenlag.publishing.publish import publish_hints
from tests.support.live_plan import LiveGroup
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker
    from tests.support.fixtures.command import Evenlag

pytestmark = pytest.mark.broker


@pytest.fixture
def live(
    broker: Broker, spark: SparkSession, tmp_path: Path, unique: Callable[[str], str]
) -> Iterator[LiveGroup]:
    made = LiveGroup(broker, spark, tmp_path, unique, mode="auto")
    try:
        yield made
    finally:
        made.close()


def publish(live: LiveGroup) -> list[tuple[str, str, int]]:
    live.wait_until_settled()  # a plan of a group that rebalances expires
    report = publish_hints(live.loaded, live.name, datetime.now(UTC), "run")
    assert report.expired == []
    return report.published


def actions(live: LiveGroup) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = LakeReader(str(live.lake)).read(CONTROL_ACTIONS).sort_by("at").to_pylist()
    return rows


def test_a_withdrawn_hint_is_forgotten_and_the_next_has_a_higher_sequence(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    plan = live.plan(mode="auto", approved=True)
    ((_, _, sequence),) = publish(live)
    caches = [runner.consumer.hint_cache for runner in live.runners]
    live.wait_until_followed(plan)
    waiting = live.plan(mode="auto", approved=True, age_s=0)

    call = ("hints", "withdraw", live.group_id, "--config", live.config, "--actor", "ada")
    answer = evenlag(*call, "--reason", "deploy in an hour", "--json")
    wait_until(lambda: all(cache.view.hint is None for cache in caches))
    content = json.loads(answer.stdout)
    assert (content["plan_id"], content["sequence"], content["unpublished_plans"]) == (
        plan, sequence, [waiting],
    )  # fmt: skip
    assert "unpublished" not in content
    withdrawn = live.events(plan)["WITHDRAWN"]
    assert (withdrawn["actor"], withdrawn["reason"], withdrawn["sequence"]) == (
        "ada", "deploy in an hour", sequence,
    )  # fmt: skip
    assert publish(live) == []
    assert live.group_id not in live.topic_state.hints

    again = evenlag(*call, "--reason", "once more")
    assert (again.exit_code, len(actions(live))) == (0, 1), again.output
    assert "the last one was already withdrawn" in again.stdout

    later = live.plan(mode="auto", approved=True, age_s=0)
    assert publish(live) == [(live.group_id, later, sequence + 1)]


def test_killed_before_it_was_recorded_the_same_call_records_the_withdrawal(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    from evenlag.publishing.writing.blind_writes import write_tombstones

    plan = live.plan(mode="auto", approved=True)
    publish(live)
    write_tombstones(live.loaded.policy.clusters[live.name], live.group_id)
    assert "WITHDRAWN" not in live.events(plan)

    answer = evenlag("hints", "withdraw", live.group_id, "--config", live.config, "--reason", "again")
    assert answer.exit_code == 0, answer.output
    assert live.events(plan)["WITHDRAWN"]["sequence"] == 1
    assert [row["plan_id"] for row in actions(live)] == [plan]


def test_stop_all_reaches_every_partition_and_holds_publishing_until_resume(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    plan = live.plan(mode="auto", approved=True)
    publish(live)
    caches = [runner.consumer.hint_cache for runner in live.runners]
    # Stopped halfway, the group would go on to follow after `resume`, beside the next publishing.
    live.wait_until_followed(plan)

    call = ("--config", live.config, "--actor", "ada", "--reason")
    stopped = evenlag("hints", "stop-all", *call, "incident 7")
    assert stopped.exit_code == 0, stopped.output
    assert "All hints are stopped on sandbox: control/stop is in all 3 partitions" in stopped.stdout
    wait_until(lambda: all(cache.view.is_stopped for cache in caches))
    assert live.topic_state.stopped_partitions == {0, 1, 2}
    held = live.plan(mode="auto", approved=True, age_s=0)
    report = publish_hints(live.loaded, live.name, datetime.now(UTC), "run")
    assert report.held == [(live.group_id, held, "all hints are stopped")]
    assert "All hints were stopped already" in evenlag("hints", "stop-all", *call, "twice").stdout

    resumed = json.loads(evenlag("hints", "resume", *call, "over", "--json").stdout)
    assert (resumed["stopped"], resumed["changed"], resumed["partitions"]) == (False, True, 3)
    wait_until(lambda: not any(cache.view.is_stopped for cache in caches))
    assert publish(live) == [(live.group_id, held, 2)]
    assert [(row["action"], row["actor"], row["reason"]) for row in actions(live)] == [
        ("STOP_ALL", "ada", "incident 7"),
        ("RESUME", "ada", "over"),
    ]


def test_a_stop_in_some_partitions_only_is_told_and_holds_publishing(
    evenlag: Evenlag, live: LiveGroup
) -> None:
    for partition in range(3):
        live.kafka.send(b"control/stop", b"1", partition=partition)
    live.kafka.send(b"control/stop", None, partition=1)
    live.plan(mode="auto", approved=True)
    assert publish(live) == []
    shown = evenlag("hints", "--config", live.config)
    assert "control/stop is in 2 of 3 partitions" in shown.stderr
    assert evenlag("hints", "resume", "--config", live.config, "--reason", "over").exit_code == 0
    assert len(publish(live)) == 1


def test_what_cannot_be_recorded_is_done_all_the_same_and_said(
    evenlag: Evenlag, live: LiveGroup, tmp_path: Path
) -> None:
    (tmp_path / "no-folder").write_text("")
    answer = evenlag(
        "hints",
        "stop-all",
        "--config",
        live.config,
        "--reason",
        "x",
        EVENLAG_LAKE=str(tmp_path / "no-folder"),
    )
    assert answer.exit_code == 3
    assert "all hints are stopped, but that could not be recorded" in answer.stderr
    assert live.topic_state.stopped
    recorded = evenlag("hints", "stop-all", "--config", live.config, "--reason", "x")
    assert recorded.exit_code == 0
    assert [row["action"] for row in actions(live)] == ["STOP_ALL"]


def test_a_group_that_never_had_a_hint_is_told_so(evenlag: Evenlag, live: LiveGroup) -> None:
    answer = evenlag("hints", "withdraw", "nobody", "--config", live.config, "--reason", "x")
    assert answer.exit_code == 4
    assert "the group 'nobody' has no hint" in answer.stderr
    assert actions(live) == []


def test_a_command_that_another_publisher_fences_tries_again_and_gets_through(live: LiveGroup) -> None:
    from evenlag.publishing.writing.blind_writes import try_again_when_fenced
    from evenlag.publishing.writing.hint_publisher import hint_publisher

    live.plan(mode="auto", approved=True)
    publish(live)
    settings = live.loaded.policy.clusters[live.name]
    tries: list[int] = []

    def act() -> int:
        with hint_publisher(live.kafka.cluster_id, settings) as publisher:
            tries.append(len(tries))
            if len(tries) == 1:
                with hint_publisher(live.kafka.cluster_id, settings):
                    pass  # a cycle publishes meanwhile
            publisher.write({live.group_id: None})
        return len(tries)

    assert try_again_when_fenced(act) == 2
    assert live.group_id not in live.topic_state.hints
