"""Checks of a cluster's brokers: reachability, authentication, cluster id, API versions and clock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

from evenlag.doctor.kafka_probe import NotConnectedError
from evenlag.doctor.model import Check, failed, ok, skipped, warning
from evenlag.doctor.network import look_at_certificate, why_unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evenlag.doctor.kafka_probe import KafkaView
    from evenlag.doctor.model import Finding

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


def broker_checks(view: KafkaView) -> list[Check]:
    """Return the checks of one cluster's brokers; `login` connects, and later checks use its connection."""
    return [
        Check("brokers", "answer", lambda: check_answer(view.servers)),
        Check("brokers", "certificate", lambda: check_certificate(view)),
        Check("brokers", "login", lambda: _check_login(view)),
        Check("brokers", "cluster_id", connected(lambda: _check_cluster_id(view))),
        Check("brokers", "versions", connected(lambda: check_versions(_versions(view)))),
        Check("brokers", "clock", connected(lambda: _check_clock(view))),
    ]


def connected(look: Callable[[], Sequence[Finding]]) -> Callable[[], Sequence[Finding]]:
    """Return a check that is skipped without a connection: `brokers.login` has reported why."""

    def look_or_skip() -> Sequence[Finding]:
        try:
            return look()
        except NotConnectedError:
            return [skipped("there is no connection: see brokers.login")]

    return look_or_skip


def check_answer(servers: Sequence[str]) -> list[Finding]:
    """Check that each bootstrap server accepts connections; each unreachable one is reported."""
    reasons = _each(why_unreachable, servers)
    dead = {server: reason for server, reason in reasons.items() if reason is not None}
    remedy = "start it, correct bootstrap_servers, or open the way to it"
    if len(dead) == len(servers):
        return [failed(f"{server}: {reason}", remedy) for server, reason in dead.items()]
    found = [warning(f"{server}: {reason}", remedy) for server, reason in dead.items()]
    return [*found, ok(f"{len(servers) - len(dead)} of {len(servers)} bootstrap servers accept connections")]


def _each(look: Callable[[str], _Value], servers: Sequence[str]) -> dict[str, _Value]:
    """Run a check for each server in parallel, since a dead one takes seconds; results by server."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(servers, pool.map(look, servers), strict=True))


def check_certificate(view: KafkaView) -> list[Finding]:
    """Check that each broker's certificate is accepted and does not expire soon."""
    from evenlag.policy.secrets import SecretRef

    kafka = view.settings.kafka
    protocol = str(kafka.get("security_protocol", "PLAINTEXT"))
    if "SSL" not in protocol:
        return [skipped(f"security_protocol is {protocol}: there is no TLS")]
    password = kafka.get("ssl_password")
    resolved = password.resolve() if isinstance(password, SecretRef) else None
    found = _each(lambda server: look_at_certificate(server, kafka, resolved), view.servers)
    return list(found.values())


def _check_login(view: KafkaView) -> list[Finding]:
    view.connect()
    protocol = view.settings.kafka.get("security_protocol", "PLAINTEXT")
    brokers = view.cluster["brokers"]
    advertised = [f"{broker['host']}:{broker['port']}" for broker in brokers if not broker.get("is_fenced")]
    reasons = _each(why_unreachable, [server for server in advertised if server not in view.servers])
    return [
        ok(f"connected over {protocol}; {len(advertised)} brokers"),
        *(
            failed(
                f"the cluster names a broker {server}, which cannot be reached from here: {reason}",
                "correct the broker's advertised.listeners, or open the way to it",
            )
            for server, reason in reasons.items()
            if reason is not None
        ),
    ]


def _check_cluster_id(view: KafkaView) -> list[Finding]:
    reported = str(view.cluster["cluster_id"])
    newest = view.reader.latest_snapshot(view.name)
    return check_cluster_id(reported, set() if newest is None else {newest["kafka_cluster_id"]})


def check_cluster_id(reported: str, known: set[str]) -> list[Finding]:
    """Check that the brokers belong to the cluster that the lake stores under this name.

    known: Cluster ids in the snapshots of this cluster; empty without snapshots.
    """
    if not known:
        return [ok(f"{reported}; the lake has no reading of it yet")]
    if known == {reported}:
        return [ok(f"{reported}, as in the lake")]
    others = ", ".join(sorted(known - {reported}))
    return [
        failed(
            f"the brokers report the id {reported}, the lake has {others} under this name",
            "correct bootstrap_servers, or give the new cluster a new name in the policy",
        )
    ]


def check_versions(versions: Mapping[str, tuple[int, int]]) -> list[Finding]:
    """Check the brokers' API versions; `versions` maps a request's name to its lowest and highest version."""
    found: list[Finding] = [
        failed(
            f"{name} is offered up to version {versions[name][1] if name in versions else 'none'}; "
            f"version {lowest} is needed ({why})",
            "update the brokers",
        )
        for name, (lowest, why) in _NEEDED_VERSIONS.items()
        if name not in versions or versions[name][1] < lowest
    ]
    return found or [ok(f"all {len(_NEEDED_VERSIONS)} kinds of request are spoken")]


def check_clock(difference_s: float) -> list[Finding]:
    """Check the difference between the cluster's clock and this machine's in seconds; above 0 it is ahead."""
    side = "ahead of" if difference_s > 0 else "behind"
    message = f"the cluster's clock is {abs(difference_s):.1f} s {side} this machine's"
    remedy = "set both by NTP: hints expire by the clocks of publisher and consumers"
    if abs(difference_s) >= _CLOCK_FAILED_S:
        return [failed(message, remedy)]
    return [warning(message, remedy) if abs(difference_s) >= _CLOCK_WARNING_S else ok(message)]


def _check_clock(view: KafkaView) -> list[Finding]:
    """Read the quorum leader's own last-caught-up timestamp, which is the current time of its clock."""
    import kafka.errors

    before = time.time()
    try:
        quorum = view.client.describe_metadata_quorum()
    except kafka.errors.ClusterAuthorizationFailedError:
        return [skipped("the cluster may not be described: see permissions.cluster")]
    except kafka.errors.KafkaError as error:
        return [skipped(f"the cluster does not report its time ({type(error).__name__})")]
    local_ms = 1000 * (before + time.time()) / 2
    leader_ms = _leader_time_ms(quorum)
    if leader_ms is None or leader_ms < 0:
        return [skipped("the cluster does not report its time")]
    return check_clock((leader_ms - local_ms) / 1000)


def _leader_time_ms(quorum: Mapping[str, Any]) -> int | None:
    partition = quorum["topics"][0]["partitions"][0]
    voters = {voter["replica_id"]: voter for voter in partition["current_voters"]}
    leader = voters.get(partition["leader_id"], {})
    reported_ms = leader.get("last_caught_up_timestamp")
    return None if reported_ms is None else int(reported_ms)


def _versions(view: KafkaView) -> dict[str, tuple[int, int]]:
    from kafka.protocol.api_key import ApiKey

    # Not the client's api_versions(): it fails on a request that kafka-python has no name for (Kafka 4.4).
    names = {key.value: key.name for key in ApiKey}
    node_id = next(
        int(broker["broker_id"]) for broker in view.cluster["brokers"] if not broker.get("is_fenced")
    )
    offered = view.client.get_broker_version_data(node_id).api_versions
    return {names.get(int(key), str(key)): (low, high) for key, (low, high) in offered.items()}
