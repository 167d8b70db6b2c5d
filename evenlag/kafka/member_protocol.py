"""What other people's clients put into a group: bytes and fields as values, or why they are unreadable.

A broker passes on whatever a member, or the leader of a classic group, sends. A field that cannot be read is
unknown with its reason, the rest of its member is read, and an error that nobody foresaw is its group's.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.admin import ACLOperation

from assignor_core.busy_time import BusyTime, read_busy_time
from assignor_core.members import is_temporary_member
from evenlag.enums import REBALANCING_STATES, GroupType
from evenlag.kafka.broker_requests import in_one_line
from evenlag.kafka.topic_metadata import error_name
from evenlag.name_patterns import compile_expression

# Returns the names of the cluster's topics; called only where a member subscribes by an expression.
Topics = Callable[[], Collection[str]]

# Client id of the member that joins a classic group for a moment (`evenlag.publishing.rebalance_trigger`).
TEMPORARY_CLIENT_ID: Final = "evenlag-temporary-member"
# protocol_type of consumer groups; Kafka Connect and others use the same coordinator with their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
REBALANCING: Final = "the group is rebalancing"
"""Why a classic group shows neither subscriptions nor assignments; it is a state, no problem."""
OTHER_PROTOCOL: Final = "not a consumer group"
"""Begins why a classic group of another protocol has neither; it is no problem either."""
# UNSUPPORTED_VERSION: Kafka 3.9 knows ConsumerGroupDescribe, and refuses it while the feature is off.
_UNSUPPORTED: Final = 35
_NO_CONSUMER_PROTOCOL: Final = (
    "the brokers do not have the consumer protocol (Kafka 4.0 and newer, group.version=1)"
)
# Since KIP-881 a subscription has the rack, after the owned partitions and their generation.
_VERSION_WITH_RACK: Final = 3
# Errors of a share partition whose topic is gone.
_GONE: Final = frozenset({3, 100})
_MEMBER_TYPES: Final = {0: GroupType.CLASSIC.value, 1: GroupType.CONSUMER.value}
# RE2 instructions times characters of topic names, for all expressions of a group; at most 6 ns for each.
_MAX_STEPS: Final = 2_000_000_000
_MAX_CHARACTERS: Final = 200

_Fields = dict[str, Any]


class MalformedError(ValueError):
    """Raised when bytes or a field are not what the protocol says; the text says what is wrong."""


class _RefusedError(Exception):
    """Raised when an expression cannot be matched."""


def read_subscription(data: bytes) -> tuple[list[str], bytes | None, str | None]:
    """Return the topics, the user data and the rack of a subscription of the consumer protocol.

    What follows the topics may end early, as kafka-go's owned partitions do; what is unreadable is None.
    """
    source = _Source(data)
    version = source.version()
    topics = sorted({source.text("a topic") for _ in range(source.count("topics", 2))})
    user_data = rack = None
    try:
        user_data = source.nullable_bytes("the user data")
        if version >= _VERSION_WITH_RACK:
            for _ in range(source.count("owned topics", 6)):
                source.text("an owned topic")
                source.integers("owned partitions")
            source.generation()
            rack = source.nullable_text("the rack") or None
    except MalformedError:
        pass
    return topics, user_data, rack


def read_assignment(data: bytes) -> list[_Fields]:
    """Return the topics and partitions of an assignment of the consumer protocol, of any version."""
    source = _Source(data)
    source.version()
    pairs = [
        (source.text("a topic"), source.integers("partitions")) for _ in range(source.count("topics", 6))
    ]
    return _by_topic(pairs)


def described_group(row: Any, group_type: str, topics: Topics) -> _Fields:
    """Convert a group of a describe response, as kafka-python decodes it, into columns of ``members``."""
    readers: dict[str, Callable[[Any, Any, _Expressions], _Fields | None]] = {
        GroupType.CLASSIC: _classic_member,
        GroupType.CONSUMER: _consumer_member,
        GroupType.STREAMS: _streams_member,
        GroupType.SHARE: _share_member,
    }
    try:
        if row.error_code:
            return {"error": _group_error(row, group_type), "authorized_operations": None}
        expressions = _Expressions(topics)
        read = (readers[group_type](member, row, expressions) for member in row.members)
        members = [member for member in read if member is not None]
        _check_ids([member["member_id"] for member in members])
        return {
            "protocol_type": getattr(row, "protocol_type", None),
            "assignor": getattr(row, "protocol_data", None) or getattr(row, "assignor_name", None) or None,
            "members": members,
            "group_state": row.group_state,
            "group_epoch": getattr(row, "group_epoch", None),
            "assignment_epoch": getattr(row, "assignment_epoch", None),
            "authorized_operations": _operation_names(row.authorized_operations),
            "error": None,
        }
    except Exception as error:  # noqa: BLE001  # whatever the group's members make of it is the group's problem
        return {
            "error": f"the group's description cannot be decoded: {_reason(error)}",
            "authorized_operations": None,
        }


@dataclass(frozen=True, slots=True)
class TopicCommits:
    """Committed offsets of a group on a topic, or start offsets of share partitions with the reported lag.

    busy: Busy times that commits report, by index of the partition.
    """

    topic: str
    partitions: Sequence[int]
    offsets: Sequence[int]
    leader_epochs: Sequence[int]
    reported_lags: Sequence[int]
    busy: Mapping[int, BusyTime]


def read_group_offsets(row: Any, *, is_share: bool) -> tuple[list[TopicCommits], str | None, int]:
    """Return the offsets of a group of an OffsetFetch or a DescribeShareGroupOffsets response.

    Returns them by topic; else why they could not be read, and the code of that error.
    """
    try:
        found, code = _share_offsets(row) if is_share else _committed_offsets(row)
        _check_once("a topic", [each.topic for each in found])
        for each in found:
            _check_once(f"a partition of {each.topic!r}", each.partitions)
    except Exception as error:  # noqa: BLE001  # whatever is wrong with it is the group's problem
        return [], f"its offsets cannot be decoded: {_reason(error)}", 0
    return ([], error_name(code), code) if code else (found, None, 0)


def group_problem(members: Sequence[Mapping[str, Any]]) -> str | None:
    """Return what is unreadable of a group's members, in one line; None: nothing."""
    problems: list[str] = []
    for fact in ("subscription", "assignment"):
        bad = [row for row in members if is_problem(row.get(f"{fact}_error"))]
        if bad:
            first = min(bad, key=lambda row: str(row["member_id"]))
            more = f" (and {len(bad) - 1:,} more members)" if len(bad) > 1 else ""
            problems.append(f"{fact} of {_short(repr(first['member_id']))}{more}: {first[f'{fact}_error']}")
    return "; ".join(problems) or None


def is_problem(error: str | None) -> bool:
    """Return whether the reason of an unknown subscription or assignment is a problem, not a state."""
    return error is not None and error != REBALANCING and not error.startswith(OTHER_PROTOCOL)


class _Source:
    """Reads bytes of the consumer protocol in sequence, as Kafka's Java client does, with bounds."""

    def __init__(self, data: bytes) -> None:
        if not data:
            raise MalformedError("there are no bytes")
        self._data, self._at = bytes(data), 0

    def version(self) -> int:
        # Newer versions only append fields (KIP-54): they are read as the newest known one.
        if (version := self._integer("the version", 2)) < 0:
            raise MalformedError(f"the version is {version}")
        return version

    def generation(self) -> int:
        return self._integer("the generation", 4)

    def count(self, what: str, item_size: int) -> int:
        """Read the number of elements of an array, whose elements have at least this size."""
        number = self._integer(f"the number of {what}", 4)
        if number < 0:
            raise MalformedError(f"the array of {what} is null")
        if number * item_size > len(self._data) - self._at:
            raise MalformedError(f"{number:,} {what} in {len(self._data) - self._at:,} bytes")
        return number

    def text(self, what: str) -> str:
        if (read := self.nullable_text(what)) is None:
            raise MalformedError(f"{what} is null")
        return read

    def nullable_text(self, what: str) -> str | None:
        if (size := self._integer(f"the length of {what}", 2)) < 0:
            return None
        try:
            return self._take(what, size).decode()
        except UnicodeDecodeError:
            raise MalformedError(f"the name of {what} is not UTF-8") from None

    def integers(self, what: str) -> list[int]:
        number = self.count(what, 4)
        return list(struct.unpack(f">{number}i", self._take(what, 4 * number)))

    def nullable_bytes(self, what: str) -> bytes | None:
        size = self._integer(f"the length of {what}", 4)
        return None if size < 0 else self._take(what, size)

    def _integer(self, what: str, size: int) -> int:
        return int.from_bytes(self._take(what, size), "big", signed=True)

    def _take(self, what: str, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise MalformedError(f"the bytes end within {what}")
        taken, self._at = self._data[self._at : end], end
        return taken


class _Expressions:
    """Topics that expressions of a group match as a whole, as the broker does, at a bounded cost."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._steps_left = _MAX_STEPS
        self._matching: dict[str, list[str]] = {}

    def matching(self, expression: str) -> list[str]:
        if expression not in self._matching:
            try:
                compiled = compile_expression(expression)
            except ValueError as error:
                raise _RefusedError(f"the expression is not RE2: {error}") from None
            names = self._topics()
            self._steps_left -= compiled.programsize * sum(map(len, names))
            if self._steps_left < 0:
                raise _RefusedError("the group's expressions are too large for the number of topics")
            self._matching[expression] = [name for name in names if compiled.fullmatch(name) is not None]
        return self._matching[expression]


def _reason(error: Exception) -> str:
    return _short(str(error)) if isinstance(error, MalformedError) else in_one_line(error)


def _short(text: str) -> str:
    """Names of members, topics and protocols may have 32,767 characters, and tables keep the reasons."""
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _fact(fact: str, read: Callable[[], Any]) -> _Fields:
    """Return a subscription or an assignment of a member, or why it is unknown."""
    try:
        return {fact: read(), f"{fact}_error": None}
    except _RefusedError as error:
        return {fact: None, f"{fact}_error": _short(str(error))}
    except Exception as error:  # noqa: BLE001  # a field that cannot be read is that field's problem
        return {fact: None, f"{fact}_error": f"the {fact} cannot be decoded: {_reason(error)}"}


def _unknown(reason: str) -> _Fields:
    facts = ("subscription", "assignment")
    return dict.fromkeys(facts) | dict.fromkeys((f"{fact}_error" for fact in facts), reason)


def _by_topic(pairs: Iterable[tuple[str, Iterable[int]]]) -> list[_Fields]:
    """Partitions by topic; a topic or a partition that is listed twice counts once."""
    found: dict[str, set[int]] = {}
    for topic, numbers in pairs:
        _check_topic(topic)
        found.setdefault(topic, set()).update(numbers)
    for topic, owned in found.items():
        if (least := min(owned, default=0)) < 0:
            raise MalformedError(f"the partition {least} of {topic!r}")
    return [{"topic": topic, "partitions": sorted(owned)} for topic, owned in found.items()]


def _names(values: Iterable[str]) -> list[str]:
    found = set(values)
    for name in found:
        _check_topic(name)
    return sorted(found)


def _check_topic(name: Any) -> None:
    if not isinstance(name, str):
        raise MalformedError("a topic is null")


def _check_ids(member_ids: Sequence[str | None]) -> None:
    if not all(member_ids):
        raise MalformedError("a member has no id")
    _check_once("a member", member_ids)


def _check_once(what: str, values: Sequence[Any]) -> None:
    if len(set(values)) < len(values):
        raise MalformedError(f"{what} is listed twice")


def _group_error(row: Any, group_type: str) -> str:
    # The coordinator's message about a classic group repeats the error and the group's name.
    message = None if group_type == GroupType.CLASSIC else row.error_message
    if group_type == GroupType.CONSUMER and row.error_code == _UNSUPPORTED:
        message = _NO_CONSUMER_PROTOCOL
    return f"{error_name(row.error_code)}: {message}" if message else error_name(row.error_code)


def _operation_names(codes: Iterable[int] | None) -> list[str] | None:
    if codes is None:
        return None
    not_operations = (ACLOperation.UNKNOWN, ACLOperation.ANY, ACLOperation.ALL)
    operations = {operation for operation in ACLOperation if operation.value in set(codes)}
    return sorted(operation.name for operation in operations.difference(not_operations))


def _client(member: Any) -> _Fields:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
    }


def _unknown_facts(row: Any) -> _Fields | None:
    """Subscription and assignment of the members of a classic group that shows neither."""
    if row.protocol_type not in {CONSUMER_PROTOCOL_TYPE, ""}:
        return _unknown(_short(f"{OTHER_PROTOCOL}: its protocol type is {row.protocol_type!r}"))
    return _unknown(REBALANCING) if row.group_state in REBALANCING_STATES else None


def _classic_member(member: Any, row: Any, _expressions: _Expressions) -> _Fields | None:
    """Return the columns of a member; None for evenlag's own, which joins to make the group rebalance.

    A group that rebalances reports no subscriptions: then only its client id shows it, and nobody owns
    anything, so nothing is hidden.
    """
    head = _client(member) | {"group_instance_id": member.group_instance_id}
    if not member.member_metadata and member.client_id == TEMPORARY_CLIENT_ID:
        return None
    if (unknown := _unknown_facts(row)) is not None:
        return head | unknown
    subscription = _fact("subscription", lambda: read_subscription(member.member_metadata))
    if (read := subscription["subscription"]) is not None:
        topics, user_data, rack = read
        if is_temporary_member(topics, user_data):
            return None
        subscription |= {"subscription": topics, "rack_id": rack}
    return head | subscription | _fact("assignment", lambda: read_assignment(member.member_assignment))


def _consumer_member(member: Any, _row: Any, expressions: _Expressions) -> _Fields:
    pattern = member.subscribed_topic_regex or None

    def subscribed() -> list[str]:
        named = _names(member.subscribed_topic_names)
        return named if pattern is None else sorted({*named, *expressions.matching(pattern)})

    def target() -> list[_Fields]:
        return _by_topic(_named_partitions(member.target_assignment))

    return {
        **_client(member),
        "group_instance_id": member.instance_id,
        "subscription_pattern": pattern,
        **_fact("subscription", subscribed),
        **_fact("assignment", lambda: _by_topic(_named_partitions(member.assignment))),
        "target_assignment": _fact("target_assignment", target)["target_assignment"],
        "member_epoch": member.member_epoch,
        # Reported since the second version of the message (Kafka 4.1).
        "member_type": _MEMBER_TYPES.get(member.member_type),
        "rack_id": member.rack_id,
    }


def _named_partitions(assignment: Any) -> list[tuple[str, Iterable[int]]]:
    return [(topic.topic_name, topic.partitions) for topic in assignment.topic_partitions]


def _share_member(member: Any, _row: Any, _expressions: _Expressions) -> _Fields:
    return {
        **_client(member),
        **_fact("subscription", lambda: _names(member.subscribed_topic_names)),
        **_fact("assignment", lambda: _by_topic(_named_partitions(member.assignment))),
        "member_epoch": member.member_epoch,
        "rack_id": member.rack_id,
    }


def _streams_member(member: Any, row: Any, _expressions: _Expressions) -> _Fields:
    """A member of a streams group processes tasks: a partition of each source topic of a subtopology."""
    topology = row.topology

    def sources() -> dict[str, list[str]]:
        if topology is None or topology.subtopologies is None:
            raise MalformedError("the group has no topology yet")
        return {
            part.subtopology_id: _names(
                [*part.source_topics, *(info.name for info in part.repartition_source_topics)]
            )
            for part in topology.subtopologies
        }

    def partitions(assignment: Any) -> list[_Fields]:
        topics_of = sources()
        # A topic with fewer partitions than its subtopology has tasks: readers drop those beyond it.
        return _by_topic(
            (topic, task.partitions)
            for task in assignment.active_tasks
            for topic in topics_of[task.subtopology_id]
        )

    return {
        **_client(member),
        "group_instance_id": member.instance_id,
        **_fact("subscription", lambda: _names(name for names in sources().values() for name in names)),
        **_fact("assignment", lambda: partitions(member.assignment)),
        "target_assignment": _fact("target_assignment", lambda: partitions(member.target_assignment))[
            "target_assignment"
        ],
        "member_epoch": member.member_epoch,
        "rack_id": member.rack_id,
    }


def _committed_offsets(row: Any) -> tuple[list[TopicCommits], int]:
    parts = [(topic, part) for topic in row.topics for part in topic.partitions]
    if code := row.error_code or next((part.error_code for _, part in parts if part.error_code), 0):
        return [], code
    return [
        _topic_commits(
            topic.name, topic.partitions, "committed_offset", "committed_leader_epoch", reported_lag=None
        )
        for topic in row.topics
    ], 0


def _share_offsets(row: Any) -> tuple[list[TopicCommits], int]:
    if row.error_code:
        return [], row.error_code
    found = []
    for topic in row.topics:
        parts = [part for part in topic.partitions if part.error_code not in _GONE]
        if code := next((part.error_code for part in parts if part.error_code), 0):
            return [], code
        found.append(_topic_commits(topic.topic_name, parts, "start_offset", "leader_epoch", "lag"))
    return found, 0


def _topic_commits(
    topic: Any, parts: Sequence[Any], offset: str, epoch: str, reported_lag: str | None
) -> TopicCommits:
    _check_topic(topic)
    return TopicCommits(
        topic,
        [part.partition_index for part in parts],
        [getattr(part, offset) for part in parts],
        [getattr(part, epoch) for part in parts],
        [-1 if reported_lag is None else getattr(part, reported_lag) for part in parts],
        _busy_times(parts),
    )


def _busy_times(parts: Sequence[Any]) -> dict[int, BusyTime]:
    texts = (getattr(part, "metadata", None) for part in parts)
    found = ((place, read_busy_time(text)) for place, text in enumerate(texts) if text)
    return {place: busy for place, busy in found if busy is not None}
