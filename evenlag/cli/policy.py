"""`evenlag policy`: validate and explain the policy file."""

import sys
from dataclasses import asdict
from pathlib import Path  # Typer reads the annotations
from typing import Annotated, Any, Final

import typer

from evenlag.cli.console import console, print_json, print_line
from evenlag.cli.layout import Column, Table, key, numbers
from evenlag.cli.option_types import argument, flag
from evenlag.cli.option_types import path as path_type
from evenlag.cli.options import ClusterScope, JsonOption
from evenlag.context import policy_cluster, require_policy
from evenlag.formatting import NOTHING

app = typer.Typer(help="The policy file.", no_args_is_help=True)


@app.command("check")
def check(
    path: Annotated[
        Path | None,
        argument("PATH", "The policy file; default: $EVENLAG_CONFIG, then ./evenlag.yaml.", path_type),
    ] = None,
    *,
    secrets: Annotated[
        bool, flag("--secrets", "Also check that every secret that it refers to exists.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate a policy file and show its content, without connecting to anything."""
    from evenlag.policy.loader import (
        find_policy_path,
        foreign_assignor_faults,
        load_policy,
        rules_that_never_apply,
    )

    loaded = load_policy(path)
    policy = loaded.policy
    if secrets:
        for _, read in policy.secrets().values():
            read()
    warnings = [f"{message}: {remedy}" for message, remedy in rules_that_never_apply(loaded)]
    warnings += foreign_assignor_faults(policy)
    if as_json:
        shown = {"policy_hash": loaded.policy_hash, "policy": policy.model_dump(mode="json")}
        print_json(shown | {"warnings": warnings})
        return
    out = console()
    out.print(f"{find_policy_path(path)} is valid. Tables are in {policy.lake}.")
    clusters = policy.clusters.items()
    security = ("security",)
    out.print(Table("Clusters", _CLUSTER_COLUMNS, clusters, optional=security))
    title, optional = "Groups: the first matching rule applies", ("clusters", "min gain", "count slack")
    rules = [(rule, rule or policy.group_settings("", "")) for rule in (*policy.groups, None)]
    out.print(Table(title, _RULE_COLUMNS, rules, optional=optional))
    for warning in warnings:
        print_line(sys.stderr, f"warning: {warning}")


# Rows are pairs of a cluster's name and its settings.
_CLUSTER_COLUMNS: Final = (
    Column("cluster", lambda item: item[0]),
    Column("brokers", lambda item: ", ".join(item[1].bootstrap_servers)),
    Column("security", lambda item: str(item[1].kafka.get("security_protocol", "PLAINTEXT"))),
    key("schedule", lambda item: item[1].schedule or "manual"),
    Column("hint topic", lambda item: item[1].hint_topic + " (signed)" * bool(item[1].hint_signing_key)),
)
_SETTING_COLUMNS: Final = (
    key("setting", lambda setting: setting.name),
    Column("value", lambda setting: _value_text(setting.value)),
    Column("from", lambda setting: setting.source),
)


# Rows are pairs of a rule, None for all other groups, and its settings.
_RULE_COLUMNS: Final = (
    key("groups", lambda row: row[0].match if row[0] else "all others"),
    Column("clusters", lambda row: ", ".join(row[0].clusters) if row[0] and row[0].clusters else "all"),
    key("mode", lambda row: row[1].mode.value),
    Column("assignor", lambda row: row[1].assignor),
    numbers("max moves", lambda row: f"{row[1].max_moves:,}"),
    numbers("count slack", lambda row: f"{row[1].slack:,}"),
    numbers("min gain", lambda row: f"{100 * row[1].min_gain:g} %" if row[1].min_gain else NOTHING),
)


@app.command("explain")
def explain(
    group: Annotated[str, argument("GROUP", "Name of a group; it need not exist.")],
    *,
    scope: ClusterScope,
    as_json: JsonOption = False,
) -> None:
    """Show which rule applies to a group and why, and where each of its settings comes from."""
    from evenlag.policy.loader import explain_group

    loaded = require_policy(scope.config)
    name = policy_cluster(loaded, scope.cluster)
    found = explain_group(loaded, name, group)
    if as_json:
        print_json({"cluster": name, "group_id": group, **asdict(found)})
        return
    out = console()
    for number, match, why in found.passed_over:
        out.print(f"Rule {number} ({match}) does not apply: {why}.")
    if found.rule_number is None:
        out.print(f"No rule matches {group} on {name}: the defaults apply.")
    else:
        out.print(
            f"Rule {found.rule_number} ({found.match}), line {found.rule_line}, is the first that matches "
            f"{group} on {name}: all of its settings apply."
        )
    out.print(Table(f"Settings of {group}", _SETTING_COLUMNS, found.settings))


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of the policy file, for editors and validators."""
    from evenlag.policy.settings import render_schema

    typer.echo(render_schema(), nl=False)


def _value_text(value: Any) -> str:
    if value is None or value == []:
        return NOTHING
    if isinstance(value, list):
        return ", ".join(
            item if isinstance(item, str) else f"{item['match']}: {item['capacity']:g}" for item in value
        )
    return str(value)
