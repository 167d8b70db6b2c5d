"""The Kafka cluster of a command: one of the policy file, or one given on the command line."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from evenlag.cli.option_types import option, servers
from evenlag.context import DEFAULT_LAKE, find_policy, policy_cluster
from evenlag.enums import Mode
from evenlag.errors import UsageError

if TYPE_CHECKING:
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.loader import LoadedPolicy

DEFAULT_CLUSTER = "kafka"

_BOOTSTRAP_HELP = (
    "Brokers as host:port,host:port, instead of a policy file. Other connection settings are variables such "
    "as EVENLAG_KAFKA_SECURITY_PROTOCOL."
)
BootstrapOption = Annotated[
    str | None, option("--bootstrap-servers -b", "HOST:PORT", _BOOTSTRAP_HELP, servers)
]
HintTopicOption = Annotated[
    str | None, option("--hint-topic", "TOPIC", "With --bootstrap-servers: name of the hint topic.")
]


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster of a policy.

    name: Its name; empty for all clusters of the policy, where a command takes them.
    lake: Another lake than the policy's.
    written_policy: The policy's text if it was derived from options.
    """

    loaded: LoadedPolicy
    name: str
    lake: str | None
    written_policy: str | None = None

    @property
    def settings(self) -> ClusterSettings:
        """Settings of the cluster, as the policy has them."""
        return self.loaded.policy.clusters[self.name]

    def with_hint_topic(self, hint_topic: str | None) -> Target:
        """Return the target with another hint topic; None keeps the policy's."""
        from evenlag.policy.cluster_settings import HINT_TOPIC_PATTERN

        if hint_topic is None:
            return self
        if re.fullmatch(HINT_TOPIC_PATTERN, hint_topic) is None:
            raise UsageError(
                f"--hint-topic: {hint_topic!r} is not a valid topic name: use letters, digits, . _ -"
            )
        settings = self.settings.model_copy(update={"hint_topic": hint_topic})
        policy = self.loaded.policy.model_copy(
            update={"clusters": {**self.loaded.policy.clusters, self.name: settings}}
        )
        return replace(self, loaded=replace(self.loaded, policy=policy))

    @contextmanager
    def policy_file(self, config: Path | None) -> Iterator[Path | None]:
        """Provide the policy file for the process of a job; None when the job finds it as this process did.

        A policy that was derived from options is written to a temporary file, with secrets by the names of
        their variables.
        """
        with _override_lake(self.lake):
            if self.written_policy is None:
                yield config
                return
            with tempfile.TemporaryDirectory(prefix="evenlag-") as folder:
                file = Path(folder) / "evenlag.yaml"
                file.write_text(self.written_policy, encoding="utf-8")
                yield file


def _override_lake(lake: str | None) -> AbstractContextManager[None]:
    """Give another lake to policies that are read in a ``with`` block, also by processes started there."""
    from evenlag.policy.loader import LAKE_VARIABLE, replaced_environment

    return replaced_environment({} if lake is None else {LAKE_VARIABLE: lake})


def find_target(
    bootstrap_servers: str | None,
    config: Path | None,
    cluster: str | None,
    *,
    lake: str | None = None,
    groups: Sequence[str] = (),
    publish: bool = False,
    reset_policy: str | None = None,
    may_be_all: bool = False,
) -> Target:
    """Return the cluster that is meant; with `bootstrap_servers`, of a policy made from the options.

    may_be_all: Whether a policy with several clusters means all of them, if none is named.
    """
    from evenlag.policy.loader import parse_policy

    if lake is not None and "://" not in lake:
        lake = str(Path(lake).absolute())
    if bootstrap_servers is not None:
        if config is not None:
            raise UsageError("give --config or --bootstrap-servers, not both")
        name = cluster or DEFAULT_CLUSTER
        text = policy_text(
            bootstrap_servers, name, lake=lake, groups=groups, publish=publish, reset_policy=reset_policy
        )
        with _override_lake(lake):
            return Target(parse_policy(text, name="the command line"), name, lake, text)
    if reset_policy:
        raise UsageError("--reset-policy goes with --bootstrap-servers; a policy file has a rule for it")
    if groups:
        raise UsageError(
            "--group goes with --bootstrap-servers; with a policy file, its rules say which groups"
        )
    with _override_lake(lake):
        loaded = find_policy(config)
    if loaded is None:
        raise UsageError("which cluster? Give --bootstrap-servers HOST:PORT, or a policy file with --config")
    is_all = may_be_all and cluster is None and len(loaded.policy.clusters) > 1
    return Target(loaded, "" if is_all else policy_cluster(loaded, cluster), lake)


def policy_text(
    bootstrap_servers: str,
    name: str,
    *,
    lake: str | None,
    groups: Sequence[str],
    publish: bool,
    reset_policy: str | None = None,
) -> str:
    """Return the policy file that the options are equivalent to.

    `groups` are patterns of the groups to plan for, with `publish` in mode ``auto``; all other groups are in
    mode ``observe``. Further connection settings come from the variables ``EVENLAG_KAFKA_*``.
    """
    from evenlag.policy.cluster_settings import CLUSTER_NAME_PATTERN
    from evenlag.policy.loader import kafka_settings_from_environment
    from evenlag.policy.yaml_reader import dump_yaml

    if re.fullmatch(CLUSTER_NAME_PATTERN, name) is None:
        raise UsageError(
            f"--cluster: {name!r} is not a valid cluster name: use at most 100 letters, digits and . _ -"
        )
    if publish and not groups:
        raise UsageError("--publish needs groups: name them with --group, or write a policy file")
    mode = Mode.AUTO.value if publish else Mode.SHADOW.value
    rules: list[dict[str, Any]] = [
        {"match": pattern, "mode": mode, "reset_policy": reset_policy} for pattern in groups or ("*",)
    ]
    if groups:
        rules.append({"match": "*", "mode": Mode.OBSERVE.value})
    kafka = kafka_settings_from_environment()
    cluster = {"bootstrap_servers": bootstrap_servers, "schedule": None, "kafka": kafka}
    root = lake or str(DEFAULT_LAKE.absolute())
    return dump_yaml({"lake": root, "clusters": {name: cluster}, "groups": rules})
