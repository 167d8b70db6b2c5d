"""Overrides of the policy by environment variables: the same file in test and production.

``EVENLAG_LAKE`` and ``EVENLAG_MAX_MODE`` override the keys of these names. ``EVENLAG_CLUSTER__<NAME>__<KEY>``
overrides a key of a cluster, and ``EVENLAG_CLUSTER__<NAME>__KAFKA__<SETTING>`` a setting of its connection;
``<NAME>`` is the cluster's name in capitals, with ``_`` for each ``.`` and ``-``. For a secret, the policy
stores a reference to the variable, never its value.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from evenlag.errors import PolicyError
from evenlag.policy.cluster_settings import HMAC_KEYS, ClusterSettings
from evenlag.policy.kafka_settings import SECRET_KAFKA_SETTINGS
from evenlag.policy.yaml_reader import dump_yaml, read_value

if TYPE_CHECKING:
    from collections.abc import Mapping

LAKE_VARIABLE: Final = "EVENLAG_LAKE"
MODE_VARIABLE: Final = "EVENLAG_MAX_MODE"
CLUSTER_VARIABLE_PREFIX: Final = "EVENLAG_CLUSTER__"
_SECRET_KEYS: Final = frozenset(HMAC_KEYS)
# A line of describe_overrides.
_DESCRIBED: Final = re.compile(r"^# (?P<variable>EVENLAG_\w+) gives [^:]+: (?P<value>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Override:
    """One value from the environment.

    path: The overridden key in the policy.
    value: The value; for a secret, the reference to its variable.
    variable: The variable's name.
    """

    path: tuple[str, ...]
    value: Any
    variable: str


def read_overrides(content: Mapping[str, Any], environ: Mapping[str, str]) -> list[Override]:
    """Read the overrides of a policy.

    Returns in the order of the variables' names.
    environ: The environment; an empty variable counts as not set.
    """
    found = []
    for variable in sorted(environ):
        value = environ[variable]
        if not value:
            continue
        if variable == LAKE_VARIABLE:
            found.append(Override(("lake",), value, variable))
        elif variable == MODE_VARIABLE:
            found.append(Override(("max_mode",), value.lower(), variable))
        elif variable.startswith(CLUSTER_VARIABLE_PREFIX):
            found.append(_cluster_override(content, variable, value))
    return found


def apply_overrides(content: dict[str, Any], overrides: list[Override]) -> None:
    """Apply overrides to a policy's content."""
    for override in overrides:
        node = content
        for part in override.path[:-1]:
            below = node.get(part) or {}
            if not isinstance(below, dict):
                # An error in the file: validation of the policy reports it.
                break
            node[part] = dict(below)
            node = node[part]
        else:
            node[override.path[-1]] = override.value


def describe_overrides(overrides: list[Override]) -> str:
    """Format the overrides as YAML comments, which the lake stores with the file's text.

    ``EVENLAG_LAKE`` is left out: it names the lake that stores the text.
    """
    lines = [
        f"# {override.variable} gives {'.'.join(override.path)}: {_on_one_line(override.value)}"
        for override in overrides
        if override.variable != LAKE_VARIABLE
    ]
    return "\n".join(lines)


def read_described(text: str) -> dict[str, str]:
    r"""Read the overrides in a stored text: the environment that gives them again.

    Examples
    --------
    >>> read_described("lake: /lake\n# EVENLAG_MAX_MODE gives max_mode: shadow\n")
    {'EVENLAG_MAX_MODE': 'shadow'}
    """
    return {found["variable"]: found["value"] for found in _DESCRIBED.finditer(text)}


def _on_one_line(value: Any) -> str:
    # Without the document end marker that YAML prints after a scalar.
    return dump_yaml(value, in_one_line=True).removesuffix("...\n").strip()


def _cluster_override(content: Mapping[str, Any], variable: str, value: str) -> Override:
    name, _, key = variable.removeprefix(CLUSTER_VARIABLE_PREFIX).partition("__")
    cluster = _cluster_named(content, variable, name)
    key, _, setting = key.lower().partition("__")
    if key not in ClusterSettings.model_fields or (key == "kafka") != bool(setting):
        near = difflib.get_close_matches(key, list(ClusterSettings.model_fields), n=1)
        raise PolicyError(
            f"the variable {variable} names no key of a cluster"
            + (f"; did you mean {CLUSTER_VARIABLE_PREFIX}{name}__{near[0].upper()}?" if near else "")
        )
    path = ("clusters", cluster, key, *((setting,) if setting else ()))
    if (setting or key) in SECRET_KAFKA_SETTINGS | _SECRET_KEYS:
        return Override(path, {"env": variable}, variable)
    try:
        return Override(path, read_value(value), variable)
    except ValueError as error:
        raise PolicyError(f"the value of the variable {variable} cannot be read: {error}") from error


def _cluster_named(content: Mapping[str, Any], variable: str, name: str) -> str:
    clusters = content.get("clusters")
    known = {cluster: _variable_name(cluster) for cluster in (clusters if isinstance(clusters, dict) else ())}
    meant = [cluster for cluster, known_name in known.items() if known_name == name]
    if len(meant) == 1:
        return str(meant[0])
    if meant:
        raise PolicyError(f"the variable {variable} could mean each of these clusters: {', '.join(meant)}")
    raise PolicyError(
        f"the variable {variable} names a cluster that the policy does not have; it has: "
        + ", ".join(f"{cluster} ({known_name})" for cluster, known_name in known.items())
    )


def _variable_name(cluster: str) -> str:
    return re.sub(r"[.-]", "_", str(cluster)).upper()
