"""kafka-python's private parts that `evenlag.consumer` uses are there, and do what it takes them for.

When a new version fails here, read `evenlag.consumer._kafka_consumer` and
`evenlag.consumer._kafka_coordinator` again before allowing the version.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka import KafkaConsumer
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator import base as coordinator_base
from kafka.coordinator.base import BaseCoordinator
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.partitioner import default as partitioner
from kafka.partitioner.default import DefaultPartitioner
from kafka.record.default_records import DefaultRecordBatch

from evenlag.consumer import TESTED_KAFKA_PYTHON
from evenlag.consumer._kafka_consumer import ConsumerPort, hint_partition
from evenlag.consumer._kafka_coordinator import Membership
from evenlag.consumer.kafka_python import (
    ATTRIBUTES,
    OTHERS,
    PARAMETERS,
    check_kafka_python,
    missing_names,
)
from evenlag.consumer.watcher import _SHARED_CONFIG

ROOT = Path(__file__).resolve().parents[3]
# A named tuple's.
OF_NO_CLASS_OF_KAFKA_PYTHON = {"_replace"}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_the_version_is_one_that_was_read() -> None:
    oldest, newest = TESTED_KAFKA_PYTHON
    assert numbers(oldest) <= numbers(kafka.__version__) <= numbers(newest)
    (needed,) = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["consumer"]
    assert needed == f"kafka-python>={oldest},<3.1"


@pytest.mark.parametrize(
    ("owner", "name", "named"),
    [
        (BaseCoordinator, "poll_heartbeat", "ConsumerCoordinator.poll_heartbeat"),
        (Fetcher.PartitionRecords, "_unpack_records", "Fetcher.PartitionRecords._unpack_records"),
        (partitioner, "murmur2", "murmur2"),
    ],
)
def test_a_name_that_is_gone_is_refused_with_the_versions_that_are_tested(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, named: str
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(ImportError) as caught:
        check_kafka_python()
    assert str(caught.value) == (
        f"evenlag.consumer cannot work with kafka-python {kafka.__version__}: {named} are missing or differ. "
        "Install a tested version: kafka-python>=3.0.1,<=3.0.12"
    )


def test_a_version_older_than_tested_is_refused_though_it_has_all_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka, "__version__", "3.0.0.dev1")
    with pytest.raises(
        ImportError, match=r"^evenlag\.consumer cannot .* 3\.0\.0\.dev1: it is older than 3\.0\.1\."
    ):
        check_kafka_python()
    monkeypatch.setattr(kafka, "__version__", "3.0.13")
    check_kafka_python()


def test_a_method_with_other_parameters_and_an_attribute_that_is_gone_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert missing_names() == []
    monkeypatch.setattr(ConsumerCoordinator, "poll", lambda _self: True)
    monkeypatch.setattr(Fetcher, "__init__", lambda _self: None)
    assert missing_names() == [
        "ConsumerCoordinator.poll",
        "Fetcher._completed_fetches",
        "Fetcher._next_partition_records",
    ]


def test_every_private_name_that_is_used_is_checked() -> None:
    """The names after a dot, with one underscore, that are no attributes of evenlag's own classes."""
    folder = ROOT / "evenlag" / "consumer"
    used: set[str] = set()
    for file in folder.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        used |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and re.match("_[a-z]", node.attr)
            and not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", "hint", "found"})
        }
    checked = {name for names in (*PARAMETERS.values(), *ATTRIBUTES.values()) for name in names}
    checked |= {path.rpartition(".")[2] for path in OTHERS}
    assert used - checked == OF_NO_CLASS_OF_KAFKA_PYTHON


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (BaseCoordinator, ("request_rejoin", "reset_generation", "generation_if_stable", "group_metadata")),
        (
            ConsumerCoordinator,
            (
                "_on_join_prepare_async",
                "_on_join_complete_async",
                "_perform_assignment",
                "group_protocols",
                "_process_join_group_response",
                "_invoke_rebalance_listener_async",
                "_lookup_assignor",
                "_send_offset_commit_request",
                "_on_close_prepare_async",
                "_handle_heartbeat_response",
                "poll_heartbeat",
                "ensure_coordinator_ready_async",
                "poll",
            ),
        ),
        (
            SubscriptionState,
            ("assigned_partitions", "assign_from_subscribed", "mark_pending_revocation"),
        ),
        (ClusterMetadata, ("partitions_for_topic", "topic_id", "request_update", "set_topics")),
    ],
)
def test_the_methods_are_there(owner: type, names: tuple[str, ...]) -> None:
    assert all(callable(getattr(owner, name)) for name in names)


def test_a_join_clears_the_flag_that_asks_for_the_next_before_the_assignment_is_applied() -> None:
    # So a request made from on_assignment survives, and one made while joining would not.
    source = inspect.getsource(BaseCoordinator.join_group_async)
    assert source.index("self.rejoin_needed = False") < source.index("await self._on_join_complete_async(")


def test_a_join_prepares_once_and_looks_at_the_flag_on_each_try() -> None:
    source = inspect.getsource(BaseCoordinator.join_group_async)
    assert "if not self.rejoining:" in source
    assert source.index("if not self.rejoining:") < source.index("await self._on_join_prepare_async(")


def test_fetched_offsets_are_kept_by_the_set_of_their_partitions() -> None:
    # The fault that `Membership._forget_fetched_offsets` works around: an unused response is not dropped.
    source = inspect.getsource(ConsumerCoordinator.fetch_committed_offsets_async)
    assert "self._offset_fetch_futures[future_key] = future" in source
    assert source.index("if future.is_done:") < source.index("del self._offset_fetch_futures[future_key]")


def test_a_join_that_outlasts_a_poll_is_taken_up_only_while_something_asks_for_it() -> None:
    # The fault that `Membership._prepare` works around; a version that keeps its joins does not need it.
    source = inspect.getsource(BaseCoordinator.join_group_async)
    loop = source.index("while self.need_rejoin():")
    assert loop < source.index("await self._on_join_prepare_async(") < source.index("self._join_task = None")
    assert "_join_task" not in inspect.getsource(ConsumerCoordinator.need_rejoin)
    assert "request_rejoin" not in inspect.getsource(ConsumerCoordinator.need_rejoin)


def test_a_join_that_ends_between_two_polls_is_sent_again() -> None:
    # The fault that `CurrentJoin` works around; a version that waits for an ended task does not need it.
    source = inspect.getsource(BaseCoordinator.join_group_async)
    assert "if self._join_task is None or self._join_task.is_done:" in source
    assert "self._manager.call_soon(self._do_join_and_sync_async)" in source
    # And how a poll ends while `CurrentJoin` goes on.
    assert "except Errors.KafkaTimeoutError:" in source


def test_a_poll_without_its_coordinator_returns_no_records() -> None:
    # The fault that `Membership._goes_on` works around, and what it does in place of the rest of the poll.
    source = inspect.getsource(KafkaConsumer._poll_once)
    assert source.index("if not self._coordinator.poll(") < source.index("self._fetcher.fetch_records(")
    assert "self._coordinator.time_to_next_poll()" in source
    rest = inspect.getsource(ConsumerCoordinator.poll).partition("self.ensure_active_group(")[2]
    assert re.findall(r"self\.(\w+)\(\)", rest) == ["poll_heartbeat", "_maybe_auto_commit_offsets_async"]


def test_heartbeats_are_sent_while_the_coordinator_says_that_it_is_stable() -> None:
    assert "elif not self.stable():" in inspect.getsource(BaseCoordinator._heartbeat_loop)
    assert inspect.getsource(coordinator_base).count("self.stable()") == 1


def test_a_commit_asks_for_its_node_and_generation_before_it_waits() -> None:
    source = inspect.getsource(ConsumerCoordinator._send_offset_commit_request)
    first_wait = source.index("await ")
    assert source.index("self.coordinator()") < source.index("self.generation_if_stable()") < first_wait
    assert "self._handle_offset_commit_response(offsets, send_time, response)" in source


def test_the_protocol_is_looked_at_when_a_join_is_prepared_and_when_it_is_complete_and_nowhere_else() -> None:
    source = inspect.getsource(ConsumerCoordinator)
    both = inspect.getsource(ConsumerCoordinator._on_join_prepare_async) + inspect.getsource(
        ConsumerCoordinator._on_join_complete_async
    )
    made = inspect.getsource(ConsumerCoordinator.__init__)
    assert source.count("self._rebalance_protocol") == both.count("self._rebalance_protocol") + made.count(
        "self._rebalance_protocol"
    )


def test_an_assignment_is_applied_before_the_first_listener_is_awaited() -> None:
    source = inspect.getsource(ConsumerCoordinator._on_join_complete_async)
    assert source.index("assign_from_subscribed(") < source.index("await ")


def test_a_fetcher_looks_up_the_class_of_its_records_on_itself_and_decompresses_while_it_iterates() -> None:
    # What `skip_compressed` rests on.
    assert "self.PartitionRecords(" in inspect.getsource(Fetcher._parse_fetched_data)
    unpack = inspect.getsource(Fetcher.PartitionRecords._unpack_records)
    assert unpack.count("records.next_batch()") == 4
    assert "for record in batch:" in unpack
    source = inspect.getsource(DefaultRecordBatch)
    assert source.count("self._maybe_uncompress()") == 1
    assert "self._maybe_uncompress()" in inspect.getsource(DefaultRecordBatch.__iter__)


def test_metadata_note_when_they_were_received() -> None:
    assert "_last_successful_refresh_ms = now" in inspect.getsource(ClusterMetadata.update_metadata)


def test_every_commit_goes_through_one_method() -> None:
    source = inspect.getsource(ConsumerCoordinator)
    assert source.count("OffsetCommitRequest(") == 1
    assert "OffsetCommitRequest(" in inspect.getsource(ConsumerCoordinator._send_offset_commit_request)


def test_what_was_fetched_stands_in_these_places() -> None:
    source = inspect.getsource(Fetcher.fetched_records) + inspect.getsource(Fetcher.close)
    for name in ("_completed_fetches", "_next_partition_records", "_paused_completed_fetches"):
        assert f"self.{name}" in source


def test_requests_that_end_a_membership_go_through_reset_generation() -> None:
    source = inspect.getsource(coordinator_base)
    assert source.count("self._generation = ") == 3, "set in __init__, by a join, and by reset_generation"


def test_the_watcher_shares_only_settings_that_exist() -> None:
    assert set(_SHARED_CONFIG) <= set(KafkaConsumer.DEFAULT_CONFIG)


@pytest.mark.parametrize("key", [b"group/a", b"group/billing", b"group/\xc3\xa4", b"control/stop"])
def test_a_groups_partition_is_the_default_partitioners(key: bytes) -> None:
    class Metadata:
        def topics(self) -> set[str]:
            return {"hints"}

        def partitions_for_topic(self, _: str) -> set[int]:
            return set(range(7))

        available_partitions_for_topic = partitions_for_topic

    chosen = DefaultPartitioner().partition("hints", key, key, None, None, Metadata())
    assert hint_partition(key, 7) == chosen


def test_a_port_sees_an_unjoined_consumer(offline_consumer: Any) -> None:
    consumer = offline_consumer()
    port = ConsumerPort(consumer, Membership(consumer))
    assert port.held() == []
    assert port.is_eager
    assert port.claims() == ([], -1)
    assert not port.is_leader
    assert port.member_id == ""
    assert port.instance_id is None
    assert port.stable_generation() is None
    assert port.subscribed_counts() == {}
