"""Records on the hint topic that are not from evenlag: nothing on the topic blocks, bloats or steers."""

from __future__ import annotations

import json
import tracemalloc
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.record.default_records import DefaultRecordBatch

from assignor_core.hint import encode_hint, hint_key
from assignor_core.loads import loads_key
from assignor_core.record import canonical_json
from evenlag.doctor.kafka_checks import records_findings
from evenlag.errors import PublishError, UnknownOutcomeError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import CONTROL_ACTIONS, PLAN_EVENTS
from evenlag.publishing import hint_topic, revocation
from evenlag.publishing.hint_topic import ForeignRecords, own_partition, read_hint_topic
from evenlag.publishing.publish import publish_hints
from evenlag.publishing.sealing.signed_records import decode_group_hint
from evenlag.publishing.writing.hint_publisher import hint_publisher
from evenlag.publishing.writing.topic_settings import _read_settings
from tests.support.flood import flood
from tests.support.hints import now_ms
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlag.publishing.hint_topic import TopicState
    from evenlag.publishing.publish import PublishReport
    from tests.support.fixtures.command import Evenlag
    from tests.support.live_plan import LiveGroup

pytestmark = [pytest.mark.extended, pytest.mark.broker]

POISON = 2**63 - 2
MEGABYTE = 1024 * 1024


def publish(group: LiveGroup) -> PublishReport:
    group.wait_until_settled()
    return publish_hints(group.loaded, group.name, datetime.now(UTC), "r")


def hint(group: LiveGroup, *, sequence: int, issued_at_ms: int | None = None, group_id: str = "") -> bytes:
    """Build an unsigned hint with any numbers; the encoder refuses those that are out of bounds."""
    topic = next(iter(group.kafka.topics))
    payload = group.kafka.payload(
        {runner.key: {topic: []} for runner in group.runners}, group_id=group_id or group.group_id
    ).encode()
    head = {
        "expires_at_ms": now_ms() + 60_000,
        "hmac": None,
        "issued_at_ms": now_ms() if issued_at_ms is None else issued_at_ms,
        "sequence": sequence,
        "version": 1,
    }
    return canonical_json(head) + b"\n" + payload


def set_on_topic(group: LiveGroup, **settings: str) -> None:
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    resource = ConfigResource(ConfigResourceType.TOPIC, group.kafka.hint_topic, configs=configs)
    group.kafka.admin.alter_configs([resource])

    def are_set() -> bool:
        found = _read_settings(group.kafka.admin, group.kafka.hint_topic)
        return configs.items() <= found.items()

    # The broker takes them up a moment later.
    wait_until(are_set)


def traced_state(group: LiveGroup) -> tuple[TopicState, int]:
    """Read the topic; return the most memory that Python had allocated meanwhile, too."""
    tracemalloc.start()
    try:
        state = group.topic_state
        return state, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def recorded_sequences(group: LiveGroup) -> list[int | None]:
    reader = LakeReader(str(group.lake))
    tables = (PLAN_EVENTS, CONTROL_ACTIONS)
    return [row["sequence"] for table in tables for row in reader.read(table).to_pylist()]


@pytest.mark.parametrize("sequence", [POISON, 2**53, 2**32 + 1], ids=["signed 64", "bound", "implausible"])
def test_a_poisoned_sequence_blocks_no_group_and_is_never_continued_from_or_recorded(
    group: LiveGroup, sequence: int
) -> None:
    first = group.plan(mode="auto", approved=True, age_s=9)
    assert publish(group).published == [(group.group_id, first, 1)]
    group.wait_until_followed(first)
    ahead = now_ms() + 2_000
    group.kafka.send(hint_key(group.group_id), hint(group, sequence=sequence, issued_at_ms=ahead))
    group.kafka.send(hint_key("other"), hint(group, sequence=sequence, group_id="other"))
    second = group.plan(mode="auto", approved=True, age_s=3)
    assert publish(group).published == [(group.group_id, second, 2)]
    current = group.topic_state.hints[group.group_id]
    assert current.sequence == 2
    # Consumers that took the forged hint accept this one by its time.
    assert current.issued_at_ms > ahead or sequence > 2**53

    group.kafka.send(hint_key(group.group_id), hint(group, sequence=sequence))
    done = revocation.withdraw_hint(group.loaded, group.name, group.group_id, actor="ada", reason="forged")
    assert done.was_present
    other = revocation.withdraw_hint(group.loaded, group.name, "other", actor="ada", reason="forged")
    assert (other.was_present, other.plan_id, other.sequence) == (True, None, None)
    assert not group.topic_state.has_record_of(group.group_id)
    assert not group.topic_state.has_record_of("other")
    assert {number for number in recorded_sequences(group) if number is not None} == {1, 2}
    assert "WITHDRAWN" in group.events(second)


def test_a_flood_of_foreign_records_stops_no_command_is_counted_and_is_purged_by_one(
    group: LiveGroup, evenlag: Evenlag, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 MB, with room for two of its 45 records; the hint of the group elsewhere is foreign as well."""
    monkeypatch.setattr(hint_topic, "MAX_KEPT_BYTES", 2 * MEGABYTE)
    own = own_partition(group.group_id, 3)
    assert own == group.kafka.hint_partition()
    elsewhere = hint(group, sequence=7)
    group.kafka.send(hint_key(group.group_id), elsewhere, partition=(own + 1) % 3)
    written = flood(group.kafka, 45)
    # kafka-python checks them in Python, at 6 MB per second of processor time.
    monkeypatch.setattr(DefaultRecordBatch, "validate_crc", lambda _: pytest.fail("a checksum in Python"))
    plan = group.plan(mode="auto", approved=True)
    assert publish(group).published == [(group.group_id, plan, 1)]

    state, peak = traced_state(group)
    num_bytes = written.foreign_bytes + len(hint_key(group.group_id)) + len(elsewhere)
    assert state.foreign == ForeignRecords(written.num_foreign + 1, num_bytes)
    assert (set(state.hints), len(state.unreadable)) == ({group.group_id}, written.num_unreadable)
    assert (state.num_unkept, peak < 20 * MEGABYTE) == (0, True), peak

    call = ("--config", group.config)
    assert evenlag("hints", "stop-all", *call, "--reason", "flood").exit_code == 0
    shown = json.loads(evenlag("hints", *call, "--json").stdout)
    assert (shown["stopped"], [each["plan_id"] for each in shown["hints"]]) == (True, [plan])
    message = f"{written.num_foreign + 1} keys with {num_bytes:,} bytes are on the topic that nobody reads"
    assert message in " ".join(evenlag("hints", group.group_id, *call).stderr.split())
    assert f"{num_bytes:,} bytes are on the topic" in str(records_findings(state, now_ms()))

    purge = ("hints", "purge", *call, "--actor", "ada", "--reason", "flood")
    assert evenlag(*purge).exit_code == 1, "nobody has confirmed it"
    assert group.topic_state.foreign == state.foreign
    done = evenlag(*purge, "--yes")
    assert (done.exit_code, f"{written.num_foreign + 1} keys with" in done.stdout) == (0, True), done.output
    purged = group.topic_state
    assert (purged.foreign, set(purged.hints)) == (ForeignRecords(), {group.group_id})
    assert json.loads(evenlag(*purge, "--json").stdout)["keys"] == 0
    actions = LakeReader(str(group.lake)).read(CONTROL_ACTIONS).to_pylist()
    assert sorted(row["action"] for row in actions) == ["PURGE", "STOP_ALL"]


def test_a_group_that_is_asked_for_has_its_hint_however_many_others_there_are(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty valid hints: what is kept has a limit, what is read has none, and the last one may not fit."""
    names = [f"wide-{number:02}" for number in range(50)]
    for name in names:
        group.kafka.send(hint_key(name), hint(group, sequence=1, group_id=name))
        group.kafka.send(loads_key(name), b"x" * 10_000)
    size = len(hint(group, sequence=1, group_id=names[0]))
    monkeypatch.setattr(hint_topic, "MAX_KEPT_BYTES", 10 * (size + 300))
    settings = group.loaded.policy.clusters[group.name]
    decode = Mock(wraps=decode_group_hint)
    monkeypatch.setattr(hint_topic, "decode_group_hint", decode)
    everything = read_hint_topic(settings)
    assert decode.call_count <= 12, "each record that does not fit costs time"
    assert 0 < len(everything.hints) <= 10
    assert everything.num_unkept >= 40
    assert {hint.sequence for hint in everything.hints.values()} == {1}
    for name in (names[0], names[-1]):
        asked = read_hint_topic(settings, {name})
        assert asked.hints[name].payload.group_id == name
        assert (set(asked.hints), set(asked.other_groups("group/")) < set(names)) == ({name}, True)


def test_the_kill_switch_works_whatever_is_on_the_topic(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker compresses by lz4, which this client cannot read; and one record is no hint at all."""
    plan = group.plan(mode="auto", approved=True)
    publish(group)
    set_on_topic(group, cleanup_policy="compact", compression_type="lz4")
    group.kafka.send(hint_key("odd"), b"\xff\xfe")
    group.kafka.send(hint_key("lz4"), b"x" * 1_000)
    set_on_topic(group, cleanup_policy="compact", compression_type="producer")
    group.kafka.send(hint_key("odd"), b"\xff\xfe")
    stopped = revocation.stop_all(group.loaded, group.name, actor="ada", reason="incident")
    assert (stopped.num_partitions, stopped.changed, stopped.unread, stopped.warning) == (3, True, None, None)
    state = group.topic_state
    assert state.stopped_partitions == {0, 1, 2}
    assert state.num_compressed > 0
    assert "odd" in state.unreadable
    again = revocation.stop_all(group.loaded, group.name, actor="ada", reason="again")
    assert not again.changed

    def unreadable(*_: Any, **__: Any) -> Any:
        raise AssertionError("a record that breaks the reader")

    monkeypatch.setattr("evenlag.publishing.writing.blind_writes.read_hint_topic", unreadable)
    resumed = revocation.resume(group.loaded, group.name, actor="ada", reason="over")
    assert resumed.unread == "AssertionError: a record that breaks the reader"
    gone = revocation.withdraw_hint(group.loaded, group.name, group.group_id, actor="ada", reason="x")
    assert (gone.plan_id, gone.sequence) == (plan, 1)
    monkeypatch.undo()
    assert not group.topic_state.stopped
    assert group.group_id not in group.topic_state.hints
    assert "WITHDRAWN" in group.events(plan)


def test_a_topic_that_compresses_is_warned_about_because_readers_skip_the_stop(group: LiveGroup) -> None:
    set_on_topic(group, cleanup_policy="compact", compression_type="gzip")
    stopped = revocation.stop_all(group.loaded, group.name, actor="ada", reason="incident")
    assert stopped.warning is not None
    assert "--add-config compression.type=uncompressed" in stopped.warning


def test_a_compressed_bomb_costs_the_reader_nothing(group: LiveGroup) -> None:
    set_on_topic(group, cleanup_policy="compact", compression_type="producer")
    bomber = KafkaProducer(
        bootstrap_servers=group.kafka.bootstrap_servers,
        compression_type="gzip",
        max_request_size=200 * MEGABYTE,
        batch_size=1,
    )
    bomber.send(group.kafka.hint_topic, key=b"group/bomb", value=bytes(100 * MEGABYTE), partition=0).get(600)
    bomber.close()
    state, peak = traced_state(group)
    assert state.num_compressed == 1
    assert peak < 20 * MEGABYTE, peak


def test_a_short_record_of_many_partitions_costs_the_reader_little(group: LiveGroup) -> None:
    """The row of the issue: 20 records that name two million partitions each, in 4,690 bytes."""
    topic_id = group.kafka.topic_ids()[next(iter(group.kafka.topics))]
    for number in range(20):
        name = f"wide-{number}"
        payload = group.kafka.payload({}, group_id=name).encode()
        wide = payload.replace(
            b'"assignment":{}', b'"assignment":{"m:a":{"%s":"0-1999999"}}' % topic_id.encode()
        )
        head = {"expires_at_ms": now_ms() + 60_000, "hmac": None, "issued_at_ms": now_ms()}
        value = canonical_json(head | {"sequence": 1, "version": 1}) + b"\n" + wide
        group.kafka.send(hint_key(name), value)
    state, peak = traced_state(group)
    assert len(state.hints) == 20
    assert peak < 20 * MEGABYTE, peak


def test_only_a_topic_that_is_exactly_compacted_and_uncompressed_is_published_to(group: LiveGroup) -> None:
    plan = group.plan(mode="auto", approved=True)
    for settings, command in (
        ({"cleanup_policy": "compact,delete", "compression_type": "uncompressed"}, "cleanup.policy=compact"),
        ({"cleanup_policy": "compact", "compression_type": "producer"}, "compression.type=uncompressed"),
    ):
        set_on_topic(group, **settings)
        with pytest.raises(PublishError, match=f"--add-config {command}"):
            publish(group)
    assert set(group.events(plan)) == {"PROPOSED", "APPROVED"}
    set_on_topic(group, cleanup_policy="compact", compression_type="uncompressed")
    assert publish(group).published == [(group.group_id, plan, 1)]


def test_a_new_topic_is_compacted_and_uncompressed(group: LiveGroup, unique: Callable[[str], str]) -> None:
    from evenlag.kafka.connection import admin_client
    from evenlag.publishing.writing.topic_settings import ensure_hint_topic

    settings = group.loaded.policy.clusters[group.name].changed(hint_topic=unique("fresh"))
    with admin_client(settings) as client:
        ensure_hint_topic(client, settings)
        ensure_hint_topic(client, settings)
        found = _read_settings(client, settings.hint_topic)
    assert (found["cleanup.policy"], found["compression.type"]) == ("compact", "uncompressed")


def test_publishers_of_one_topic_fence_each_other_whatever_their_policies_call_the_cluster(
    group: LiveGroup,
) -> None:
    from evenlag.errors import FencedPublisherError

    plan = group.plan(mode="auto", approved=True)
    settings = group.loaded.policy.clusters[group.name]
    with hint_publisher(group.kafka.cluster_id, settings) as other:
        # Another policy calls the same cluster by another name.
        text = group.config.read_text(encoding="utf-8")
        group.config.write_text(text.replace("sandbox:", "prod:"), encoding="utf-8")
        from evenlag.publishing.revocation import stop_all

        stop_all(group.loaded, "prod", actor="ada", reason="x")
        with pytest.raises(FencedPublisherError):
            other.write({group.group_id: b"x"})
    assert group.group_id not in read_hint_topic(settings).hints
    assert plan in group.slots


class Commit:
    """A commit whose answer is lost: after it took effect, or before it was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, takes_effect: bool) -> None:
        from kafka.errors import KafkaTimeoutError

        self.is_lost = True
        real = KafkaProducer.commit_transaction

        def commit(producer: KafkaProducer) -> None:
            if takes_effect or not self.is_lost:
                real(producer)
            if self.is_lost:
                raise KafkaTimeoutError("no answer")

        monkeypatch.setattr(KafkaProducer, "commit_transaction", commit)


def test_a_commit_without_an_answer_that_took_effect_is_found_out(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = group.plan(mode="auto", approved=True)
    Commit(monkeypatch, takes_effect=True)
    assert publish(group).published == [(group.group_id, plan, 1)]
    assert group.events(plan)["PUBLISHED"]["sequence"] == 1


def test_a_commit_without_an_answer_that_was_taken_back_is_not_published(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = group.plan(mode="auto", approved=True)
    commit = Commit(monkeypatch, takes_effect=False)
    with pytest.raises(PublishError, match="were not written") as raised:
        publish(group)
    assert not isinstance(raised.value, UnknownOutcomeError)
    assert group.group_id not in group.topic_state.hints
    assert set(group.events(plan)) == {"PROPOSED", "APPROVED"}
    commit.is_lost = False
    assert publish(group).published == [(group.group_id, plan, 1)]


def test_an_outcome_that_cannot_be_found_out_is_called_unknown_and_the_next_run_records_it(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.publishing.writing import hint_publisher as module

    plan = group.plan(mode="auto", approved=True)
    commit = Commit(monkeypatch, takes_effect=True)

    def unreachable(*_: Any) -> bool:
        raise PublishError("the hint topic does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(module, "is_committed", unreachable)
        with pytest.raises(UnknownOutcomeError, match="is unknown"):
            publish(group)
    assert set(group.events(plan)) == {"PROPOSED", "APPROVED"}
    commit.is_lost = False
    assert publish(group).published == [(group.group_id, plan, 1)]


def test_what_evenlag_writes_is_not_compressed(group: LiveGroup) -> None:
    set_on_topic(group, cleanup_policy="compact", compression_type="producer")
    settings = group.loaded.policy.clusters[group.name]
    value = encode_hint(
        hint(group, sequence=1).partition(b"\n")[2], sequence=1, issued_at_ms=1, expires_at_ms=2
    )
    with hint_publisher(group.kafka.cluster_id, settings) as publisher:
        publisher.write({group.group_id: value})
    assert group.topic_state.num_compressed == 0
    assert group.topic_state.hints[group.group_id].sequence == 1
