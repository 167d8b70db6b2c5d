"""The cluster that is read, and the connection to it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.admin_client import open_admin_client
from evenlag.kafka.connection import kafka_client_settings, kafka_errors, request_limits
from evenlag.policy.pseudonymize import Pseudonymizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from evenlag.kafka.rate_limit import RequestLimits
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.settings import Policy

# A user waits for the answer: a wrong address is reported sooner than that of a policy.
_BOOTSTRAP_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class ReadTarget:
    """How a cluster is read, and the settings of its groups.

    limits: Limits of the requests of one snapshot.
    client: Keyword arguments of a kafka-python client; secrets included.
    pseudonymizer: Hashes or drops members' columns as the policy says.
    """

    name: str
    settings: ClusterSettings
    limits: RequestLimits
    settings_of: Callable[[str], GroupSettings]
    client: Mapping[str, Any] = field(repr=False)
    pseudonymizer: Pseudonymizer | None = None


def policy_target(policy: Policy, cluster: str, *, is_named: bool = False) -> ReadTarget:
    """Return how a policy's cluster is read.

    is_named: Whether the brokers are named on the command line, not in a policy file.
    """
    settings = policy.clusters[cluster]
    client = kafka_client_settings(settings)
    if is_named and "bootstrap_timeout_ms" not in settings.kafka:
        client["bootstrap_timeout_ms"] = _BOOTSTRAP_TIMEOUT_MS
    return ReadTarget(
        name=cluster,
        settings=settings,
        limits=request_limits(settings),
        settings_of=partial(policy.group_settings, cluster),
        client=client,
        pseudonymizer=Pseudonymizer.of(settings.privacy),
    )


@contextmanager
def open_cluster(target: ReadTarget) -> Iterator[Any]:
    """Connect to a cluster, with kafka-python's errors explained."""
    with kafka_errors(target.settings), open_admin_client(target.client) as client:
        yield client
