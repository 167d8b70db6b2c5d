"""Reads and validates the policy file; the result is a :class:`~evenlag.policy.settings.Policy`.

An error names file, line and key, and suggests the nearest known key.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from pydantic import BaseModel, ValidationError

from evenlag.errors import PolicyError
from evenlag.formatting import did_you_mean
from evenlag.name_patterns import covers_pattern, is_expression
from evenlag.policy.cluster_settings import HMAC_KEYS, ClusterSettings
from evenlag.policy.group_settings import GroupRule, GroupSettings
from evenlag.policy.kafka_settings import SECRET_KAFKA_SETTINGS, check_kafka_settings
from evenlag.policy.secrets import SecretRef
from evenlag.policy.setting_types import KAFKA_SETTING_KINDS
from evenlag.policy.settings import Policy
from evenlag.policy.yaml_reader import dump_yaml, read_mapping, read_text, read_value

POLICY_VARIABLE: Final = "EVENLAG_CONFIG"
KAFKA_VARIABLE_PREFIX: Final = "EVENLAG_KAFKA_"
DEFAULT_POLICY_PATH: Final = Path("evenlag.yaml")
_SHOWN: Final = 60
# Parts that pydantic adds to a location: the branch of a union, a key itself.
_OWN_PARTS: Final = frozenset({"[key]", *KAFKA_SETTING_KINDS})
_NUM_NAMED: Final = 12
_KINDS: Final = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (dict, "a mapping"),
    (list, "a list"),
    (type(None), "nothing"),
)
_WANTED: Final = {
    "string_type": "must be text: put it in quotes",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of names",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false; yes, no, on and off are text in YAML 1.2",
}


def hash_policy(text: str) -> str:
    """Return the hash by which the lake has a policy: SHA-256 of its text, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy with its text, which has a comment for each override and no secret; the lake stores it."""

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
    """Return the given path, else that of ``EVENLAG_CONFIG``, else ``evenlag.yaml`` in this folder."""
    return Path(path or os.environ.get(POLICY_VARIABLE) or DEFAULT_POLICY_PATH)


def load_policy(path: str | os.PathLike[str] | None = None) -> LoadedPolicy:
    """Read and validate the policy file, and set the variables of its ``storage`` for this process."""
    loaded = read_policy(path)
    if loaded.policy.storage is not None:
        # Both engines take them from the environment; so does a JVM that this process starts.
        os.environ.update(loaded.policy.storage.variables())
    return loaded


def read_policy(path: str | os.PathLike[str] | None = None) -> LoadedPolicy:
    """Read and validate the policy file, and leave the environment as it is.

    A process may read several policies, as Airflow does: the storage of one must not become another's.
    """
    found = find_policy_path(path)
    return parse_policy(read_text(found), name=str(found))


def parse_policy(
    text: str, *, name: str = "policy", environ: Mapping[str, str] | None = None
) -> LoadedPolicy:
    """Validate a policy text with the overrides from the environment (:mod:`evenlag.policy.loader`)."""
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
    """Return the Kafka settings of ``EVENLAG_KAFKA_<SETTING>``, of a secret the reference to its variable."""
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


def explain(error: ValidationError, name: str, tree: yaml.Node | None, overrides: Sequence[Override]) -> str:
    """Describe all errors, one line each, in the order of the file."""
    # Branches of a union may report the same error: equal lines are reported once.
    messages = dict.fromkeys(
        _explain(name, tree, item, overrides)
        for item in sorted(error.errors(include_url=False), key=lambda item: locate(tree, item["loc"])[1])
    )
    return "\n".join(messages)


def nearest_or_all(wrong: str, known: Iterable[str]) -> str:
    """Return the end of a message: the nearest name, or all if none is near and they are few; else empty."""
    names = sorted(known)
    listed = f"; it has: {', '.join(names)}" if len(names) <= _NUM_NAMED else ""
    return did_you_mean(wrong, names) or listed


def locate(tree: yaml.Node | None, location: Sequence[str | int]) -> tuple[str, int]:
    """Follow a location as far as the YAML tree has it, without pydantic's own parts: path and line."""
    node, path = tree, []
    line = tree.start_mark.line + 1 if tree is not None else 1
    for part in location:
        child = child_of(node, part)
        if child is None:
            if isinstance(node, yaml.MappingNode) and part == location[-1] and part not in _OWN_PARTS:
                path.append(_shown(part))
            break
        node, line = child
        path.append(_shown(part))
    return ".".join(path), line


def child_of(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node, int] | None:
    """Return the node under a key or index, with its line; None if there is none."""
    if isinstance(node, yaml.MappingNode):
        # If a merged mapping has the same key, the mapping's own key comes last and applies.
        for key, value in reversed(node.value):
            if key.value == str(part):
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item, item.start_mark.line + 1
    return None


def _explain(name: str, tree: yaml.Node | None, item: Any, overrides: Sequence[Override]) -> str:
    location: Sequence[str | int] = item["loc"]
    message = _message(item)
    for override in overrides:
        if tuple(location[: len(override.path)]) == override.path:
            return f"the variable {override.variable}: {message}"
    path, line = locate(tree, location)
    where = f"{name}, line {line}: {path}" if path else f"{name}, line {line}"
    return f"{where}: {message}"


def _message(item: Any) -> str:
    kind, location = item["type"], item["loc"]
    if kind == "extra_forbidden":
        unknown = str(location[-1])
        known = _model_at(location[:-1]).model_fields
        return f"there is no such key{nearest_or_all(unknown, known)}"
    if kind == "missing":
        return "Field required: add it"
    if kind == "invalid_key" or (location and location[-1] == "[key]" and kind == "string_type"):
        return "a key must be text: put it in quotes"
    message = _WANTED.get(kind)
    if message is not None:
        return f"{message}, not {_kind(item['input'])}"
    return " ".join(str(item["msg"]).removeprefix("Value error, ").split())


def _kind(value: Any) -> str:
    return next((noun for kind, noun in _KINDS if isinstance(value, kind)), f"a {type(value).__name__}")


def _model_at(location: Sequence[str | int]) -> type[BaseModel]:
    """Return the settings model at a location; parts that are not fields are names or numbers."""
    model: type[BaseModel] = Policy
    for part in location:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _shown(part: str | int) -> str:
    text = str(part)
    if text.isprintable() and len(text) <= _SHOWN:
        return text
    return repr(text[:_SHOWN])


LAKE_VARIABLE: Final = "EVENLAG_LAKE"
MODE_VARIABLE: Final = "EVENLAG_MAX_MODE"
CLUSTER_VARIABLE_PREFIX: Final = "EVENLAG_CLUSTER__"
_SECRET_KEYS: Final = frozenset(HMAC_KEYS)
# A line of describe_overrides.
_DESCRIBED: Final = re.compile(r"^# (?P<variable>EVENLAG_\w+) gives [^:]+: (?P<value>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Override:
    """A value of an environment variable, or for a secret a reference to it, for the key at a path."""

    path: tuple[str, ...]
    value: Any
    variable: str


def read_overrides(content: Mapping[str, Any], environ: Mapping[str, str]) -> list[Override]:
    """Read the overrides of a policy, in the order of the variables' names; an empty one is not set."""
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
    """Format overrides as YAML comments, which the lake stores with the text; without ``EVENLAG_LAKE``."""
    lines = [
        f"# {override.variable} gives {'.'.join(override.path)}: {on_one_line(override.value)}"
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


def on_one_line(value: Any) -> str:
    """Write a value as one line of YAML, without the end marker that YAML prints after a scalar."""
    return dump_yaml(value, in_one_line=True).removesuffix("...\n").strip()


@contextmanager
def replaced_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process until the end of the ``with`` block."""
    before = {name: os.environ.get(name) for name in variables}
    try:
        os.environ.update(variables)
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def cluster_variable(cluster: str, *keys: str) -> str:
    """Return the variable that overrides a key of a cluster, or a setting below it.

    Examples
    --------
    >>> cluster_variable("eu.orders", "kafka", "ssl_cafile")
    'EVENLAG_CLUSTER__EU_ORDERS__KAFKA__SSL_CAFILE'
    """
    return CLUSTER_VARIABLE_PREFIX + "__".join(map(_variable_part, (cluster, *keys)))


def _variable_part(name: str) -> str:
    return re.sub(r"[.-]", "_", name).upper()


def _cluster_override(content: Mapping[str, Any], variable: str, value: str) -> Override:
    rest = variable.removeprefix(CLUSTER_VARIABLE_PREFIX)
    cluster, name = _cluster_named(content, variable, rest)
    key, _, setting = rest[len(name) + 2 :].lower().partition("__")
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


def _cluster_named(content: Mapping[str, Any], variable: str, rest: str) -> tuple[str, str]:
    """Return a cluster, and its name in a variable: the longest that fits, as it may contain ``__``."""
    clusters = content.get("clusters")
    names = clusters if isinstance(clusters, dict) else ()
    known = {cluster: _variable_part(str(cluster)) for cluster in names}
    fitting = (known_name for known_name in known.values() if f"{rest}__".startswith(f"{known_name}__"))
    name = max(fitting, key=len, default="")
    meant = [cluster for cluster, known_name in known.items() if known_name == name]
    if len(meant) == 1:
        return str(meant[0]), name
    if meant:
        raise PolicyError(f"the variable {variable} could mean each of these clusters: {', '.join(meant)}")
    raise PolicyError(
        f"the variable {variable} names a cluster that the policy does not have; it has: "
        + ", ".join(f"{cluster} ({known_name})" for cluster, known_name in known.items())
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in effect: its name (``gates.cooldown_s``), value and source."""

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The settings in effect for a group, in the order of the model, and the rule that gives them.

    Number, line and ``match`` are None if the defaults apply; `passed_over` has (number, match, reason) of
    each earlier rule.
    """

    rule_number: int | None
    rule_line: int | None
    match: str | None
    passed_over: tuple[tuple[int, str, str], ...]
    settings: tuple[Setting, ...]


def explain_group(loaded: LoadedPolicy, cluster: str, group_id: str) -> Explanation:
    """Explain which settings are in effect for a group, and why."""
    policy = loaded.policy
    passed_over: list[tuple[int, str, str]] = []
    for number, rule in enumerate(policy.groups, 1):
        if rule.matches(cluster, group_id):
            line = loaded.line_of("groups", number - 1)
            settings = _settings(loaded, cluster, group_id, rule, number)
            return Explanation(number, line, rule.match, tuple(passed_over), settings)
        passed_over.append((number, rule.match, _why_not(rule, cluster, group_id)))
    return Explanation(None, None, None, tuple(passed_over), _settings(loaded, cluster, group_id, None, 0))


def _why_not(rule: GroupRule, cluster: str, group_id: str) -> str:
    if rule.clusters is not None and cluster not in rule.clusters:
        return f"holds on {', '.join(rule.clusters)} only"
    kind = "expression" if is_expression(rule.match) else "pattern"
    return f"{group_id} does not fit the {kind}"


def _settings(
    loaded: LoadedPolicy, cluster: str, group_id: str, rule: GroupRule | None, number: int
) -> tuple[Setting, ...]:
    holding = loaded.policy.group_settings(cluster, group_id)
    found = []
    for path, value in _leaves(holding):
        line = loaded.line_of("groups", number - 1, *path) if rule is not None else None
        source = "default" if line is None else f"rule {number}, line {line}"
        found.append(Setting(".".join(path), value, source))
    own = (rule or GroupSettings()).mode
    if own is not holding.mode:
        where = loaded.variable_of("max_mode") or f"line {loaded.line_of('max_mode')}"
        source = f"max_mode ({where}) allows no {own.value}"
        found = [Setting(s.name, s.value, source) if s.name == "mode" else s for s in found]
    return (*found, _approvers(loaded, cluster, rule, number))


def _approvers(loaded: LoadedPolicy, cluster: str, rule: GroupRule | None, number: int) -> Setting:
    settings = loaded.policy.clusters.get(cluster)
    if rule is not None and rule.approvers is not None:
        line = loaded.line_of("groups", number - 1, "approvers")
        return Setting("approvers", list(rule.approvers), f"rule {number}, line {line}")
    if settings is None or settings.approvers is None:
        return Setting("approvers", None, "default")
    path = ("clusters", cluster, "approvers")
    where = loaded.variable_of(*path) or f"line {loaded.line_of(*path)}"
    return Setting("approvers", list(settings.approvers), f"cluster {cluster}, {where}")


def _leaves(settings: GroupSettings) -> list[tuple[tuple[str, ...], Any]]:
    """Settings by path, with those of ``gates`` and ``back_off`` one by one."""
    plain = json.loads(settings.model_dump_json())
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for name in GroupSettings.model_fields:
        if isinstance(plain[name], dict):
            leaves += [((name, key), value) for key, value in plain[name].items()]
        else:
            leaves.append(((name,), plain[name]))
    return leaves


def rules_that_never_apply(loaded: LoadedPolicy) -> list[tuple[str, str]]:
    """Describe the rules whose groups an earlier rule matches on all of their clusters, with a remedy."""
    rules, names = loaded.policy.groups, set(loaded.policy.clusters)
    found = []
    for number, rule in enumerate(rules):
        covering = next((n for n in range(number) if _covers(rules[n], rule, names)), None)
        if covering is None:
            continue
        line = loaded.line_of("groups", number)
        where = f" (line {line})" if line else ""
        message = (
            f"rule {number + 1}, {rule.match!r}{where}, never applies: rule {covering + 1}, "
            f"{rules[covering].match!r}, comes first and matches all of it"
        )
        found.append((message, f"put it before rule {covering + 1}, or remove it"))
    return found


def _covers(first: GroupRule, second: GroupRule, names: set[str]) -> bool:
    if not set(second.clusters or names) <= set(first.clusters or names):
        return False
    return covers_pattern(first.match, second.match)


def foreign_assignor_faults(policy: Policy) -> list[str]:
    """Return what is wrong with the assignors of other packages that it names, and who declares ours."""
    from assignor_core.assignors import assignor_names, find_assignor
    from assignor_core.assignors.installed import declared_assignors, described
    from assignor_core.errors import AssignorError

    own = set(assignor_names())
    found = [
        f"{described(name)} is not used: the name is evenlag's own"
        for name in sorted(own & declared_assignors().keys())
    ]
    named = {rule.assignor for rule in policy.groups}
    if policy.comparison is not None:
        named |= {text.partition(":")[0].strip() for text in policy.comparison.policies}
    for name in sorted(named - own):
        try:
            find_assignor(name)
        except AssignorError as error:
            found.append(str(error))
    return found
