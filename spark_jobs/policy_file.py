"""Reading the policy file: YAML in, a validated :class:`~spark_jobs.settings.Policy` out.

A mistake is named by file, line and key, with the nearest right key.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ValidationError

from spark_jobs.errors import PolicyError
from spark_jobs.policy_environment import Override, apply_overrides, describe_overrides, read_overrides
from spark_jobs.settings import (
    BackOff,
    CapacityRule,
    ClusterSettings,
    ComparisonSettings,
    GateLimits,
    GroupRule,
    Pauses,
    Policy,
    PrivacySettings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLICY_VARIABLE: Final = "EVENLAG_CONFIG"
KAFKA_VARIABLE_PREFIX: Final = "EVENLAG_KAFKA_"
DEFAULT_POLICY_PATH: Final = Path("evenlag.yaml")

_KNOWN_KEYS: Final = sorted(
    {
        key
        for model in (
            Policy,
            ClusterSettings,
            GroupRule,
            CapacityRule,
            GateLimits,
            BackOff,
            ComparisonSettings,
            Pauses,
            PrivacySettings,
        )
        for key in model.model_fields
    }
)


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
            child = _child(node, part)
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
    try:
        text = found.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError(
            f"the policy file {found} cannot be read: {error.strerror}. "
            f"Give one with --config or {POLICY_VARIABLE}."
        ) from error
    return parse_policy(text, name=str(found))


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
    try:
        content = yaml.safe_load(text)
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise PolicyError(f"{name} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise PolicyError(f"{name} holds no mapping: it needs at least 'lake' and 'clusters'")
    overrides = read_overrides(content, environ)
    apply_overrides(content, overrides)
    try:
        policy = Policy.model_validate(content)
    except ValidationError as error:
        told = (_explain(name, tree, item, overrides) for item in error.errors())
        raise PolicyError("\n".join(told)) from None
    comments = describe_overrides(overrides)
    kept = f"{text.rstrip()}\n{comments}\n" if comments else text
    return LoadedPolicy(policy, kept, tree, tuple(overrides))


def kafka_settings_from_environment(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Kafka settings given as ``EVENLAG_KAFKA_<SETTING>``, for use without a policy file.

    A secret stays a reference to its variable: ``EVENLAG_KAFKA_SASL_PLAIN_PASSWORD`` becomes
    ``{"env": "EVENLAG_KAFKA_SASL_PLAIN_PASSWORD"}``.
    """
    from spark_jobs.settings import SECRET_KAFKA_SETTINGS

    environ = os.environ if environ is None else environ
    settings: dict[str, Any] = {}
    for variable, value in environ.items():
        if not variable.startswith(KAFKA_VARIABLE_PREFIX):
            continue
        setting = variable.removeprefix(KAFKA_VARIABLE_PREFIX).lower()
        settings[setting] = {"env": variable} if setting in SECRET_KAFKA_SETTINGS else yaml.safe_load(value)
    return settings


def _explain(name: str, tree: yaml.Node | None, item: Any, overrides: Sequence[Override]) -> str:
    location: Sequence[str | int] = item["loc"]
    for override in overrides:
        if tuple(location[: len(override.path)]) == override.path:
            return f"the variable {override.variable}: {item['msg']}"
    path, line = _locate(tree, location)
    where = f"{name}, line {line}: {path}" if path else f"{name}, line {line}"
    if item["type"] == "extra_forbidden":
        unknown = str(location[-1])
        near = difflib.get_close_matches(unknown, _KNOWN_KEYS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{where}: there is no such key{hint}"
    message = str(item["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}"


def _locate(tree: yaml.Node | None, location: Sequence[str | int]) -> tuple[str, int]:
    """Follow a location as far as the YAML tree has it; pydantic adds parts of its own to unions."""
    node, path = tree, []
    line = tree.start_mark.line + 1 if tree is not None else 1
    for part in location:
        child = _child(node, part)
        if child is None:
            if isinstance(node, yaml.MappingNode) and part == location[-1]:
                path.append(str(part))
            break
        node, line = child
        path.append(str(part))
    return ".".join(path), line


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    """What stands under a key or number, with its line; None when there is nothing."""
    if isinstance(node, yaml.MappingNode):
        # The last one holds, as in YAML's own reading.
        for key, value in reversed(node.value):
            if key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, item.start_mark.line + 1
    return None
