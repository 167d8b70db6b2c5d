"""The cluster that is read: one of a policy, or brokers named on the command line.

Brokers alone need no policy. Validating one costs a fifth of a second, more than reading a small cluster, so
their settings are plain values here; a test compares them with those of an empty policy. Only a wrong address
is reported sooner: somebody waits for the answer.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from assignor_core.objective import Load
from evenlag.enums import DEFAULT_ASSIGNOR, Mode, check_reset_policy
from evenlag.kafka.admin_client import open_admin_client
from evenlag.kafka.rate_limit import RequestLimits
from evenlag.policy.portable_settings import PortableGroupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.pseudonymize import Pseudonymizer
    from evenlag.policy.settings import Policy

_HINT_TOPIC: Final = "evenlag-hints"
_CLIENT: Final = {"request_timeout_ms": 30_000, "bootstrap_timeout_ms": 5_000, "client_id": "evenlag"}


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """How a cluster is read, and the settings of its groups.

    limits: Limits of the requests of one snapshot.
    load_cluster: Returns the cluster's settings, for messages about it.
    client: Keyword arguments of a kafka-python client; secrets included.
    pseudonymizer: Hashes or drops members' columns as the policy says; None: changes nothing.
    """

    name: str
    bootstrap_servers: tuple[str, ...]
    hint_topic: str
    limits: RequestLimits
    settings_of: Callable[[str], GroupSettings]
    load_cluster: Callable[[], ClusterSettings]
    client: Mapping[str, Any] = field(repr=False)
    pseudonymizer: Pseudonymizer | None = None


def policy_target(policy: Policy, cluster: str) -> ReadTarget:
    """Return how a policy's cluster is read."""
    from evenlag.kafka.connection import kafka_client_settings, request_limits
    from evenlag.policy.pseudonymize import Pseudonymizer

    settings = policy.clusters[cluster]
    return ReadTarget(
        name=cluster,
        bootstrap_servers=tuple(settings.bootstrap_servers),
        hint_topic=settings.hint_topic,
        limits=request_limits(settings),
        settings_of=partial(policy.group_settings, cluster),
        load_cluster=lambda: settings,
        client=kafka_client_settings(settings),
        pseudonymizer=Pseudonymizer.of(settings.privacy),
    )


def brokers_target(name: str, bootstrap_servers: str, reset_policy: str | None = None) -> ReadTarget:
    """Return how a cluster without a policy is read.

    Returns with evenlag's defaults, and a connection without TLS and SASL.
    bootstrap_servers: Its brokers, as ``host:port`` separated by commas.
    reset_policy: The ``auto.offset.reset`` of all groups; None: unknown.
    """
    servers = tuple(part.strip() for part in bootstrap_servers.split(","))
    settings = PortableGroupSettings(
        mode=Mode.SHADOW,
        assignor=DEFAULT_ASSIGNOR,
        load=Load.LAG,
        capacities=(),
        max_moves=1_000,
        count_slack=0,
        min_gain=0.05,
        reset_policy=None if reset_policy is None else check_reset_policy(reset_policy),
        isolation_level=None,
    )
    return ReadTarget(
        name=name,
        bootstrap_servers=servers,
        hint_topic=_HINT_TOPIC,
        limits=RequestLimits(),
        # It has the attributes and methods of the settings that a policy has.
        settings_of=lambda _group_id: cast("GroupSettings", settings),
        load_cluster=partial(_plain_cluster, servers),
        client={**_CLIENT, "bootstrap_servers": list(servers)},
    )


@contextmanager
def open_cluster(target: ReadTarget) -> Iterator[Any]:
    """Connect to a cluster."""
    with explained_errors(target), open_admin_client(target.client) as client:
        yield client


@contextmanager
def explained_errors(target: ReadTarget) -> Iterator[None]:
    """Convert kafka-python's errors as :func:`evenlag.kafka.connection.kafka_errors` does."""
    import kafka.errors

    try:
        yield
    except (kafka.errors.KafkaError, OSError):
        from evenlag.kafka.connection import kafka_errors

        with kafka_errors(target.load_cluster()):
            raise


def _plain_cluster(servers: tuple[str, ...]) -> ClusterSettings:
    from evenlag.policy.cluster_settings import ClusterSettings

    return ClusterSettings(bootstrap_servers=servers)
