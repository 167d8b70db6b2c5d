"""A principal that lacks an ACL: which one, on which resource, and never an empty table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ResourceType
from kafka.structs import OffsetAndMetadata

from tests.support.commits import commit_offsets
from tests.support.raw_member import RawMember
from tests.support.secured_broker import grant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures.command import Evenlag
    from tests.support.secured_broker import SecuredBroker

pytestmark = [pytest.mark.extended, pytest.mark.broker]

CLUSTER = (ResourceType.CLUSTER, "kafka-cluster")
GROUPS = (ResourceType.GROUP, "*")


@pytest.fixture(scope="module")
def billing(secured: SecuredBroker) -> SecuredBroker:
    """Return the broker with a group: 10 records in two partitions, of which 3 are committed."""
    servers = secured.addresses["PLAINTEXT"]
    admin, producer = KafkaAdminClient(bootstrap_servers=servers), KafkaProducer(bootstrap_servers=servers)
    topics = {name: {"num_partitions": 2, "replication_factor": 1} for name in ("seen", "hidden")}
    admin.create_topics(topics, wait_for_metadata=True)
    for number in range(10):
        producer.send("seen", b"x", partition=number % 2).get(timeout=600)
    committed = {TopicPartition("seen", 0): 2, TopicPartition("seen", 1): 1}
    commits = {at: OffsetAndMetadata(n, "", -1) for at, n in committed.items()}
    commit_offsets(admin, "billing", commits)
    producer.close()
    admin.close()
    grant(
        secured,
        {
            "evenlag": [CLUSTER, GROUPS, (ResourceType.TOPIC, "*")],
            "only-cluster": [CLUSTER],
            "only-groups": [GROUPS],
            "some": [(ResourceType.GROUP, "billing"), (ResourceType.TOPIC, "seen")],
        },
    )
    return secured


@pytest.fixture
def member(billing: SecuredBroker) -> Iterator[None]:
    """Let the group have a member that subscribes to both topics."""
    with RawMember(billing.addresses["PLAINTEXT"], "billing", topics=["seen", "hidden"]) as member:
        member.join()
        member.sync([("seen", [0, 1]), ("hidden", [0, 1])])
        yield
        member.leave()


def call(evenlag: Evenlag, secured: SecuredBroker, user: str, *arguments: str) -> tuple[int, str, str]:
    settings = {f"EVENLAG_KAFKA_{name.upper()}": value for name, value in secured.login(user).items()}
    command, *rest = arguments
    answer = evenlag(command, "-b", secured.addresses["SASL_SSL"], *rest, **settings)
    return answer.exit_code, answer.stdout, answer.stderr


@pytest.mark.parametrize(
    ("user", "arguments", "message", "granted_by"),
    [
        ("nobody", ("lag",), "the cluster, and on any group", "--cluster"),
        ("nobody", ("lag", "billing"), "the cluster, and on any group", "--cluster"),
        ("nobody", ("lag", "--json"), "the cluster, and on any group", "--cluster"),
        ("nobody", ("hints",), "the topic 'evenlag-hints'", "--topic evenlag-hints"),
        ("only-cluster", ("lag",), "the group 'billing'", "--group '*'"),
        ("only-cluster", ("lag", "billing"), "the group 'billing'", "--group '*'"),
        ("only-groups", ("lag",), "all 2 topics, e.g. 'hidden'", "--topic '*'"),
        ("some", ("lag", "other"), "the group 'other', which may exist", "--group other"),
    ],
)
@pytest.mark.usefixtures("member")
def test_what_cannot_be_seen_is_told_with_the_acl_and_exit_code_3(
    evenlag: Evenlag,
    billing: SecuredBroker,
    user: str,
    arguments: tuple[str, ...],
    message: str,
    granted_by: str,
) -> None:
    exit_code, out, err = call(evenlag, billing, user, *arguments)
    assert exit_code == 3, out + err
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith(f"error: User:{user} lacks the ACL Describe on {message}: kafka-acls.sh "), line
    assert line.endswith(f"--allow-principal 'User:{user}' --operation Describe {granted_by}"), line


@pytest.mark.usefixtures("member")
def test_a_topic_that_may_not_be_described_is_a_problem_and_the_rest_is_counted(
    evenlag: Evenlag, billing: SecuredBroker
) -> None:
    exit_code, out, err = call(evenlag, billing, "some", "lag", "--json")
    assert exit_code == 0, err
    answer = json.loads(out)
    [group] = answer["groups"]
    assert (group["group_id"], group["lag_records"]) == ("billing", 3 + 4)
    problems = {(each["kind"], each["name"]): each["error"] for each in answer["problems"]}
    assert problems["topic", "hidden"] == (
        "TopicAuthorizationFailedError: evenlag lacks the ACL Describe on the topic"
    )


def test_a_group_that_is_not_there_is_told_as_such_to_who_may_see_it(
    evenlag: Evenlag, billing: SecuredBroker
) -> None:
    exit_code, _, err = call(evenlag, billing, "evenlag", "lag", "biling")
    assert exit_code == 4
    assert err.strip() == "error: the cluster has no group 'biling'; did you mean 'billing'?"
