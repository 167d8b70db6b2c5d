"""Reads and validates the policy file; the result is a :class:`~evenlag.policy.settings.Policy`.

An error names file, line and key, and suggests the nearest known key.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from evenlag.errors import PolicyError
from evenlag.policy.environment import (
    Override,
    apply_overrides,
    describe_overrides,
    read_described,
    read_overrides,
)
from evenlag.policy.secrets import SecretRef
from evenlag.policy.settings import Policy
from evenlag.policy.validation_messages import child_of, explain
from evenlag.policy.yaml_reader import read_mapping, read_text, read_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import yaml

    from evenlag.policy.cluster_settings import ClusterSettings

POLICY_VARIABLE: Final = "EVENLAG_CONFIG"
KAFKA_VARIABLE_PREFIX: Final = "EVENLAG_KAFKA_"
DEFAULT_POLICY_PATH: Final = Path("evenlag.yaml")


def hash_policy(text: str) -> str:
    """Return the hash by which the lake has a policy: SHA-256 of its text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy with its text.

    policy: The validated settings, with environment overrides applied.
    text: The file's text, with a comment for each override. The lake stores it by its hash. It contains
        references to secrets, never a secret.
    tree: The text as YAML nodes with line numbers.
    policy_hash: SHA-256 of the text, in hex.
    """

    policy: Policy
    text: str
    tree: yaml.Node | None = field(default=None, compare=False, repr=False)
    overrides: tuple[Override, ...] = ()

    @property
    def policy_hash(self) -> str:
        """SHA-256 of the text, in hex."""
        return hash_policy(self.text)

    def cluster_settings(self, name: str) -> ClusterSettings:
        """Return the settings of a cluster."""
        found = self.policy.clusters.get(name)
        if found is None:
            known = ", ".join(sorted(self.policy.clusters))
            raise PolicyError(f"the policy has no cluster {name!r}; it has: {known}")
        return found

    def line_of(self, *path: str | int) -> int | None:
        """Return the line of a key or item in the file; None if the file does not contain it."""
        node, line = self.tree, None
        for part in path:
            child = child_of(node, part)
            if child is None:
                return None
            node, line = child
        return line

    def variable_of(self, *path: str) -> str | None:
        """Return the variable that overrides a key; None if there is none."""
        return next((item.variable for item in self.overrides if item.path == path), None)


def find_policy_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Return the policy file: the given path, else ``EVENLAG_CONFIG``, else ``evenlag.yaml`` in this folder.

    path: The path; None or empty if not given.
    """
    return Path(path or os.environ.get(POLICY_VARIABLE) or DEFAULT_POLICY_PATH)


def load_policy(path: str | os.PathLike[str] | None = None) -> LoadedPolicy:
    """Read and validate the policy file, and set the variables of its ``storage`` for this process.

    path: The file; see :func:`find_policy_path` for None.
    """
    loaded = read_policy(path)
    if loaded.policy.storage is not None:
        # Both engines take them from the environment; so does a JVM that this process starts.
        os.environ.update(loaded.policy.storage.variables())
    return loaded


def read_policy(path: str | os.PathLike[str] | None = None) -> LoadedPolicy:
    """Read and validate the policy file, and leave the environment as it is.

    For a process that reads several policies, as Airflow does when it parses DAG files: the storage of one
    must not become that of another.

    path: The file; see :func:`find_policy_path` for None.
    """
    found = find_policy_path(path)
    return parse_policy(read_text(found), name=str(found))


def parse_policy(
    text: str, *, name: str = "policy", environ: Mapping[str, str] | None = None
) -> LoadedPolicy:
    """Validate a policy text with the overrides from the environment (:mod:`evenlag.policy.environment`)."""
    environ = os.environ if environ is None else environ
    content, tree = read_mapping(text, name)
    overrides = read_overrides(content, environ)
    apply_overrides(content, overrides)
    try:
        policy = Policy.model_validate(content)
    except ValidationError as error:
        raise PolicyError(explain(error, name, tree, overrides)) from None
    comments = describe_overrides(overrides)
    kept = f"{text.rstrip()}\n{comments}\n" if comments else text
    return LoadedPolicy(policy, kept, tree, tuple(overrides))


def parse_recorded(text: str) -> Policy:
    """Validate a text that the lake has stored, with the overrides that its comments describe."""
    return parse_policy(text, name="the recorded policy", environ=read_described(text)).policy


def kafka_settings_from_environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the Kafka settings in ``EVENLAG_KAFKA_<SETTING>`` variables, for use without a policy file.

    A secret stays a reference to its variable: ``EVENLAG_KAFKA_SASL_PLAIN_PASSWORD`` becomes ``{"env":
    "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD"}``.

    Returns values by the names of kafka-python's settings.
    """
    from evenlag.policy.kafka_settings import SECRET_KAFKA_SETTINGS, check_kafka_settings

    environ = os.environ if environ is None else environ
    settings: dict[str, Any] = {}
    for variable, value in environ.items():
        if not variable.startswith(KAFKA_VARIABLE_PREFIX):
            continue
        setting = variable.removeprefix(KAFKA_VARIABLE_PREFIX).lower()
        if setting in SECRET_KAFKA_SETTINGS:
            settings[setting] = {"env": variable}
            continue
        try:
            settings[setting] = read_value(value)
        except ValueError as error:
            raise PolicyError(f"the variable {variable}: {error}") from error
    try:
        check_kafka_settings(
            {
                name: SecretRef(**value) if name in SECRET_KAFKA_SETTINGS else value
                for name, value in settings.items()
            }
        )
    except ValueError as error:
        raise PolicyError(f"the variables {KAFKA_VARIABLE_PREFIX}*: {error}") from error
    return settings
