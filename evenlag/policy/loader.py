"""Reading the policy file: YAML in, a validated :class:`~evenlag.policy.settings.Policy` out.

A mistake is named by file, line and key, with the nearest right key.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from evenlag.errors import PolicyError
from evenlag.policy.environment import Override, apply_overrides, describe_overrides, read_overrides
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


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy with the text it came from.

    Attributes
    ----------
    policy
        The validated settings, environment overrides applied.
    text
        The file's text, with a comment for each override; kept in the lake by its hash. It holds references
        to secrets, no secret.
    tree
        The text as YAML nodes, which know their lines.
    overrides
        What the environment gave.
    policy_hash
        SHA-256 of the text, in hex.
    """

    policy: Policy
    text: str
    tree: yaml.Node | None = field(default=None, compare=False, repr=False)
    overrides: tuple[Override, ...] = ()

    @property
    def policy_hash(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def cluster_settings(self, name: str) -> ClusterSettings:
        """The settings of a cluster by its name.

        Raises
        ------
        PolicyError
            When the policy has no such cluster.
        """
        found = self.policy.clusters.get(name)
        if found is None:
            known = ", ".join(sorted(self.policy.clusters))
            raise PolicyError(f"the policy has no cluster {name!r}; it has: {known}")
        return found

    def line_of(self, *path: str | int) -> int | None:
        """The line of the file that a key or item stands on; None when the file does not have it."""
        node, line = self.tree, None
        for part in path:
            child = child_of(node, part)
            if child is None:
                return None
            node, line = child
        return line

    def variable_of(self, *path: str) -> str | None:
        """The variable that overrides a key; None when none does."""
        return next((item.variable for item in self.overrides if item.path == path), None)


def find_policy_path(path: str | os.PathLike[str] | None = None) -> Path:
    """Tell which policy file holds: the one given, else ``EVENLAG_CONFIG``, else ``evenlag.yaml`` here."""
    return Path(path or os.environ.get(POLICY_VARIABLE) or DEFAULT_POLICY_PATH)


def load_policy(path: str | os.PathLike[str] | None = None) -> LoadedPolicy:
    """Read and validate the policy file.

    Parameters
    ----------
    path
        The file; see :func:`find_policy_path` for None.

    Raises
    ------
    PolicyError
        When the file cannot be read, is not YAML, or says something that is not valid.
    """
    found = find_policy_path(path)
    return parse_policy(read_text(found), name=str(found))


def parse_policy(
    text: str, *, name: str = "policy", environ: Mapping[str, str] | None = None
) -> LoadedPolicy:
    """Validate a policy text, with what the environment overrides (``policy_environment``).

    Raises
    ------
    PolicyError
        With the place (``name``, line) and what to do.
    """
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


def kafka_settings_from_environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Kafka settings given as ``EVENLAG_KAFKA_<SETTING>``, for use without a policy file.

    A secret stays a reference to its variable: ``EVENLAG_KAFKA_SASL_PLAIN_PASSWORD`` becomes
    ``{"env": "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD"}``.

    Raises
    ------
    PolicyError
        When a value cannot be read.
    """
    from evenlag.policy.cluster_settings import SECRET_KAFKA_SETTINGS

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
    return settings
