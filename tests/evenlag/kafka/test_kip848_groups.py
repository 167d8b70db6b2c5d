"""A group that speaks the protocol of KIP-848, on the real broker: read with its members like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.kafka.broker_requests import BrokerCalls, RequestLimits
from evenlag.kafka.cluster_reader import ClusterReader
from evenlag.kafka.connection import admin_client
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import GroupListing, describe_groups
from sandbox.jars import OWN_KAFKA
from sandbox.kafka.broker import default_version
from tests.support.brokers import settings_of
from tests.support.kip848.members import NewerMember
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.kafka.broker import Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with admin_client(settings_of(broker)) as client:
        yield client


def beat_until_shared(members: list[NewerMember], num_partitions: int) -> None:
    """Beat until the broker has dealt all partitions out, and each member has told what it holds."""

    def are_dealt() -> bool:
        shares = [member.beat() for member in members]
        held = [number for share in shares for numbers in share.values() for number in numbers]
        return all(any(share.values()) for share in shares) and sorted(held) == list(range(num_partitions))

    wait_until(are_dealt)
    for member in members:
        member.beat()


def test_members_of_the_newer_protocol_are_read_with_what_they_take_and_hold(
    admin: Any, unique: Callable[[str], str]
) -> None:
    topic, group = unique("orders"), unique("newer")
    admin.create_topics({topic: {"num_partitions": 4}}, wait_for_metadata=True)
    members = [NewerMember(admin, group, [topic], instance=name) for name in (None, "pod-1")]
    beat_until_shared(members, 4)
    reading = ClusterReader(admin).read()
    rows = {row["member_id"]: row for row in reading.members.to_pylist() if row["group_id"] == group}
    assert set(rows) == {member.member_id for member in members}
    for member in members:
        row = rows[member.member_id]
        assert (row["group_state"], row["group_type"], row["assignor"]) == ("Stable", "consumer", "uniform")
        assert (row["group_instance_id"], row["subscription"], row["error"]) == (
            member.instance,
            [topic],
            None,
        )
        # Each has shown that it is there: at the epoch of the target, which is what it holds.
        assert row["group_epoch"] == row["assignment_epoch"] == row["member_epoch"] > 0
        assert row["target_assignment"] == row["assignment"]
        assert (row["member_type"], row["rack_id"]) == ("consumer", None)
    held = sorted(
        number for row in rows.values() for part in row["assignment"] for number in part["partitions"]
    )
    assert held == [0, 1, 2, 3]


def test_a_group_that_is_not_there_is_an_error_of_its_own(admin: Any, unique: Callable[[str], str]) -> None:
    name = unique("nobody")
    calls = BrokerCalls(admin, RequestLimits(request_timeout_s=60, deadline_s=600, failover_s=0))
    listed = {name: GroupListing("Stable", "consumer", "consumer")}
    (row,) = describe_groups(calls, listed, find_coordinators(calls, [name]), tuple)
    assert row.get("member_id") is None
    # 3.9 offers the request in ApiVersions, and refuses it.
    has_protocol = (default_version() or OWN_KAFKA) >= "4.0"
    assert row["error"].startswith(
        "GroupIdNotFoundError: "
        if has_protocol
        else "UnsupportedVersionError: the brokers do not have the consumer protocol"
    )
