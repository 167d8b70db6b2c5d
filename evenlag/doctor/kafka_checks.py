"""Checks of a cluster's brokers, of evenlag's permissions there, its hint topic and its groups.

Permissions are checked by asking for authorized operations, which changes nothing. Kafka reports those of the
resources that a client describes, but not of transactional ids: a check shows that one can be described. Only
a write would show that it can be written, and it would fence an active publisher.
"""

import re
import shlex
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, TypeVar

import kafka.errors
import pyarrow.compute as pc
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.protocol.api_key import ApiKey

from evenlag.doctor.model import Check, Finding, failed, ok, skipped, warning
from evenlag.enums import EVENLAG_ASSIGNOR, HINTABLE_TYPES, GroupType, LagStatus, Mode
from evenlag.errors import KafkaUnreachableError
from evenlag.kafka.broker_requests import BrokerCalls
from evenlag.kafka.connection import (
    Grants,
    kafka_client_settings,
    kafka_errors,
    operation_name,
    request_limits,
    request_timeout_s,
)
from evenlag.kafka.connection_failures import explain, tls_context
from evenlag.kafka.coordinators import find_coordinators
from evenlag.kafka.groups import describe_groups, list_groups
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE
from evenlag.kafka.topic_metadata import TOPIC_DENIED, read_metadata
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.snapshot_reader import snapshot_filters
from evenlag.lake.tables import LAG, PLANS
from evenlag.policy.cluster_settings import DEFAULT_HINT_TOPIC, ClusterSettings
from evenlag.policy.loader import LoadedPolicy
from evenlag.policy.secrets import SecretRef
from evenlag.policy.settings import Policy
from evenlag.publishing.hint_topic import MAX_KEPT_BYTES, TopicState, is_plausible, read_hint_topic
from evenlag.publishing.plugin_memory import MIN_DEFAULT_BYTES, groups_without_room, plugin_bytes
from evenlag.publishing.publishable_plans import PUBLISHING_MODES
from evenlag.publishing.writing.hint_publisher import hint_publisher, publisher_id
from evenlag.publishing.writing.topic_settings import (
    REQUIRED_SETTINGS,
    alter_command,
    new_topic,
    wrong_settings,
)

PROBE_TIMEOUT_S: Final = 3.0
SOON_DAYS: Final = 30
_Value = TypeVar("_Value")

# Requests that evenlag sends: the lowest API version that it needs, why, and the Kafka release with it.
_NEEDED_VERSIONS: Final = {
    "Metadata": (10, "topic ids, Kafka 2.8"),
    "OffsetFetch": (8, "offsets of many groups, Kafka 3.0"),
    "ListOffsets": (2, "the last stable offset, Kafka 0.11"),
    "DescribeGroups": (4, "static members, Kafka 2.3"),
    "DescribeCluster": (0, "the cluster's id, Kafka 2.8"),
    "DescribeConfigs": (1, "the hint topic's settings, Kafka 1.1"),
    "InitProducerId": (0, "the publisher's transactions, Kafka 0.11"),
}
# A hint's times are from the publisher's clock; consumers compare them with their own clocks.
_CLOCK_WARNING_S: Final = 5.0
_CLOCK_FAILED_S: Final = 60.0
_AT_ONCE: Final = 16
_TRANSACTIONS: Final = "__transaction_state"
_UNKNOWN_TOPIC: Final = 3
_HINT_TOPIC_OPERATIONS: Final = ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
_TOPIC_SETTINGS: Final = (*REQUIRED_SETTINGS, "min.insync.replicas", "max.message.bytes")
# Upper limit of what the envelope, the key and the record headers add to a plan's payload.
_ENVELOPE_BYTES: Final = 1_000
_PLANS_LOOK_BACK: Final = timedelta(days=31)
# Groups that are named one by one.
_MAX_GROUPS: Final = 20
_AUTO_CREATE: Final = "auto.create.topics.enable"
_ASSIGNORS: Final = "group.consumer.assignors"
_REQUIRED_SIGNING: Final = "evenlag.required.signing"
_BROKER_SETTINGS: Final = (_AUTO_CREATE, _ASSIGNORS, _REQUIRED_SIGNING)
_SETTINGS_HIDDEN: Final = (
    "the brokers' settings do not show: DescribeConfigs on the cluster is not allowed, or no broker answered"
)
# evenlag's plug-in as the brokers' list of assignors names it.
_PLUGIN: Final = "evenlag.broker.EvenlagAssignor"
# Kafka Streams under the classic protocol: its assignor places tasks.
_STREAMS_ASSIGNOR: Final = "stream"
# Default client ids of libraries that have neither the newer protocol nor an assignor of evenlag.
_CLASSIC_ONLY: Final = re.compile(r"^(aiokafka-|kafkajs$|sarama$)|github\.com/segmentio/kafka-go")
_NAMED: Final = 5
_RANGE: Final = "range"


class NotConnectedError(Exception):
    """Raised when a check needs a connection and there is none."""


class KafkaView:
    """A cluster and its lake, for checks that run in sequence in one thread.

    timeout_ms: Request timeout in milliseconds; the policy's own timeout applies if it is shorter.
    """

    def __init__(self, policy: Policy, name: str, reader: LakeReader, *, timeout_ms: int) -> None:
        self.policy = policy
        self.name = name
        self.reader = reader
        given = policy.clusters[name]
        limit = {"request_timeout_ms": min(round(1000 * request_timeout_s(given)), timeout_ms)}
        self.settings: ClusterSettings = given.model_copy(update={**limit, "kafka": {**given.kafka, **limit}})
        self.servers = given.bootstrap_servers
        self._client: Any = None

    def connect(self) -> None:
        """Open the connection."""
        with kafka_errors(self.settings):
            client = KafkaAdminClient(**kafka_client_settings(self.settings))
            client.describe_cluster()
            self._client = client

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    @property
    def client(self) -> Any:
        """The admin client."""
        if self._client is None:
            raise NotConnectedError
        return self._client

    @cached_property
    def cluster(self) -> dict[str, Any]:
        """The cluster's description, with the operations that evenlag is authorized for."""
        described: dict[str, Any] = self.client.describe_cluster()
        return described

    @property
    def active_brokers(self) -> list[dict[str, Any]]:
        """The brokers that are not fenced."""
        return [broker for broker in self.cluster["brokers"] if not broker.get("is_fenced")]

    @cached_property
    def hint_topic(self) -> dict[str, Any]:
        """The hint topic's metadata. ``error_code`` 3: it does not exist; 29: not authorized."""
        described = self.client.describe_topics([self.settings.hint_topic])
        return dict(described[0])

    @cached_property
    def hint_topic_state(self) -> TopicState:
        """The current records of the hint topic."""
        return read_hint_topic(self.settings)

    @cached_property
    def groups(self) -> dict[str, dict[str, Any]]:
        """The groups by id; a group that could not be described has an ``error``.

        A group is a row of :func:`~evenlag.kafka.groups.describe_groups`, with ``members``: its rows that are
        a member's.
        """
        calls = BrokerCalls(self.client, request_limits(self.settings))
        listed, failed = list_groups(calls)
        if failed:
            raise KafkaUnreachableError(f"groups cannot be listed: {'; '.join(failed.values())}")
        coordinators = find_coordinators(calls, sorted(listed))
        groups: dict[str, dict[str, Any]] = {}
        for row in describe_groups(
            calls, listed, coordinators, lambda: tuple(self.partition_counts), with_operations=True
        ):
            group = groups.setdefault(row["group_id"], row | {"members": []})
            if row.get("member_id") is not None:
                group["members"].append(row)
        return groups

    @cached_property
    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each topic, without the hint topic."""
        calls = BrokerCalls(self.client, request_limits(self.settings))
        found = read_metadata(calls, frozenset({self.settings.hint_topic})).partitions
        return dict(Counter(found.names[topic] for topic in found.topic.tolist()))

    def hint_topic_settings(self) -> dict[str, str | None]:
        """Return the settings in `_TOPIC_SETTINGS` of the hint topic; None: not visible."""
        rows = self._configs("TOPIC", self.settings.hint_topic, _TOPIC_SETTINGS)
        return {name: rows.get(name, {}).get("value") for name in _TOPIC_SETTINGS}

    @cached_property
    def broker_settings(self) -> dict[int, dict[str, str | None]]:
        """The settings in `_BROKER_SETTINGS` of each active broker, by its id; empty: they are not visible.

        Kafka names the settings of plug-ins that are set, and hides their values: None.
        """
        found: dict[int, dict[str, str | None]] = {}
        for broker in self.active_brokers:
            found[int(broker["broker_id"])] = {}
            with suppress(kafka.errors.KafkaError):
                rows = self._configs("BROKER", str(broker["broker_id"]), _BROKER_SETTINGS)
                found[int(broker["broker_id"])] = {key: row.get("value") for key, row in rows.items()}
        return found

    def _configs(self, kind: str, name: str, wanted: tuple[str, ...]) -> dict[str, dict[str, Any]]:
        resource = ConfigResource(ConfigResourceType[kind], name, list(wanted))
        described = self.client.describe_configs([resource], config_filter="all")
        rows: dict[str, dict[str, Any]] = described.get(kind.lower(), {}).get(name, {})
        return rows


def kafka_checks(view: KafkaView, loaded: LoadedPolicy, *, probe_writes: bool) -> list[Check]:
    """Return the checks of one cluster; `brokers.login` connects, and later checks use its connection."""
    policy, name, hint_topic = view.policy, view.name, view.settings.hint_topic
    is_installed = find_spec("confluent_kafka") is not None
    newest = partial(view.reader.latest_snapshot, name)
    publish = [Check("topics", "publish", lambda: _try_to_publish(view))] if probe_writes else []
    return [
        Check("brokers", "answer", lambda: check_answer(view.servers)),
        Check("brokers", "certificate", lambda: check_certificate(view)),
        Check("brokers", "login", lambda: _check_login(view)),
        Check("brokers", "cluster_id", lambda: check_cluster_id(view.cluster["cluster_id"], newest())),
        Check("brokers", "versions", lambda: check_versions(_versions(view))),
        Check("brokers", "clock", lambda: _check_clock(view)),
        Check("brokers", "assignors", lambda: check_broker_assignors(view.broker_settings)),
        Check("permissions", "cluster", lambda: _check_cluster_permission(view)),
        Check("permissions", "topics", lambda: _check_visible_topics(view)),
        Check("permissions", "groups", lambda: _check_group_permissions(view)),
        Check("permissions", "hint_topic", lambda: _check_topic_permissions(view)),
        Check("permissions", "transactional_id", lambda: _check_transactional_id(view)),
        Check("topics", "hint_topic", lambda: _check_hint_topic(view)),
        Check("topics", "stop", lambda: _check_state(view, stop_findings)),
        Check("topics", "records", lambda: _check_state(view, records_findings)),
        Check("topics", "plugin_memory", lambda: _check_state(view, plugin_memory_findings)),
        Check("topics", "auto_create", lambda: check_auto_create(view.broker_settings, hint_topic)),
        *publish,
        Check("groups", "modes", lambda: ok(describe_modes(policy, name, view.groups))),
        Check("groups", "rules", lambda: check_unmatched(loaded, name, view.groups)),
        Check("groups", "assignor", lambda: check_assignors(policy, name, view.groups)),
        Check("groups", "together", lambda: check_together(policy, name, view.groups, view.partition_counts)),
        Check("groups", "paths", lambda: ok(describe_paths(view.groups))),
        Check("groups", "kip848", lambda: check_extra(policy, name, view.groups, is_installed=is_installed)),
        Check("groups", "commits", lambda: _check_commits(view)),
    ]


def check_answer(servers: Sequence[str]) -> list[Finding]:
    """Check that each bootstrap server accepts connections; each unreachable one is reported."""
    dead = _unreachable(servers)
    num_alive = len(servers) - len(dead)
    found: list[Finding] = []
    for server, reason in dead:
        report = warning if num_alive else failed
        found += report(f"{server}: {reason}", "start it, correct bootstrap_servers, or open the way to it")
    if num_alive:
        found += ok(f"{num_alive} of {len(servers)} bootstrap servers accept connections")
    return found


def _unreachable(servers: Sequence[str]) -> list[tuple[str, str]]:
    reasons = zip(servers, _each(why_unreachable, servers), strict=True)
    return [(server, reason) for server, reason in reasons if reason is not None]


def _each(look: Callable[[str], _Value], servers: Sequence[str]) -> list[_Value]:
    """Run a check for each server in parallel, since a dead one takes seconds."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(look, servers))


def check_certificate(view: KafkaView) -> list[Finding]:
    """Check that each broker's certificate is accepted and does not expire soon."""
    kafka = view.settings.kafka
    protocol = str(kafka.get("security_protocol", "PLAINTEXT"))
    if "SSL" not in protocol:
        return skipped(f"security_protocol is {protocol}: there is no TLS")
    password = kafka.get("ssl_password")
    resolved = password.resolve() if isinstance(password, SecretRef) else None
    found = _each(lambda server: look_at_certificate(server, kafka, resolved), view.servers)
    return [finding for findings in found for finding in findings]


def _check_login(view: KafkaView) -> list[Finding]:
    view.connect()
    protocol = view.settings.kafka.get("security_protocol", "PLAINTEXT")
    advertised = [f"{broker['host']}:{broker['port']}" for broker in view.active_brokers]
    found = ok(f"connected over {protocol}; {len(advertised)} brokers")
    for server, reason in _unreachable([server for server in advertised if server not in view.servers]):
        found += failed(
            f"the cluster names a broker {server}, which cannot be reached from here: {reason}",
            "correct the broker's advertised.listeners, or open the way to it",
        )
    return found


def check_cluster_id(reported: str, newest: Mapping[str, Any] | None) -> list[Finding]:
    """Check that the brokers belong to the cluster that the lake's newest snapshot of this name is of."""
    if newest is None:
        return ok(f"{reported}; the lake has no reading of it yet")
    known = newest["kafka_cluster_id"]
    if known == reported:
        return ok(f"{reported}, as in the lake")
    return failed(
        f"the brokers report the id {reported}, the lake has {known} under this name",
        "correct bootstrap_servers, or give the new cluster a new name in the policy",
    )


def check_versions(versions: Mapping[str, tuple[int, int]]) -> list[Finding]:
    """Check the brokers' API versions; `versions` maps a request's name to its lowest and highest version."""
    found: list[Finding] = []
    for name, (lowest, why) in _NEEDED_VERSIONS.items():
        highest = versions[name][1] if name in versions else None
        if highest is None or highest < lowest:
            offered = f"{name} is offered up to version {'none' if highest is None else highest}"
            found += failed(f"{offered}; version {lowest} is needed ({why})", "update the brokers")
    return found or ok(f"all {len(_NEEDED_VERSIONS)} kinds of request are spoken")


def check_clock(difference_s: float) -> list[Finding]:
    """Check the difference between the cluster's clock and this machine's in seconds; above 0 it is ahead."""
    side = "ahead of" if difference_s > 0 else "behind"
    message = f"the cluster's clock is {abs(difference_s):.1f} s {side} this machine's"
    remedy = "set both by NTP: hints expire by the clocks of publisher and consumers"
    if abs(difference_s) >= _CLOCK_FAILED_S:
        return failed(message, remedy)
    return warning(message, remedy) if abs(difference_s) >= _CLOCK_WARNING_S else ok(message)


def _check_clock(view: KafkaView) -> list[Finding]:
    """Read the quorum leader's own last-caught-up timestamp, which is the current time of its clock."""
    before = time.time()
    try:
        quorum = view.client.describe_metadata_quorum()
    except kafka.errors.ClusterAuthorizationFailedError:
        return skipped("the cluster may not be described: see permissions.cluster")
    except kafka.errors.KafkaError as error:
        return skipped(f"the cluster does not report its time ({type(error).__name__})")
    local_ms = 1000 * (before + time.time()) / 2
    leader_ms = _leader_time_ms(quorum)
    if leader_ms < 0:
        return skipped("the cluster does not report its time")
    return check_clock((leader_ms - local_ms) / 1000)


def _leader_time_ms(quorum: Mapping[str, Any]) -> int:
    """The time that the leader reports; -1 if it reports none."""
    partition = quorum["topics"][0]["partitions"][0]
    voters = {voter["replica_id"]: voter for voter in partition["current_voters"]}
    return int(voters.get(partition["leader_id"], {}).get("last_caught_up_timestamp") or -1)


def check_broker_assignors(settings: Mapping[int, Mapping[str, str | None]]) -> list[Finding]:
    """Compare where the brokers' lists of assignors have evenlag's plug-in: nowhere, first, or later.

    settings: As in ``KafkaView.broker_settings``.
    """
    brokers_of: dict[tuple[str, ...], list[int]] = {}
    hidden = sorted(broker for broker, of_broker in settings.items() if of_broker.get(_ASSIGNORS) is None)
    for broker in sorted(settings.keys() - set(hidden)):
        listed = str(settings[broker][_ASSIGNORS]).split(",")
        brokers_of.setdefault(tuple(name.strip() for name in listed), []).append(broker)
    if not brokers_of:
        return skipped(_SETTINGS_HIDDEN)
    found = skipped(f"{_brokers(hidden)}: {_SETTINGS_HIDDEN}") if hidden else []
    if len(brokers_of) > 1:
        lists = "; ".join(f"{_brokers(ids)}: {','.join(names)}" for names, ids in brokers_of.items())
        found += warning(
            f"{_ASSIGNORS} differs, so a group's assignor may change with its coordinator, and a broker "
            f"refuses members that request an assignor which it lacks: {lists}",
            "set the same list on all brokers (docs/broker-plugin.md)",
        )
    first = sorted(broker for names, ids in brokers_of.items() if names[0] == _PLUGIN for broker in ids)
    unsigned = [broker for broker in first if _REQUIRED_SIGNING not in settings[broker]]
    if unsigned:
        found += warning(
            f"{_brokers(unsigned)}: evenlag is first in {_ASSIGNORS} and {_REQUIRED_SIGNING} is not set: "
            "without a key file an unsigned hint reaches every group that names no assignor",
            f"set {_REQUIRED_SIGNING}=true and evenlag.signing.key.file",
        )
    return found if len(brokers_of) > 1 or unsigned else found + ok(_plugin_place(*brokers_of))


def _plugin_place(assignors: Sequence[str]) -> str:
    if _PLUGIN not in assignors:
        return "no broker has evenlag's plug-in: groups of the consumer protocol follow no hint"
    if assignors[0] == _PLUGIN:
        return (
            f"evenlag is first in {_ASSIGNORS}: groups that name no assignor follow hints. "
            f"{_REQUIRED_SIGNING} is set; Kafka hides its value"
        )
    return f"evenlag is in {_ASSIGNORS}, not first: groups that request it follow hints"


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' * (len(ids) > 1)} {', '.join(map(str, ids))}"


def _versions(view: KafkaView) -> dict[str, tuple[int, int]]:
    # Not the client's api_versions(): it fails on a request that kafka-python has no name for (Kafka 4.4).
    names = {key.value: key.name for key in ApiKey}
    node_id = int(view.active_brokers[0]["broker_id"])
    offered = view.client.get_broker_version_data(node_id).api_versions
    return {names.get(int(key), str(key)): (low, high) for key, (low, high) in offered.items()}


def grants_of(view: KafkaView) -> Grants:
    """Return the ACL commands for evenlag's principal, as far as the policy shows it."""
    return Grants.of(view.servers, view.settings.kafka)


def missing_operations(allowed: list[str] | None, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the operations that are not authorized; all of them if Kafka reports none."""
    return tuple(operation for operation in wanted if operation not in (allowed or ()))


def _check_cluster_permission(view: KafkaView) -> list[Finding]:
    missing = missing_operations(view.cluster.get("authorized_operations"), ("DESCRIBE",))
    if missing:
        return failed(
            "evenlag may not describe the cluster: it sees no group that it was not granted by name",
            grants_of(view).line(missing, "--cluster"),
        )
    return ok("the cluster may be described")


def _check_visible_topics(view: KafkaView) -> list[Finding]:
    """Check for subscribed topics that are not visible: topics without Describe are not in the metadata."""
    seen = {row["name"] for row in view.client.describe_topics() if not row.get("error_code")}
    members = [member for group in view.groups.values() for member in group["members"]]
    taken = {topic for member in members for topic in member["subscription"] or ()}
    hidden = sorted(taken - seen)
    if not hidden:
        return ok(f"{len(seen)} topics may be described, among them all that groups take")
    message = f"{len(hidden)} topics that groups take do not show, so their lag is not seen"
    remedy = "if they are there: " + grants_of(view).line(("DESCRIBE",), "--topic '*'")
    return warning(f"{message}: {_first_names(hidden)}", remedy)


def _check_group_permissions(view: KafkaView) -> list[Finding]:
    remedy = grants_of(view).line(("DESCRIBE",), "--group '*'")
    groups = view.groups
    refused = sorted(
        name for name, group in groups.items() if "AuthorizationFailed" in str(group.get("error") or "")
    )
    if refused:
        return failed(f"{len(refused)} groups may not be described, e.g. {refused[0]}", remedy)
    if not groups:
        return skipped("no group shows, so nothing could be tried")
    blind = sorted(name for name, group in groups.items() if _lacks(group, "DESCRIBE"))
    if blind:
        return failed(f"offsets of {len(blind)} groups may not be read, e.g. {blind[0]}", remedy)
    found = ok(f"{len(groups)} groups may be described")
    return found + check_joins(view.policy, view.name, groups, grants_of(view))


def _lacks(group: Mapping[str, Any], operation: str) -> bool:
    """Whether Kafka says that an operation on a group is not authorized."""
    allowed = group.get("authorized_operations")
    return allowed is not None and operation not in allowed


def check_joins(
    policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]], grants: Grants
) -> list[Finding]:
    """Check that evenlag's temporary member may join the groups that get hints."""
    if policy.clusters[cluster].temporary_member_after_s is None:
        return []
    closed = sorted(
        name
        for name, group in _published(policy, cluster, groups).items()
        if group.get("assignor") == EVENLAG_ASSIGNOR and _lacks(group, "READ")
    )
    if not closed:
        return []
    names = " ".join(f"--group {shlex.quote(name)}" for name in closed[:_NAMED])
    return warning(
        f"{len(closed)} groups that get hints may not be joined, e.g. {closed[0]}: where no member asks, "
        "they follow a hint only when they change by themselves",
        f"{grants.line(('READ',), names)}, or set temporary_member_after_s: null",
    )


def _check_topic_permissions(view: KafkaView) -> list[Finding]:
    name = view.settings.hint_topic
    if not view.policy.publishes_to(view.name):
        return skipped("no rule of the policy lets hints be published here")
    grants, code = grants_of(view), view.hint_topic.get("error_code")
    resource = f"--topic {name}"
    if code == _UNKNOWN_TOPIC:
        return _may_create(view, grants)
    if code == TOPIC_DENIED:
        return failed(
            f"the topic {name} may not be described, or does not exist and may not be created",
            grants.line(("CREATE", *_HINT_TOPIC_OPERATIONS), resource),
        )
    missing = missing_operations(view.hint_topic.get("authorized_operations"), _HINT_TOPIC_OPERATIONS)
    if missing:
        names = ", ".join(map(operation_name, missing))
        return failed(f"on the topic {name} evenlag lacks {names}", grants.line(missing, resource))
    return ok(f"the topic {name} may be read and written")


def _may_create(view: KafkaView, grants: Grants) -> list[Finding]:
    """Ask the broker whether it would create the topic (``validate_only``)."""
    name = view.settings.hint_topic
    try:
        view.client.create_topics({name: new_topic(view.settings)}, validate_only=True)
    except kafka.errors.AuthorizationError:
        line = grants.line(("CREATE", *_HINT_TOPIC_OPERATIONS), f"--topic {name}")
        return failed(f"the topic {name} does not exist and evenlag may not create it", line)
    except kafka.errors.KafkaError as error:
        return failed(
            f"the topic {name} does not exist, and the brokers refuse to create it: {type(error).__name__}",
            "correct hint_topic_partitions and hint_topic_replication_factor, or create it manually",
        )
    return ok(f"the topic {name} does not exist; the first publishing may create it")


def _check_transactional_id(view: KafkaView) -> list[Finding]:
    if not view.policy.publishes_to(view.name):
        return skipped("no rule of the policy lets hints be published here")
    name = publisher_id(view.cluster["cluster_id"], view.settings.hint_topic)
    [state] = view.client.describe_topics([_TRANSACTIONS])
    if state.get("error_code") == _UNKNOWN_TOPIC:
        # A request for a transaction coordinator would create Kafka's internal topic.
        return skipped("no producer has used transactions on this cluster yet, so this is not known")
    try:
        view.client.describe_transactions([name])
    except kafka.errors.AuthorizationError:
        line = grants_of(view).line(("WRITE", "DESCRIBE"), f"--transactional-id {name}")
        return failed(f"evenlag may not use the transactional id {name}", line)
    except kafka.errors.TransactionalIdNotFoundError:
        pass
    return ok(f"the transactional id {name} may be described; --probe-writes tests whether it may be written")


def hint_topic_findings(
    settings: Mapping[str, str | None],
    *,
    replication_factor: int,
    num_brokers: int,
    largest_plan_bytes: int | None,
    name: str = DEFAULT_HINT_TOPIC,
    servers: tuple[str, ...] = ("SERVERS",),
) -> list[Finding]:
    """Check the settings of the hint topic: those of `_TOPIC_SETTINGS`, None: not visible."""
    found: list[Finding] = []
    for setting, reason in wrong_settings(settings):
        found += failed(f"it has {reason}; nothing is published", alter_command(servers, name, (setting,)))
    if replication_factor == 1 and num_brokers > 1:
        found += warning(
            f"it has one replica on {num_brokers} brokers: without that broker nothing is published",
            "give it three by kafka-reassign-partitions.sh",
        )
    in_sync = int(settings.get("min.insync.replicas") or 1)
    if in_sync >= replication_factor > 1:
        found += warning(
            f"min.insync.replicas={in_sync} of {replication_factor} replicas: no broker may be missing",
            f"set it to {replication_factor - 1}",
        )
    limit, needed = settings.get("max.message.bytes"), (largest_plan_bytes or 0) + _ENVELOPE_BYTES
    if limit is not None and largest_plan_bytes is not None and needed > int(limit):
        found += failed(
            f"the lake's largest plan has {largest_plan_bytes:,} bytes, a record holds {int(limit):,}",
            f"raise its max.message.bytes to {2 * needed:,}",
        )
    return found


def _check_hint_topic(view: KafkaView) -> list[Finding]:
    name, topic = view.settings.hint_topic, view.hint_topic
    if topic.get("error_code"):
        return skipped(
            f"the topic {name} does not exist, or may not be described: see permissions.hint_topic"
        )
    settings = view.hint_topic_settings()
    partitions = topic["partitions"]
    replicas = min(len(part["replica_nodes"]) for part in partitions)
    found = hint_topic_findings(
        settings,
        replication_factor=replicas,
        num_brokers=len(view.cluster["brokers"]),
        largest_plan_bytes=_largest_plan(view),
        name=name,
        servers=view.servers,
    )
    leaderless = [part["partition_index"] for part in partitions if part["leader_id"] < 0]
    if leaderless:
        found += failed(f"partitions {leaderless} have no leader", "bring its brokers back")
    message = f"{name}: {len(partitions)} partitions, {replicas} replicas"
    planned = view.settings.hint_topic_partitions
    if len(partitions) != planned:
        message += f" (the policy's {planned} count only when it is made)"
    if settings["cleanup.policy"] is None:
        found += skipped("its settings do not show: DescribeConfigs is not allowed")
    return found + ok(message)


def _largest_plan(view: KafkaView) -> int | None:
    of_cluster = matching(cluster=view.name)
    newest = view.reader.read_newest(PLANS, "day", columns=["day"], filters=of_cluster)["day"]
    if not len(newest):
        return None
    recent = matching(cluster=view.name, since=newest[0].as_py() - _PLANS_LOOK_BACK)
    rows = view.reader.read(PLANS, columns=["payload_bytes"], filters=recent)
    largest: int | None = pc.max(rows["payload_bytes"]).as_py()
    return largest


def _check_state(view: KafkaView, look: Callable[[TopicState], list[Finding]]) -> list[Finding]:
    if view.hint_topic.get("error_code"):
        return skipped("there is no hint topic to look at")
    return look(view.hint_topic_state)


def stop_findings(state: TopicState) -> list[Finding]:
    """Check that hints are stopped in all partitions, or in none."""
    if not state.stopped:
        return ok(f"{len(state.hints)} hints stand, nothing is stopped")
    if len(state.stopped_partitions) < state.num_partitions:
        return warning(
            f"hints are stopped in {len(state.stopped_partitions)} of {state.num_partitions} partitions",
            "evenlag hints stop-all again, or evenlag hints resume",
        )
    return ok("all hints are stopped: nothing is published until evenlag hints resume")


def records_findings(state: TopicState, now_ms: int | None = None) -> list[Finding]:
    """Check for records on the hint topic that are not from evenlag: nobody follows them."""
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    odd = sorted(group for group, hint in state.hints.items() if not is_plausible(hint, now_ms))
    kinds = (
        (state.unreadable, "hints that are not valid"),
        (state.unreadable_loads, "loads that are not valid"),
        (odd, "hints with numbers that no publisher of evenlag writes"),
    )
    found: list[Finding] = []
    for groups, what in kinds:
        if groups:
            found += warning(
                f"{what} are on the topic, of {len(groups)} groups, e.g. {min(groups)!r}: others write to it",
                "evenlag hints withdraw GROUP for each; allow Write on the topic to evenlag alone",
            )
    if state.foreign.num_keys:
        found += warning(
            f"{state.foreign.num_keys:,} keys with {state.foreign.num_bytes:,} bytes are on the topic "
            "that nobody reads: others write to it, or it has more partitions than before",
            "evenlag hints purge; allow Write on the topic to evenlag alone",
        )
    if state.num_unkept:
        found += warning(
            f"{state.num_unkept:,} records are not checked: hints and loads have more than "
            f"{MAX_KEPT_BYTES // 2**20} MiB",
            "evenlag hints GROUP checks one group; allow Write on the topic to evenlag alone",
        )
    if state.num_compressed:
        found += warning(
            f"{state.num_compressed} compressed batches are on the topic; readers skip them",
            "they go with compaction; allow Write on the topic to evenlag alone",
        )
    count = len(state.hints) + len(state.loads)
    return found or ok(f"all {count} hints and loads are valid, and in their group's partition")


def plugin_memory_findings(state: TopicState) -> list[Finding]:
    """Check that the brokers' plug-in holds all records by its least default: a broker reports no limit."""
    sizes = plugin_bytes(state)
    total, limit = sum(sizes.values()), MIN_DEFAULT_BYTES
    message = f"the records of {len(sizes):,} groups of the consumer protocol take {-(-total // 2**20):,} MiB"
    if total <= limit:
        return ok(f"{message} of heap in each broker with the plug-in")
    largest = sorted(sizes, key=lambda group_id: (-sizes[group_id], group_id))[:3]
    remedy = "compare MaxBytes and NoRoomTotal of the MBean evenlag:type=BrokerAssignor on each broker"
    found = warning(
        f"{message} of heap in each broker with the plug-in, the most {', '.join(map(repr, largest))}: "
        f"without {8 * -(-total // 2**20):,} MiB of heap or a larger evenlag.max.bytes some do not fit",
        remedy,
    )
    without = groups_without_room(state)
    for group_id, reason in islice(without.items(), _MAX_GROUPS):
        found += warning(f"group {group_id!r}: {reason}", remedy)
    if len(without) > _MAX_GROUPS:
        found += warning(f"{len(without) - _MAX_GROUPS:,} more groups: the same", remedy)
    return found


def check_auto_create(settings: Mapping[int, Mapping[str, str | None]], hint_topic: str) -> list[Finding]:
    """Check that clients do not create topics automatically: the hint topic would not be compacted.

    settings: As in ``KafkaView.broker_settings``.
    """
    values = [of_broker.get(_AUTO_CREATE) for of_broker in settings.values()]
    # One broker that creates topics is enough.
    value = next((value for value in values if value == "true"), values[0] if values else None)
    if value is None:
        return skipped(_SETTINGS_HIDDEN)
    if value != "true":
        return ok(f"{_AUTO_CREATE}={value}")
    return warning(
        f"{_AUTO_CREATE}=true: whoever names the topic {hint_topic} first makes it, uncompacted",
        f"set it to false, or make the topic {hint_topic} by hand before consumers ask for it",
    )


def _try_to_publish(view: KafkaView) -> list[Finding]:
    """Open a transaction as the publisher and abort it: read_committed consumers see nothing."""
    if view.hint_topic.get("error_code"):
        return skipped("there is no hint topic to write to")
    with hint_publisher(view.cluster["cluster_id"], view.settings) as publisher:
        publisher.check_fence()
    return ok("a transaction on the hint topic was opened and taken back")


def describe_modes(policy: Policy, cluster: str, groups: Iterable[str]) -> str:
    """Return the number of groups by mode, for example ``3 in shadow, 1 in auto``."""
    counts = Counter(policy.group_settings(cluster, group).mode for group in groups)
    modes = ", ".join(f"{counts[mode]} in {mode.value}" for mode in Mode if counts[mode])
    return modes or "no group shows"


def check_unmatched(loaded: LoadedPolicy, cluster: str, groups: Iterable[str]) -> list[Finding]:
    """Check that each rule for this cluster applies to an existing group: a misspelled name matches none."""
    rules, names = loaded.policy.groups, list(groups)
    if not names:
        return skipped("no group shows")
    used = {id(loaded.policy.rule_of(cluster, group)) for group in names}
    found: list[Finding] = []
    for number, rule in enumerate(rules, start=1):
        if cluster in (rule.clusters or (cluster,)) and id(rule) not in used:
            message = f"rule {number}, {rule.match!r}, matches none of the {len(names)} existing groups"
            found += warning(message, f"is the name right? evenlag policy explain {rule.match}")
    return found or ok("each rule matches an existing group")


def _published(
    policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the groups in mode approve or auto."""
    return {
        name: group
        for name, group in groups.items()
        if policy.group_settings(cluster, name).mode in PUBLISHING_MODES
    }


def _is_hintable(group: Mapping[str, Any]) -> bool:
    """Whether hints could reach a group at all: Kafka Connect's workers, say, assign no partitions."""
    return (
        group.get("group_type", GroupType.CLASSIC) in HINTABLE_TYPES
        and (group.get("protocol_type") or CONSUMER_PROTOCOL_TYPE) == CONSUMER_PROTOCOL_TYPE
    )


def check_assignors(policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Check that each group that may receive hints uses evenlag's assignor; other groups ignore hints."""
    published = _published(policy, cluster, groups)
    hinted = {name: group for name, group in published.items() if _is_hintable(group)}
    if not hinted:
        return skipped("no group is in mode approve or auto")
    deaf = sorted(
        f"{name} ({group.get('assignor')})"
        for name, group in hinted.items()
        if group.get("members") and group.get("assignor") not in {EVENLAG_ASSIGNOR, "", None}
    )
    if not deaf:
        return ok(f"none of {len(hinted)} groups has selected another assignor")
    return warning(
        f"{len(deaf)} of {len(hinted)} groups in approve or auto would never be hinted: {_first_names(deaf)}",
        "have every consumer of the group offer the assignor evenlag (docs/hint-client.md; in Java "
        "docs/java-client.md), or ask for "
        "group.remote.assignor=evenlag where the brokers assign (docs/broker-plugin.md)",
    )


def check_together(
    policy: Policy,
    cluster: str,
    groups: Mapping[str, Mapping[str, Any]],
    partition_counts: Mapping[str, int],
) -> list[Finding]:
    """Check that plans keep together what `range` keeps together, where a group may rely on it.

    groups, partition_counts: As in ``KafkaView``.
    """
    apart = []
    for name, group in sorted(groups.items()):
        rule = policy.rule_of(cluster, name)
        if rule is None or rule.mode is Mode.OBSERVE or group.get("assignor") != _RANGE:
            continue
        kept = [set(topics) for topics in rule.together]
        lists = [
            topics
            for topics in _copartitioned(group.get("members") or (), partition_counts)
            if not any(set(topics) <= each for each in kept)
        ]
        if lists:
            listed = ", ".join(f"[{', '.join(topics)}]" for topics in lists)
            apart.append(f"{name} (together: [{listed}])")
    if not apart:
        return ok("no plan separates topics that the assignor range keeps together")
    return warning(
        "range gives equal partition numbers of some topics to one member, and plans do not, in "
        f"{len(apart)} groups: {_first_names(apart)}",
        "if the application relies on it, set together in its rule (docs/how-to/migrate-a-group.md)",
    )


def _copartitioned(
    members: Iterable[Mapping[str, Any]], partition_counts: Mapping[str, int]
) -> list[list[str]]:
    """Lists of topics with the same partition count, of several, and the same subscribers."""
    subscribers: dict[str, list[str]] = {}
    for member in members:
        for topic in member["subscription"] or ():
            subscribers.setdefault(topic, []).append(member["member_id"])
    alike: dict[tuple[int, frozenset[str]], list[str]] = {}
    for topic, member_ids in sorted(subscribers.items()):
        if (count := partition_counts.get(topic, 0)) > 1:
            alike.setdefault((count, frozenset(member_ids)), []).append(topic)
    return [topics for topics in alike.values() if len(topics) > 1]


def describe_paths(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Count the groups that follow hints now, that would after an upgrade, and that have no path to it.

    groups: Groups by id, as in ``KafkaView.groups``. Only a default client id tells a client's library.
    """
    found: dict[str, list[str]] = {"now": [], "setting": [], "protocol": [], "none": [], "unknown": []}
    for name, group in groups.items():
        found[_path(group)].append(name)
    follows, setting, protocol, none, unknown = (sorted(names) for names in found.values())
    parts = [
        f"{len(follows)} groups follow hints",
        f"{len(setting)} of the consumer protocol would with evenlag as their assignor{_named(setting)}",
        f"{len(protocol)} of the classic protocol would after an upgrade of their clients{_named(protocol)}",
        f"{len(none)} have no path{_named(none)}",
        f"{len(unknown)} show no members or no assignor now",
    ]
    return "; ".join(parts)


def _path(group: Mapping[str, Any]) -> str:
    if not _is_hintable(group) or group.get("assignor") == _STREAMS_ASSIGNOR:
        return "none"
    members, assignor = group.get("members") or (), group.get("assignor")
    if group.get("error") or not members or not assignor:
        return "unknown"
    if assignor == EVENLAG_ASSIGNOR:
        return "now"
    if group.get("group_type") == GroupType.CONSUMER:
        return "setting"
    # One client of a library with the newer protocol turns its group over, and brokers assign all members.
    clients = [str(member.get("client_id")) for member in members]
    return "none" if all(_CLASSIC_ONLY.search(client) for client in clients) else "protocol"


def _named(names: list[str]) -> str:
    return f" ({_first_names(names)})" if names else ""


def check_extra(
    policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]], *, is_installed: bool
) -> list[Finding]:
    """Check that the client for KIP-848 groups is installed if one of them may receive hints.

    The publisher uses this client, an optional extra, to make coordinators compute a new target assignment.
    """
    published = _published(policy, cluster, groups)
    asked = [name for name, group in published.items() if group.get("group_type") == GroupType.CONSUMER]
    if not asked:
        return skipped("no group of the consumer protocol (KIP-848) is in mode approve or auto")
    if policy.clusters[cluster].temporary_member_after_s is None:
        # Publishing asks no coordinator then, with the client or without it.
        return ok(
            f"temporary_member_after_s is null: {len(asked)} groups of the consumer protocol follow "
            "a hint when they change by themselves"
        )
    if is_installed:
        return ok(f"the coordinators of {len(asked)} groups can be asked after a hint is published")
    return warning(
        f"{len(asked)} groups of the consumer protocol would take a hint up only when they change by "
        f"themselves: {_first_names(sorted(asked))}",
        "install evenlag[kip848] where hints are published",
    )


def _check_commits(view: KafkaView) -> list[Finding]:
    snapshot = view.reader.latest_snapshot(view.name)
    if snapshot is None:
        return skipped("there is no snapshot yet")
    without = matching(status=[LagStatus.NO_COMMIT, LagStatus.DATA_LOSS, LagStatus.OUT_OF_RANGE])
    wanted = [*snapshot_filters(snapshot), *without]
    rows = view.reader.read(LAG, columns=["group_id"], filters=wanted)
    return check_commits(view.policy, view.name, Counter(rows["group_id"].to_pylist()))


def check_commits(policy: Policy, cluster: str, uncommitted: Mapping[str, int]) -> list[Finding]:
    """Check that the lag of partitions without a usable commit (by group) is known by `reset_policy`."""
    blind = sorted(
        f"{group} ({count})"
        for group, count in uncommitted.items()
        if (settings := policy.group_settings(cluster, group)).reset_policy is None
        and settings.mode is not Mode.OBSERVE
    )
    if not blind:
        return ok("no planned group has partitions whose lag is not known for want of a reset_policy")
    return warning(
        f"for want of commits the lag of {len(blind)} groups is not known: {_first_names(blind)}",
        "set reset_policy in their rule to what their consumers have as auto.offset.reset",
    )


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def split_server(server: str) -> tuple[str, int]:
    """Return host and port of ``host:port``, ``[v6]:port`` or ``NAME://host:port``."""
    host, _, port = server.rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def why_unreachable(server: str, timeout_s: float = PROBE_TIMEOUT_S) -> str | None:
    """Return why a TCP connection to a server failed; None if it succeeded."""
    try:
        with socket.create_connection(split_server(server), timeout=timeout_s):
            return None
    except ValueError:
        return "it has no port: write host:port"
    except socket.gaierror:
        return "its name is not known here"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return error.strerror or str(error)


def look_at_certificate(server: str, kafka: Mapping[str, Any], password: str | None) -> list[Finding]:
    """Open a TLS connection as kafka-python would, and check when the broker's certificate expires."""
    settings = {**kafka, "ssl_password": password}
    context = tls_context(settings)
    host, port = split_server(server)
    try:
        with (
            socket.create_connection((host, port), timeout=PROBE_TIMEOUT_S) as raw,
            context.wrap_socket(raw, server_hostname=host) as secure,
        ):
            return expiry_findings(server, secure.getpeercert(), datetime.now(UTC))
    except (ssl.SSLError, ConnectionResetError) as error:
        failure = explain(error, server, settings)
        return failed(f"{server} {failure.cause}", failure.remedy)
    except OSError as error:
        return skipped(f"{server}: {error.strerror or error}: see brokers.answer")


def expiry_findings(server: str, certificate: Mapping[str, Any] | None, now: datetime) -> list[Finding]:
    """Check that a certificate, as ``SSLSocket.getpeercert`` returns it, is valid for 30 days or more."""
    until = (certificate or {}).get("notAfter")
    if until is None:
        return warning(f"{server}: its certificate does not say how long it lasts", "look at it with openssl")
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(until)), UTC)
    days = (ends - now) / timedelta(days=1)
    message = f"{server}: its certificate lasts until {ends:%Y-%m-%d} ({days:.0f} days)"
    if days < 0:
        return failed(message, "renew it: clients refuse it by now")
    return warning(message, "renew it") if days < SOON_DAYS else ok(message)
