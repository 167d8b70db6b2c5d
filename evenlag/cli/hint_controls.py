"""`evenlag hints withdraw | stop-all | resume | purge`: actions are recorded with user and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from evenlag.cli import option_types
from evenlag.cli.cluster_target import BootstrapOption, HintTopicOption, find_target
from evenlag.cli.console import console, print_error, print_json
from evenlag.cli.options import ActorOption, ClusterOption, ConfigOption, JsonOption, ReasonOption
from evenlag.context import acting_person
from evenlag.formatting import number

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.cli.cluster_target import Target
    from evenlag.publishing.revocation import StopChange

SHORT_ID = 12
_RecordLakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        parser=option_types.lake_root,
        metavar="LAKE",
        help="With --bootstrap-servers: the lake in which the action is recorded.",
    ),
]


def withdraw(
    group: Annotated[
        str,
        typer.Argument(parser=option_types.name, metavar="GROUP", help="The group whose hint is withdrawn."),
    ],
    *,
    reason: ReasonOption,
    actor: ActorOption = None,
    bootstrap_servers: BootstrapOption = None,
    hint_topic: HintTopicOption = None,
    lake: _RecordLakeOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Withdraw the hint of a group. Its consumers drop it within seconds; this starts no rebalance.

    Approved plans of the group are no longer published. Later plans may be: to prevent this, put the group
    into mode shadow, or stop all hints.
    """
    from evenlag.publishing.revocation import withdraw_hint

    target = _target(bootstrap_servers, hint_topic, lake, config, cluster)
    who, why = acting_person(actor), reason.strip()
    done = withdraw_hint(target.loaded, target.name, group, actor=who, reason=why)
    if as_json:
        print_json(
            {
                "cluster": target.name,
                "group_id": group,
                "was_present": done.was_present,
                "had_loads": done.had_loads,
                "unread": done.unread,
                "plan_id": done.plan_id,
                "sequence": done.sequence,
                "unpublished_plans": list(done.unpublished),
                "actor": who,
                "reason": why,
            }
        )
        return
    out = console()
    if done.plan_id is not None:
        out.print(
            f"{group}: the hint of plan {done.plan_id[:SHORT_ID]}, sequence {done.sequence}, is withdrawn.",
            soft_wrap=True,
        )
    elif done.was_present:
        out.print(f"{group}: the topic had no valid hint; its records are removed.")
    elif done.unread is not None:
        out.print(f"{group}: whatever hint there was is withdrawn.")
    else:
        out.print(f"{group}: there is no current hint; the last one was already withdrawn.")
    if done.had_loads:
        out.print(f"{group}: its loads are removed, too.")
    _tell_unread(done.unread)
    for plan_id in done.unpublished:
        out.print(f"{group}: plan {plan_id[:SHORT_ID]} was approved and will not be published.")


def stop_all(
    *,
    reason: ReasonOption,
    actor: ActorOption = None,
    bootstrap_servers: BootstrapOption = None,
    hint_topic: HintTopicOption = None,
    lake: _RecordLakeOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop all hints of a cluster: no consumer applies one, and none is published, until `resume`."""
    from evenlag.publishing import revocation

    target = _target(bootstrap_servers, hint_topic, lake, config, cluster)
    who, why = acting_person(actor), reason.strip()
    done = revocation.stop_all(target.loaded, target.name, actor=who, reason=why)
    what = "All hints are stopped" if done.changed else "All hints were stopped already"
    _tell(target, done, what, who, why, as_json=as_json, stopped=True)


def resume(
    *,
    reason: ReasonOption,
    actor: ActorOption = None,
    bootstrap_servers: BootstrapOption = None,
    hint_topic: HintTopicOption = None,
    lake: _RecordLakeOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Resume the hints of a cluster after `stop-all`: they are published and applied again."""
    from evenlag.publishing import revocation

    target = _target(bootstrap_servers, hint_topic, lake, config, cluster)
    who, why = acting_person(actor), reason.strip()
    done = revocation.resume(target.loaded, target.name, actor=who, reason=why)
    what = "Hints are followed and published again" if done.changed else "Hints were not stopped"
    _tell(target, done, what, who, why, as_json=as_json, stopped=False)


def purge(
    *,
    reason: ReasonOption,
    actor: ActorOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    bootstrap_servers: BootstrapOption = None,
    hint_topic: HintTopicOption = None,
    lake: _RecordLakeOption = None,
    config: ConfigOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the records that nobody reads: with keys that are not evenlag's, or in another partition.

    Brokers free their disk space when they compact the topic.
    """
    from evenlag.publishing.hint_topic import read_hint_topic
    from evenlag.publishing.revocation import purge_foreign

    target = _target(bootstrap_servers, hint_topic, lake, config, cluster)
    who, why = acting_person(actor), reason.strip()
    topic = target.settings.hint_topic
    found = read_hint_topic(target.settings, ()).foreign
    what = f"{number(found.num_keys)} keys with {number(found.num_bytes)} bytes"
    if found.num_keys:
        if not yes and not typer.confirm(f"Remove {what} from {topic}? It cannot be undone."):
            raise typer.Exit(1)
        purge_foreign(target.loaded, target.name, actor=who, reason=why)
    if as_json:
        print_json(
            {
                "cluster": target.name,
                "hint_topic": topic,
                "keys": found.num_keys,
                "bytes": found.num_bytes,
                "actor": who,
                "reason": why,
            }
        )
    elif found.num_keys:
        console().print(f"{what} are removed from {topic}.", soft_wrap=True)
    else:
        console().print(f"{topic} has no records that nobody reads.", soft_wrap=True)


def _target(
    bootstrap_servers: str | None,
    hint_topic: str | None,
    lake: str | None,
    config: Path | None,
    cluster: str | None,
) -> Target:
    return find_target(bootstrap_servers, config, cluster, lake=lake).with_hint_topic(hint_topic)


def _tell(
    target: Target, done: StopChange, what: str, actor: str, reason: str, *, as_json: bool, stopped: bool
) -> None:
    if as_json:
        print_json(
            {
                "cluster": target.name,
                "hint_topic": done.hint_topic,
                "partitions": done.num_partitions,
                "stopped": stopped,
                "changed": done.changed,
                "unread": done.unread,
                "warning": done.warning,
                "actor": actor,
                "reason": reason,
            }
        )
        return
    console().print(
        f"{what} on {target.name}: control/stop {'is in' if stopped else 'is removed from'} all "
        f"{done.num_partitions} partitions of {done.hint_topic}.",
        soft_wrap=True,
    )
    _tell_unread(done.unread)
    if done.warning is not None:
        print_error(done.warning)


def _tell_unread(unread: str | None) -> None:
    if unread is not None:
        print_error(f"the topic was written, and could not be read afterwards: {unread}")
