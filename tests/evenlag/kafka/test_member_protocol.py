"""Members' bytes and the fields of responses that members shape, well-formed and not."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from kafka.protocol.admin import DescribeGroupsResponse
from kafka.protocol.consumer import OffsetFetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.members import TEMPORARY_MEMBER_MARK
from evenlag.enums import GroupType
from evenlag.kafka import messages
from evenlag.kafka.arrow_rows import member_rows
from evenlag.kafka.member_protocol import (
    OTHER_PROTOCOL,
    REBALANCING,
    TEMPORARY_CLIENT_ID,
    MalformedError,
    described_group,
    group_problem,
    read_assignment,
    read_group_offsets,
    read_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]
TOPICS = ("orders", "rx-a", "rx-b", "xrx-c")
READ_ORDERS = [{"topic": "orders", "partitions": [0, 2]}]


def hexed(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# Topic "a" is 0001 61.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param("0000 00000001 0001 61 ffffffff", (["a"], None), id="version 0"),
        pytest.param(
            "0001 00000002 0001 62 0001 61 00000001 78", (["a", "b"], b"x"), id="kafka-go ends early"
        ),
        pytest.param("0001 00000001 0001 61", (["a"], None), id="ends after its topics"),
        pytest.param("0001 00000001 0001 61 000000ff 78", (["a"], None), id="user data end early"),
        pytest.param("0001 00000001 0001 61 fffffffe", (["a"], None), id="user data of size -2"),
        pytest.param("0003 00000001 0001 61 00000000 ffffffff", (["a"], b""), id="null owned partitions"),
        pytest.param("7fff 00000001 0001 61 00000000 00", (["a"], b""), id="a version of the future"),
        pytest.param(
            "0003 00000001 0001 61 00000000 00000001 0001 61 00000002 00000000 00000001 00000007 0002 7231",
            (["a"], b"", "r1"),
            id="a rack",
        ),
        pytest.param(
            "0003 00000001 0001 61 ffffffff 00000000 00000007 0001 72 ff",
            (["a"], None, "r"),
            id="more follows",
        ),
        pytest.param("0003 00000001 0001 61 00000000 00000000 00000007 ffff", (["a"], b""), id="null rack"),
        pytest.param("0003 00000001 0001 61 00000000 00000000 00000007 0000", (["a"], b""), id="empty rack"),
        pytest.param(
            "0003 00000001 0001 61 00000000 00000000 00000007 0002 c328", (["a"], b""), id="bad rack"
        ),
        pytest.param(
            "0002 00000001 0001 61 00000000 00000000 00000007 0001 72", (["a"], b""), id="version 2"
        ),
        pytest.param("0000 00000002 0001 61 0001 61 00000000", (["a"], b""), id="a topic twice"),
        pytest.param("0000 00000000 00000000", ([], b""), id="no topic"),
        pytest.param("0000 00000001 0002 6100 00000000", (["a\0"], b""), id="a name that no topic can have"),
        pytest.param("", "there are no bytes", id="empty"),
        pytest.param("00", "the bytes end within the version", id="one byte"),
        pytest.param("ffff 00000000", "the version is -1", id="negative version"),
        pytest.param("0000 ffffffff ffffffff", "the array of topics is null", id="null topics"),
        pytest.param("0000 7fffffff 0001 61", "2,147,483,647 topics in 3 bytes", id="absurd count"),
        pytest.param(
            "0000 00000002 0001 61 00", "2 topics in 4 bytes|within the length of a topic", id="short"
        ),
        pytest.param("0000 00000001 ffff", "a topic is null", id="null topic"),
        pytest.param("0000 00000001 7fff 61", "the bytes end within a topic", id="a name beyond the end"),
        pytest.param("0000 00000001 0002 c328 00000000", "name of a topic is not UTF-8", id="not UTF-8"),
        pytest.param("0000 00000001 0003 eda080 00000000", "name of a topic is not UTF-8", id="a surrogate"),
    ],
)
def test_subscriptions_are_values_or_say_what_is_wrong(data: str, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(MalformedError, match=expected):
            read_subscription(hexed(data))
    else:
        topics, user_data, *rack = expected
        assert read_subscription(hexed(data)) == (topics, user_data, *(rack or [None]))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param("0000 00000001 0001 61 00000002 00000002 00000000 ffffffff", {"a": [0, 2]}, id="plain"),
        pytest.param("0000 00000001 0001 61 00000001 00000000", {"a": [0]}, id="ends before its user data"),
        pytest.param("0000 00000001 0001 61 00000002 00000001 00000001 00000000", {"a": [1]}, id="twice"),
        pytest.param(
            "0000 00000002 0001 61 00000001 00000001 0001 61 00000001 00000000 00000000",
            {"a": [0, 1]},
            id="topic twice",
        ),
        pytest.param("0000 00000001 0001 61 00000001 7fffffff 00000000", {"a": [2**31 - 1]}, id="huge"),
        pytest.param("0000 00000001 0001 61 00000000 00000000", {"a": []}, id="no partition"),
        pytest.param("0000 00000000 ffffffff", {}, id="nothing"),
        pytest.param("", "there are no bytes", id="empty"),
        pytest.param("0000 ffffffff ffffffff", "the array of topics is null", id="null topics"),
        pytest.param(
            "0000 00000001 0001 61 ffffffff 00000000", "array of partitions is null", id="null partitions"
        ),
        pytest.param(
            "0000 00000001 0001 61 00000001 ffffffff 00000000", "the partition -1 of 'a'", id="negative"
        ),
        pytest.param(
            "0000 00000001 0001 61 40000000 00000000", "1,073,741,824 partitions in 4", id="absurd count"
        ),
        pytest.param("0000 00000001 ffff 00000000", "a topic is null", id="null topic"),
        pytest.param("8000 00000000 00000000", "the version is -32768", id="negative version"),
    ],
)
def test_assignments_are_values_or_say_what_is_wrong(data: str, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(MalformedError, match=expected):
            read_assignment(hexed(data))
    else:
        assert {row["topic"]: row["partitions"] for row in read_assignment(hexed(data))} == expected


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_kafka_python_encodes_is_read(version: int) -> None:
    owned = [("orders", [2, 0]), ("rx-ä", [5])]
    subscription = ConsumerProtocolSubscription(
        version=version,
        topics=["orders", "rx-ä"],
        user_data=b"data",
        owned_partitions=owned,
        generation_id=7,
        rack_id="eu-1",
    )
    rack = "eu-1" if version == 3 else None
    assert read_subscription(subscription.encode()) == (["orders", "rx-ä"], b"data", rack)
    assert read_assignment(ConsumerProtocolAssignment(version, owned, b"").encode()) == [
        {"topic": "orders", "partitions": [0, 2]},
        {"topic": "rx-ä", "partitions": [5]},
    ]


# One response with three groups of two members for each type


def subscribed(*topics: str) -> bytes:
    return bytes(ConsumerProtocolSubscription(version=0, topics=list(topics), user_data=b"").encode())


def owning(*pairs: tuple[str, list[int]]) -> bytes:
    return bytes(ConsumerProtocolAssignment(0, list(pairs), b"").encode())


def classic_member(name: str, **more: Any) -> Any:
    fields = {
        "member_id": name,
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/10.0.0.1",
        "member_metadata": subscribed("orders"),
        "member_assignment": owning(("orders", [0, 2])),
    }
    return DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(**(fields | more))


def classic_group(name: str, *members: Any, **more: Any) -> Any:
    fields = {
        "error_code": 0,
        "error_message": None,
        "group_id": name,
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": list(members) or [classic_member(f"{name}-{letter}") for letter in "ab"],
        "authorized_operations": None,
    }
    return DescribeGroupsResponse.DescribedGroup(**(fields | more))


def _partitions(of: Any, *pairs: tuple[str, list[int]]) -> Any:
    kind = of.DescribedGroup.Member.Assignment
    return kind(
        topic_partitions=[
            kind.TopicPartitions(topic_id=None, topic_name=topic, partitions=numbers)
            for topic, numbers in pairs
        ]
    )


def newer_group(of: Any, name: str, member: Callable[[str], Any], **more: Any) -> Any:
    fields = {
        "error_code": 0,
        "error_message": None,
        "group_id": name,
        "group_state": "Stable",
        "group_epoch": 3,
        "assignment_epoch": 3,
        "members": [member(f"{name}-{letter}") for letter in "ab"],
        "authorized_operations": None,
    }
    return of.DescribedGroup(**(fields | more))


def consumer_member(name: str, *, topics: list[str] | None = None, regex: str | None = None) -> Any:
    of = messages.ConsumerGroupDescribeResponse
    return of.DescribedGroup.Member(
        member_id=name,
        instance_id=None,
        rack_id="r1",
        member_epoch=3,
        client_id="client",
        client_host="/10.0.0.1",
        subscribed_topic_names=["orders"] if topics is None else topics,
        subscribed_topic_regex=regex,
        assignment=_partitions(of, ("orders", [2, 0])),
        target_assignment=_partitions(of, ("orders", [1])),
        member_type=1,
    )


def share_member(name: str) -> Any:
    of = messages.ShareGroupDescribeResponse
    return of.DescribedGroup.Member(
        member_id=name,
        rack_id=None,
        member_epoch=3,
        client_id="client",
        client_host="/10.0.0.1",
        subscribed_topic_names=["orders"],
        assignment=_partitions(of, ("orders", [0, 2])),
    )


def _tasks(*pairs: tuple[str, list[int]]) -> Any:
    kind = messages.StreamsGroupDescribeResponse.DescribedGroup.Member.Assignment
    active = [kind.TaskIds(subtopology_id=name, partitions=numbers) for name, numbers in pairs]
    return kind(active_tasks=active, standby_tasks=[], warmup_tasks=[])


def streams_member(name: str) -> Any:
    return messages.StreamsGroupDescribeResponse.DescribedGroup.Member(
        member_id=name,
        member_epoch=3,
        instance_id=None,
        rack_id=None,
        client_id="client",
        client_host="/10.0.0.1",
        topology_epoch=0,
        process_id="p",
        user_endpoint=None,
        client_tags=[],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_tasks(("0", [0, 2]), ("1", [1])),
        target_assignment=_tasks(("0", [1])),
        is_classic=False,
    )


def topology() -> Any:
    of = messages.StreamsGroupDescribeResponse
    parts = of.DescribedGroup.Topology.Subtopology
    counts = parts.TopicInfo(name="counts", partitions=2, replication_factor=1, topic_configs=[])
    changes = parts.TopicInfo(name="changes", partitions=0, replication_factor=1, topic_configs=[])
    return of.DescribedGroup.Topology(
        epoch=0,
        subtopologies=[
            parts(
                subtopology_id="0",
                source_topics=["orders"],
                repartition_sink_topics=["counts"],
                state_changelog_topics=[changes],
                repartition_source_topics=[],
            ),
            parts(
                subtopology_id="1",
                source_topics=[],
                repartition_sink_topics=[],
                state_changelog_topics=[changes],
                repartition_source_topics=[counts],
            ),
        ],
    )


def described(group_type: GroupType) -> Any:
    names = ("g1", "g2", "g3")
    if group_type is GroupType.CLASSIC:
        return DescribeGroupsResponse(throttle_time_ms=0, groups=[classic_group(name) for name in names])
    response, member, more = {
        GroupType.CONSUMER: (
            messages.ConsumerGroupDescribeResponse,
            consumer_member,
            {"assignor_name": "uniform"},
        ),
        GroupType.SHARE: (messages.ShareGroupDescribeResponse, share_member, {"assignor_name": "simple"}),
        GroupType.STREAMS: (messages.StreamsGroupDescribeResponse, streams_member, {"topology": topology()}),
    }[group_type]
    return response(
        throttle_time_ms=0, groups=[newer_group(response, name, member, **more) for name in names]
    )


NEWEST = {GroupType.CLASSIC: 6, GroupType.CONSUMER: 1, GroupType.SHARE: 1, GroupType.STREAMS: 0}


def rows_of(row: Any, group_type: GroupType = GroupType.CLASSIC) -> Row:
    return described_group(row, group_type, lambda: TOPICS)


@pytest.mark.parametrize("group_type", GroupType)
def test_each_type_of_group_is_read_from_the_bytes_of_its_response(group_type: GroupType) -> None:
    version = NEWEST[group_type]
    data = bytes(described(group_type).encode(version=version))
    for row in type(described(group_type)).decode(data, version=version).groups:
        group = rows_of(row, group_type)
        assert (group["group_state"], group["error"]) == ("Stable", None)
        assert [member["member_id"] for member in group["members"]] == [
            f"{row.group_id}-a",
            f"{row.group_id}-b",
        ]
        for member in group["members"]:
            is_streams = group_type is GroupType.STREAMS
            assert member["subscription"] == (["counts", "orders"] if is_streams else ["orders"])
            counts = [{"topic": "counts", "partitions": [1]}] if is_streams else []
            assert member["assignment"] == READ_ORDERS + counts
            assert (member["subscription_error"], member["assignment_error"]) == (None, None)
            assert (member["client_id"], member["client_host"]) == ("client", "/10.0.0.1")
    has_target = group_type in {GroupType.CONSUMER, GroupType.STREAMS}
    assert group["members"][0].get("target_assignment") == (
        [{"topic": "orders", "partitions": [1]}] if has_target else None
    )


def test_a_malformed_field_leaves_the_other_field_and_the_other_members_as_they_are() -> None:
    null = hexed("0000 ffffffff ffffffff")
    good, bad_assignment, bad_subscription = rows_of(
        classic_group(
            "g",
            classic_member("a"),
            classic_member("b", member_assignment=null),
            classic_member("c", member_metadata=null, member_assignment=owning(("orders", [1]))),
        )
    )["members"]
    assert (good["subscription"], good["assignment"]) == (["orders"], READ_ORDERS)
    assert (bad_assignment["subscription"], bad_assignment["subscription_error"]) == (["orders"], None)
    assert bad_assignment["assignment"] is None
    assert bad_assignment["assignment_error"] == (
        "the assignment cannot be decoded: the array of topics is null"
    )
    assert bad_subscription["subscription"] is None
    assert bad_subscription["assignment"] == [{"topic": "orders", "partitions": [1]}]
    assert group_problem([good]) is None
    assert group_problem([good, bad_assignment, bad_subscription]) == (
        "subscription of 'c': the subscription cannot be decoded: the array of topics is null; "
        "assignment of 'b': the assignment cannot be decoded: the array of topics is null"
    )


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"group_state": "PreparingRebalance"}, REBALANCING),
        ({"group_state": "CompletingRebalance"}, REBALANCING),
        ({"protocol_type": "connect"}, f"{OTHER_PROTOCOL}: its protocol type is 'connect'"),
    ],
)
def test_a_state_and_another_protocol_are_reasons_and_no_problems(more: Row, reason: str) -> None:
    for member in rows_of(classic_group("g", **more))["members"]:
        assert (member["subscription"], member["assignment"]) == (None, None)
        assert (member["subscription_error"], member["assignment_error"]) == (reason, reason)
        assert group_problem([member]) is None


def test_the_temporary_member_is_left_out_also_where_nothing_else_shows_it() -> None:
    marked = bytes(
        ConsumerProtocolSubscription(
            version=1, topics=[], user_data=TEMPORARY_MEMBER_MARK, owned_partitions=[]
        ).encode()
    )
    stable = classic_group("g", classic_member("a"), classic_member("t", member_metadata=marked))
    hidden = {"member_metadata": b"", "member_assignment": b"", "client_id": TEMPORARY_CLIENT_ID}
    rebalancing = classic_group(
        "g", classic_member("a"), classic_member("t", **hidden), group_state="PreparingRebalance"
    )
    for group in (stable, rebalancing):
        assert [member["member_id"] for member in rows_of(group)["members"]] == ["a"]


@pytest.mark.parametrize(
    ("topics", "regex", "subscription", "error"),
    [
        (["orders"], None, ["orders"], None),
        (["orders"], "", ["orders"], None),
        ([], "^rx-.*", ["rx-a", "rx-b"], None),
        (["orders"], "rx-a", ["orders", "rx-a"], None),
        # The whole name has to match, as with RE2J's `matches`.
        ([], "rx", [], None),
        (["orders"], r"(?=x)a", None, "the expression is not RE2: "),
        (["orders"], "(", None, "the expression is not RE2: "),
        ([], "a" * 2_000_000, None, "the expression is not RE2: "),
        (
            [],
            "(" + "|".join(f"[ab]*a[ab]{{{size}}}" for size in range(1, 500)) + ")",
            None,
            "the group's expressions",
        ),
    ],
)
def test_an_expression_is_matched_by_re2_or_makes_the_subscription_unknown(
    topics: list[str], regex: str | None, subscription: list[str] | None, error: str | None
) -> None:
    of = messages.ConsumerGroupDescribeResponse
    row = newer_group(
        of, "g", lambda name: consumer_member(name, topics=topics, regex=regex), assignor_name="uniform"
    )
    names = (
        TOPICS if error is None or "RE2" in error else tuple(f"topic-{number:06}" for number in range(2_000))
    )
    for member in described_group(row, GroupType.CONSUMER, lambda: names)["members"]:
        assert member["subscription"] == subscription
        assert member["subscription_pattern"] == (regex or None)
        assert (member["subscription_error"] or "").startswith(error or "")
        assert (member["subscription_error"] is None) == (error is None)
        assert member["assignment"] == READ_ORDERS


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (classic_group("g", error_code=30), "GroupAuthorizationFailedError"),
        (classic_group("g", error_code=69, error_message="Group g not found."), "GroupIdNotFoundError"),
        (classic_group("g", members=None), "the group's description cannot be decoded: TypeError: "),
        (
            classic_group("g", classic_member("")),
            "the group's description cannot be decoded: a member has no id",
        ),
        (
            classic_group("g", classic_member("a"), classic_member("a")),
            "the group's description cannot be decoded: a member is listed twice",
        ),
    ],
)
def test_what_is_wrong_with_a_whole_group_is_its_error(row: Any, error: str) -> None:
    group = rows_of(row)
    assert str(group["error"]).startswith(error)
    assert "members" not in group


def test_reasons_are_short_whatever_the_names() -> None:
    name = "n" * 32_000
    negative = owning((name, [-1]))
    (member,) = rows_of(classic_group("g", classic_member(name, member_assignment=negative)))["members"]
    assert len(member["assignment_error"]) < 300
    assert len(group_problem([member]) or "") < 600
    (other,) = rows_of(classic_group("g", classic_member("a"), protocol_type=name))["members"]
    assert len(other["assignment_error"]) < 300


def test_an_offset_of_a_group_that_cannot_be_read_is_its_error() -> None:
    part = (
        OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics.OffsetFetchResponsePartitions
    )
    topic = OffsetFetchResponse.OffsetFetchResponseGroup.OffsetFetchResponseTopics
    group = OffsetFetchResponse.OffsetFetchResponseGroup

    def offsets(*numbers: int, code: int = 0) -> Any:
        return topic(
            name="orders",
            partitions=[
                part(
                    partition_index=number,
                    committed_offset=7,
                    committed_leader_epoch=-1,
                    metadata="",
                    error_code=code,
                )
                for number in numbers
            ],
        )

    def read(*topics: Any, code: int = 0) -> tuple[Any, ...]:
        return read_group_offsets(group(group_id="g", topics=list(topics), error_code=code), is_share=False)

    found, error, _ = read(offsets(0, 1))
    assert [(each.topic, each.partitions, each.offsets) for each in found] == [("orders", [0, 1], [7, 7])]
    assert error is None
    assert read(code=16)[1:] == ("NotCoordinatorError", 16)
    assert read(offsets(0, code=88))[1:] == ("UnstableOffsetCommitError", 88)
    assert read(offsets(0), offsets(1))[1:] == ("its offsets cannot be decoded: a topic is listed twice", 0)
    twice = "its offsets cannot be decoded: a partition of 'orders' is listed twice"
    assert read(offsets(0, 0))[1:] == (twice, 0)


# Mutations

INTEGERS = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x80\x00\x00\x00",
    b"\xff\xff",
    b"\x7f",
)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes with up to four changes: other bytes, a cut, an insertion, a repeated part."""
    for _ in range(draw.randint(1, 4)):
        at = draw.randint(0, len(data))
        match draw.randrange(5):
            case 0:
                data = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + draw.choice(INTEGERS) + data[at + draw.choice((0, 2, 4)) :]
            case 3:
                data = data[:at] + draw.randbytes(draw.randint(1, 6)) + data[at:]
            case _:
                data = data[:at] + data[draw.randint(0, at) :]
    return data


def check_members(group: Row) -> None:
    """Check that each field is known, or has its reason, and that the rows fit into the table."""
    if group["error"] is not None:
        assert "members" not in group
        return
    for member in group["members"]:
        for fact in ("subscription", "assignment"):
            assert (member[fact] is None) == (member[f"{fact}_error"] is not None), member
    head = {"group_id": "g", "read_at": None, "group_state": group["group_state"]}
    table = member_rows([head | member for member in group["members"]])
    assert table.num_rows == len(group["members"])
    table.validate(full=True)


def mutate_member(draw: random.Random) -> None:
    """Mutate bytes of one of three members; the others are as before."""
    field = draw.choice(("member_metadata", "member_assignment"))
    good = draw.choice(
        (
            owning(("orders", [0, 2]), ("rx-a", [1])),
            subscribed("orders", "rx-a"),
            subscribed("orders") + b"\0" * 8,
        )
    )
    bad = mutated(good, draw)
    group = rows_of(
        classic_group("g", classic_member("a"), classic_member("b", **{field: bad}), classic_member("c"))
    )
    assert group["error"] is None, bad
    others = [member for member in group["members"] if member["member_id"] != "b"]
    assert others == rows_of(classic_group("g", classic_member("a"), classic_member("c")))["members"], bad
    check_members(group)


def mutate_response(draw: random.Random) -> None:
    """Mutate the bytes of one group in a response; what kafka-python decodes of it has values or reasons."""
    group_type = draw.choice(tuple(GroupType))
    response, version = described(group_type), NEWEST[group_type]
    whole = bytes(response.encode(version=version))
    head = bytes(type(response)(throttle_time_ms=0, groups=response.groups[:1]).encode(version=version))
    data = whole[: len(head) - 1] + mutated(whole[len(head) - 1 :], draw)
    try:
        rows = type(response).decode(data, version=version).groups
    except (ValueError, struct.error, IndexError, TypeError, AssertionError):
        # The batch is sent again in halves.
        return
    groups = [rows_of(row, group_type) for row in rows or ()]
    for group in groups:
        check_members(group)
    assert groups[:1] == [rows_of(response.groups[0], group_type)]


def mutate_field(draw: random.Random) -> None:
    """Replace a field of a group or of its first member by what kafka-python may decode in its place."""
    group_type = draw.choice(tuple(GroupType))
    row, good = (described(group_type).groups[0] for _ in range(2))
    is_of_member = draw.random() < 0.7
    place, name = draw.choice(places_in(row.members[0]) if is_of_member else places_in(row))
    if isinstance(value := getattr(place, name), (str, type(None))):
        setattr(
            place, name, draw.choice((None, "", "(", "(a+)+b", ".*", "\0", "[[:alpha:]]{1,1000}", "orders"))
        )
    elif isinstance(value, list) and value and isinstance(value[0], str):
        setattr(place, name, draw.choice((None, [None], [], [*value, None], value * 2)))
    else:
        setattr(place, name, None)
    group = rows_of(row, group_type)
    check_members(group)
    if is_of_member and group["error"] is None:
        assert group["members"][1:] == rows_of(good, group_type)["members"][1:]


def places_in(value: Any) -> list[tuple[Any, str]]:
    """Return all fields of a structure that kafka-python generated, with what holds them."""
    found = []
    for name in value._struct.fields:
        found.append((value, name))
        inner = getattr(value, name)
        for part in inner if isinstance(inner, list) else [inner]:
            found += places_in(part) if hasattr(part, "_struct") else []
    return [place for place in found if place[1] not in {"error_code", "authorized_operations"}]


def mutate_offsets(draw: random.Random) -> None:
    """Mutate a response of committed offsets, or of share partitions."""
    is_share = draw.random() < 0.5
    if is_share:
        of = messages.DescribeShareGroupOffsetsResponse
        group = of.DescribeShareGroupOffsetsResponseGroup
        topic = group.DescribeShareGroupOffsetsResponseTopic
        part = topic.DescribeShareGroupOffsetsResponsePartition
        parts = [
            part(
                partition_index=number,
                start_offset=5,
                leader_epoch=0,
                lag=7,
                error_code=0,
                error_message=None,
            )
            for number in range(3)
        ]
        topics = [topic(topic_name="orders", topic_id=None, partitions=parts)]
        groups = [
            group(group_id=name, topics=topics, error_code=0, error_message=None) for name in ("g1", "g2")
        ]
        response, version = of(throttle_time_ms=0, groups=groups), 1
    else:
        of = OffsetFetchResponse
        group = of.OffsetFetchResponseGroup
        topic = group.OffsetFetchResponseTopics
        part = topic.OffsetFetchResponsePartitions
        parts = [
            part(
                partition_index=number,
                committed_offset=5,
                committed_leader_epoch=0,
                metadata="evenlag:busy_ms=5 since_ms=6",
                error_code=0,
            )
            for number in range(3)
        ]
        topics = [topic(name="orders", partitions=parts)]
        groups = [group(group_id=name, topics=topics, error_code=0) for name in ("g1", "g2")]
        response, version = of(throttle_time_ms=0, groups=groups), 8
    data = mutated(bytes(response.encode(version=version)), draw)
    try:
        rows = type(response).decode(data, version=version).groups
    except (ValueError, struct.error, IndexError, TypeError, AssertionError):
        return
    for row in rows or ():
        found, error, _ = read_group_offsets(row, is_share=is_share)
        assert error is None or not found
        for each in found:
            sizes = {
                len(each.partitions),
                len(each.offsets),
                len(each.leader_epochs),
                len(each.reported_lags),
            }
            assert len(sizes) == 1
            assert all(place in range(len(each.partitions)) for place in each.busy)
            assert all(0 <= number < 10**13 for busy in each.busy.values() for number in busy)


def run_mutations(count: int, seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311  # repeatable
    kinds = (mutate_member, mutate_response, mutate_field, mutate_offsets)
    for number in range(count):
        try:
            kinds[number % len(kinds)](draw)
        except Exception as error:
            raise AssertionError(f"mutation {number} of seed {seed}") from error


def test_no_mutation_is_an_exception_or_changes_what_it_does_not_touch() -> None:
    run_mutations(4_000, seed=35)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_none_of_a_million_mutations_is_an_exception() -> None:
    run_mutations(1_000_000, seed=848)
