"""The lake ``names``: groups and clients named as nobody should, read before and after a UTC midnight."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kafka import KafkaAdminClient, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.truth.recording.clock import last_midnight, set_clock, wait_until
from tests.truth.recording.stage import SESSION_S, Stage

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from pyspark.sql import SparkSession

    from sandbox.kafka.broker import Broker

NAME: Final = "names"
CLUSTER: Final = "names"
POLICY: Final = """\
lake: lake
clusters:
  names:
    bootstrap_servers: "{servers}"
    temporary_member_after_s: null
    schedule: null
    rate_window_s: 30
groups:
  - match: "/.*script.*/"
    mode: auto
    reset_policy: earliest
    hint_ttl_s: 600
    gates: {{cooldown_s: 5}}
    back_off: {{horizon_s: 20}}
  - match: "aaaa*"
    mode: auto
    reset_policy: earliest
    hint_ttl_s: 600
    gates: {{cooldown_s: 5}}
    back_off: {{horizon_s: 20}}
"""
# For the groups to start, on a busy machine.
_BEFORE: Final = timedelta(seconds=110)
SCRIPT: Final = '"><script>alert(1)</script>'
MARKUP: Final = "[/x]"
# The 32nd character has no successor: no text of 32 characters is an upper bound of this one.
LARGEST: Final = "a" * 31 + "\U0010ffff" + " and more"
LONG_TOPIC: Final = "topic." + "of_a-long.name_" * 14
# Nobody is in these: they have commits only.
EMPTY: Final = (
    "=1+1",
    "'single' \"double\" `back` \\slash",
    "new\nline\ttab",
    "\U0001f525\U0001f469\u200d\U0001f469\u200d\U0001f466",
    "\u202egnp.exe",
    "../../etc/passwd",
    "%2Fday=2026-01-01/x",
    "\u00fc\u00f6\u00e4\u00df \u4e2d\u6587",
    " leading and trailing ",
    "null",
    "[bold red]not red[/bold red]",
    "\x1b[31mred",
    "x" * 240,
    "{{ handlebars }} ${dollar} %s {0}",
)


def record(spark: SparkSession, broker: Broker, folder: Path) -> Stage:
    """Record it; the stage says what happened."""
    midnight = last_midnight()
    stage = Stage(spark, folder, broker.bootstrap_servers, POLICY, CLUSTER)
    with stage:
        stage.warm_up()
        set_clock(midnight - _BEFORE)
        _set_up(stage)
        _play(stage, midnight)
        stage.finish()
    return stage


def _set_up(stage: Stage) -> None:
    script = stage.workload("script", "clicks", 6, SCRIPT)
    largest = stage.workload("largest", "views", 6, LARGEST)
    markup = stage.workload("markup", LONG_TOPIC, 3, MARKUP, assignor="range")
    admin = KafkaAdminClient(**stage.client)
    for number, group_id in enumerate(EMPTY):
        partition = TopicPartition(LONG_TOPIC, number % 3)
        admin.alter_group_offsets(group_id, {partition: OffsetAndMetadata(number, "", -1)})
    admin.close()
    clients = {
        script: ("<b>bold</b>", "client, with; 'all' \"sorts\""),
        largest: ("\U0001f600" * 40, "[link=http://x]y[/link]"),
        markup: ("c" * 200, "=cmd|' /C calc'!A0"),
    }
    for group, names in clients.items():
        for number, client_id in enumerate(names):
            extra = {"metadata_max_age_ms": 2000, "client_id": client_id}
            group.start_consumer(f"consumer-{number}", extra=extra)
    for group in clients:
        group.wait_until_owned()
    markup.start_traffic(records_per_s=20, skew=0.5)
    stage.note("all groups consume")


def _play(stage: Stage, midnight: datetime) -> None:
    script, largest = stage.workloads["script"], stage.workloads["largest"]
    stage.collect(5.0)
    stage.hot_spot("script", "largest")
    wait_until(midnight - timedelta(seconds=25))
    stage.collect()
    # Slots before and at midnight, both read after it.
    wait_until(midnight + timedelta(seconds=0.5))
    stage.collect(slot=midnight - timedelta(seconds=10))
    wait_until(midnight + timedelta(seconds=9.25))
    with stage.moves("script"), stage.moves("largest"):
        stage.whole_cycle(midnight)
    stage.collect(12.0)
    script.start_consumer("consumer-2")
    script.wait_until_owned(condition=lambda owners: len(owners) == 3)
    stage.note("joined", group="script", member="consumer-2")
    stage.collect(2.0)
    largest.kill("consumer-1")
    stage.note("killed", group="largest", member="consumer-1")
    # Until the group knows.
    stage.collect(float(SESSION_S))
    largest.start_consumer("consumer-1")
    largest.wait_until_owned()
    stage.note("came back", group="largest", member="consumer-1")
    _freeze(stage, "markup", "consumer-0")
    _restart(stage, "markup")
    stage.hot_spot("script", "largest")
    stage.collect(1.0)
    with stage.moves("script"), stage.moves("largest"):
        stage.whole_cycle()
    stage.observe()


def _freeze(stage: Stage, key: str, member: str) -> None:
    """Freeze a member for three snapshots, less than its session: its lag grows and no commit moves."""
    group = stage.workloads[key]
    group.pause(member)
    stage.note("frozen", group=key, member=member)
    for _ in range(3):
        stage.collect(4.0)
    group.resume(member)
    stage.note("thawed", group=key, member=member)
    stage.collect(1.0)


def _restart(stage: Stage, key: str) -> None:
    """Stop a whole group and start it again: its partitions are freed, and placed from nothing."""
    group = stage.workloads[key]
    names = sorted(group.owners())
    for name in names:
        group.stop_process(name)
    stage.note("all left", group=key)
    stage.collect(1.0)
    for name in names:
        group.start_consumer(name)
    group.wait_until_owned()
    stage.note("all came back", group=key)
    stage.collect(1.0)
