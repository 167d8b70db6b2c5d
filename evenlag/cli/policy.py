"""`evenlag policy`: validate and explain the policy file."""

from __future__ import annotations

from pathlib import Path  # Typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evenlag.cli import option_types
from evenlag.cli.console import console, print_json
from evenlag.cli.option_types import argument
from evenlag.cli.options import ClusterOption, ConfigOption, JsonOption
from evenlag.cli.tables.layout import Column, Table, filled_table
from evenlag.context import find_policy, only_cluster
from evenlag.errors import UsageError
from evenlag.formatting import NOTHING, did_you_mean

if TYPE_CHECKING:
    from evenlag.policy.settings import Policy

app = typer.Typer(help="The policy file.", no_args_is_help=True)


@app.callback()
def _policy() -> None:
    pass


@app.command("check")
def check(
    path: Annotated[
        Path | None,
        argument(
            "PATH", "The policy file; default: $EVENLAG_CONFIG, then ./evenlag.yaml.", option_types.path
        ),
    ] = None,
    *,
    secrets: Annotated[
        bool, typer.Option("--secrets", help="Also check that every secret that it refers to exists.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate a policy file and show its content, without connecting to anything."""
    from evenlag.policy.loader import find_policy_path, load_policy

    loaded = load_policy(path)
    policy = loaded.policy
    if secrets:
        _resolve_secrets(policy)
    if as_json:
        print_json({"policy_hash": loaded.policy_hash, "policy": policy.model_dump(mode="json")})
        return
    out = console()
    out.print(f"{find_policy_path(path)} is valid. Tables are in {policy.lake}.")
    out.print(_cluster_table(policy))
    out.print(_rule_table(policy))


def _cluster_table(policy: Policy) -> Table:
    columns = (
        Column("cluster", lambda item: item[0]),
        Column("brokers", lambda item: ", ".join(item[1].bootstrap_servers)),
        Column("security", lambda item: str(item[1].kafka.get("security_protocol", "PLAINTEXT"))),
        Column("schedule", lambda item: item[1].schedule or "manual"),
        Column("hint topic", lambda item: item[1].hint_topic + " (signed)" * bool(item[1].hint_signing_key)),
    )
    clusters = policy.clusters.items()
    return filled_table("Clusters", columns, clusters, keys=("schedule",), optional=("security",))


def _rule_table(policy: Policy) -> Table:
    title = "Groups: the first matching rule applies"
    columns = ("groups", "clusters", "mode", "assignor", "max moves", "count slack", "min gain")
    optional = ("clusters", "min gain", "count slack")
    rules = Table(title, columns, right=columns[4:], keys=("groups", "mode"), optional=optional)
    for rule in (*policy.groups, None):
        settings: Any = rule or policy.group_settings("", "")
        rules.add_row(
            rule.match if rule else "all others",
            ", ".join(rule.clusters) if rule and rule.clusters else "all",
            settings.mode.value,
            settings.assignor,
            f"{settings.max_moves:,}",
            f"{settings.count_slack:,}",
            f"{100 * settings.min_gain:g} %" if settings.min_gain else NOTHING,
        )
    return rules


@app.command("explain")
def explain(
    group: Annotated[str, argument("GROUP", "Name of a group; it need not exist.")],
    *,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which rule applies to a group and why, and where each of its settings comes from."""
    from dataclasses import asdict

    from evenlag.policy.loader import explain_group

    loaded = find_policy(config)
    if loaded is None:
        raise UsageError("which policy? Give the file with --config, or $EVENLAG_CONFIG")
    names = loaded.policy.clusters
    if cluster is not None and cluster not in names:
        raise UsageError(f"the policy has no cluster {cluster!r}{did_you_mean(cluster, names)}")
    name = cluster or only_cluster(names)
    found = explain_group(loaded, name, group)
    if as_json:
        print_json({"cluster": name, "group_id": group, **asdict(found)})
        return
    out = console()
    for number, match, why in found.passed_over:
        out.print(f"Rule {number} ({match}) does not apply: {why}.", highlight=False)
    if found.rule_number is None:
        out.print(f"No rule matches {group} on {name}: the defaults apply.", highlight=False)
    else:
        out.print(
            f"Rule {found.rule_number} ({found.match}), line {found.rule_line}, is the first that matches "
            f"{group} on {name}: all of its settings apply.",
            highlight=False,
        )
    shown = Table(f"Settings of {group}", ("setting", "value", "from"), keys=("setting",))
    for setting in found.settings:
        shown.add_row(setting.name, _value_text(setting.value), setting.source)
    out.print(shown)


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


def _resolve_secrets(policy: Policy) -> None:
    from evenlag.policy.secrets import SecretRef

    for value in policy.storage.values().values() if policy.storage else ():
        if isinstance(value, SecretRef):
            value.resolve()
    for cluster in policy.clusters.values():
        for _, read in cluster.secrets().values():
            read()
