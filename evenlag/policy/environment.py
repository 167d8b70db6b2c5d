"""Overrides of the policy by the environment: the same file in test and production, one variable apart.

``EVENLAG_LAKE`` and ``EVENLAG_MAX_MODE`` stand for the keys of these names.
``EVENLAG_CLUSTER__<NAME>__<KEY>`` stands for a key of a cluster, and
``EVENLAG_CLUSTER__<NAME>__KAFKA__<SETTING>`` for a setting of its connection; ``<NAME>`` is the name
of the cluster in capitals, with ``_`` for each ``.`` and ``-``. Of a secret the variable's name is taken
over, never its value.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from evenlag.errors import PolicyError
from evenlag.policy.cluster_settings import SECRET_KAFKA_SETTINGS, ClusterSettings
from evenlag.policy.yaml_reader import read_value

if TYPE_CHECKING:
    from collections.abc import Mapping

LAKE_VARIABLE: Final = "EVENLAG_LAKE"
MODE_VARIABLE: Final = "EVENLAG_MAX_MODE"
CLUSTER_VARIABLE_PREFIX: Final = "EVENLAG_CLUSTER__"
_SECRET_KEYS: Final = frozenset({"hint_signing_key"})


@dataclass(frozen=True, slots=True)
class Override:
    """One value that the environment gives.

    Attributes
    ----------
    path
        Where it stands in the policy.
    value
        What holds there; for a secret, the reference to its variable.
    variable
        The variable's name.
    """

    path: tuple[str, ...]
    value: Any
    variable: str


def read_overrides(content: Mapping[str, Any], environ: Mapping[str, str]) -> list[Override]:
    """Read the overrides that fit a policy, in the order of their variables' names.

    Parameters
    ----------
    content
        The policy file's content, for the names of its clusters.
    environ
        The environment; a variable that is empty counts as not set.

    Raises
    ------
    PolicyError
        When a variable names a cluster or key that is not there, or two clusters share its name.
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
    """Put the overrides into a policy's content."""
    for override in overrides:
        node = content
        for part in override.path[:-1]:
            below = node.get(part) or {}
            if not isinstance(below, dict):
                # The file's mistake: it is named when the policy is validated.
                break
            node[part] = dict(below)
            node = node[part]
        else:
            node[override.path[-1]] = override.value


def describe_overrides(overrides: list[Override]) -> str:
    """Tell the overrides as comments of YAML, to be kept with the file's text in the lake they may name."""
    lines = [
        f"# {override.variable} gives {'.'.join(override.path)}: {yaml.safe_dump(override.value).strip()}"
        for override in overrides
        if override.variable != LAKE_VARIABLE
    ]
    # A scalar's document end, as YAML prints it, says nothing here.
    return "\n".join(line.replace("\n...", "") for line in lines)


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
    meant = [cluster for cluster, told in known.items() if told == name]
    if len(meant) == 1:
        return str(meant[0])
    if meant:
        raise PolicyError(f"the variable {variable} could mean each of these clusters: {', '.join(meant)}")
    raise PolicyError(
        f"the variable {variable} names a cluster that the policy does not have; it has: "
        + ", ".join(f"{cluster} ({told})" for cluster, told in known.items())
    )


def _variable_name(cluster: str) -> str:
    return re.sub(r"[.-]", "_", str(cluster)).upper()
