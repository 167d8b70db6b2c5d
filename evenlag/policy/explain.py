"""Explains the settings in effect for a group: which rule matches and why, and the source of each setting."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenlag.policy.group_settings import GroupSettings

if TYPE_CHECKING:
    from evenlag.policy.group_settings import GroupRule
    from evenlag.policy.loader import LoadedPolicy


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
            return Explanation(
                number,
                line,
                rule.match,
                tuple(passed_over),
                _settings(loaded, cluster, group_id, rule, number),
            )
        passed_over.append((number, rule.match, _why_not(rule, cluster, group_id)))
    return Explanation(None, None, None, tuple(passed_over), _settings(loaded, cluster, group_id, None, 0))


def _why_not(rule: GroupRule, cluster: str, group_id: str) -> str:
    if rule.clusters is not None and cluster not in rule.clusters:
        return f"holds on {', '.join(rule.clusters)} only"
    kind = "expression" if rule.match.startswith("/") and rule.match.endswith("/") else "pattern"
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
