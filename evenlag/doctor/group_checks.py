"""Checks of a cluster's groups against the policy: who would never be hinted, and whose lag is not known."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from evenlag.doctor.broker_checks import connected
from evenlag.doctor.model import Check, ok, skipped, warning
from evenlag.enums import EVENLAG_ASSIGNOR, GroupType, LagStatus, Mode
from evenlag.lake.tables import LAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlag.doctor.kafka_probe import KafkaView
    from evenlag.doctor.model import Finding
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.policy.settings import Policy

_NAMED: Final = 5


def group_checks(view: KafkaView, loaded: LoadedPolicy) -> list[Check]:
    """The checks of one cluster."""
    policy = view.policy
    return [
        Check("groups", "modes", connected(lambda: [ok(tell_modes(policy, view.name, view.groups))])),
        Check("groups", "rules", connected(lambda: check_unmatched(loaded, view.name, view.groups))),
        Check("groups", "assignor", connected(lambda: check_assignors(policy, view.name, view.groups))),
        Check("groups", "kip848", connected(lambda: _check_extra(view))),
        Check("groups", "commits", lambda: _check_commits(view)),
    ]


def tell_modes(policy: Policy, cluster: str, groups: Iterable[str]) -> str:
    """Say how many groups are in each mode."""
    counts = Counter(policy.group_settings(cluster, group).mode for group in groups)
    told = ", ".join(f"{counts[mode]} in {mode.value}" for mode in Mode if counts[mode])
    return told or "no group shows"


def check_unmatched(loaded: LoadedPolicy, cluster: str, groups: Iterable[str]) -> list[Finding]:
    """Each rule for this cluster holds for a group that is there: a name with a slip in it matches none."""
    rules, names = loaded.policy.groups, list(groups)
    if not names:
        return [skipped("no group shows")]
    used = {id(loaded.policy.rule_of(cluster, group)) for group in names}
    found: list[Finding] = [
        warning(
            f"rule {number}, {rule.match!r}, holds for none of the {len(names)} groups that are there",
            f"is the name right? evenlag policy explain {rule.match}",
        )
        for number, rule in enumerate(rules, start=1)
        if cluster in (rule.clusters or (cluster,)) and id(rule) not in used
    ]
    return found or [ok("each rule holds for a group that is there")]


def check_assignors(policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """A group that may be hinted has selected evenlag's assignor; else it is planned and never hinted."""
    hinted = {
        name: group
        for name, group in groups.items()
        if policy.group_settings(cluster, name).mode.rank >= Mode.APPROVE.rank
    }
    if not hinted:
        return [skipped("no group is in mode approve or auto")]
    deaf = sorted(
        f"{name} ({group.get('protocol_data')})"
        for name, group in hinted.items()
        if group.get("members") and group.get("protocol_data") not in {EVENLAG_ASSIGNOR, "", None}
    )
    if not deaf:
        return [ok(f"none of {len(hinted)} groups has selected another assignor")]
    return [
        warning(
            f"{len(deaf)} of {len(hinted)} groups in approve or auto would never be hinted: {_some(deaf)}",
            "have every consumer of the group offer the assignor evenlag (docs/hint-client.md), or ask for "
            "group.remote.assignor=evenlag where the brokers assign (docs/broker-plugin.md)",
        )
    ]


def check_extra(
    policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]], *, is_installed: bool
) -> list[Finding]:
    """Coordinators of groups that brokers assign are made to ask by a client that is an extra."""
    asked = [
        name
        for name, group in groups.items()
        if group.get("group_type") == GroupType.CONSUMER
        and policy.group_settings(cluster, name).mode.rank >= Mode.APPROVE.rank
    ]
    if not asked:
        return [skipped("no group of the consumer protocol (KIP-848) is in mode approve or auto")]
    if is_installed:
        return [ok(f"the coordinators of {len(asked)} groups can be asked after a hint is published")]
    return [
        warning(
            f"{len(asked)} groups of the consumer protocol would take a hint up only when they change by "
            f"themselves: {_some(sorted(asked))}",
            "install evenlag[kip848] where hints are published",
        )
    ]


def _check_extra(view: KafkaView) -> list[Finding]:
    installed = find_spec("confluent_kafka") is not None
    return check_extra(view.policy, view.name, view.groups, is_installed=installed)


def _check_commits(view: KafkaView) -> list[Finding]:
    snapshot = view.reader.latest_snapshot(view.name)
    if snapshot is None:
        return [skipped("there is no snapshot yet")]
    rows = view.reader.read(
        LAG,
        columns=["group_id"],
        filters=[
            ("cluster", "=", view.name),
            ("day", "=", snapshot["day"]),
            ("snapshot_id", "=", snapshot["snapshot_id"]),
            ("status", "in", [LagStatus.NO_COMMIT, LagStatus.DATA_LOSS]),
        ],
    )
    return check_commits(view.policy, view.name, Counter(rows["group_id"].to_pylist()))


def check_commits(policy: Policy, cluster: str, uncommitted: Mapping[str, int]) -> list[Finding]:
    """Partitions without a usable commit have a lag only by the reset policy, which the rule has to tell.

    Parameters
    ----------
    policy, cluster
        Where the rules are.
    uncommitted
        By group, how many partitions the newest reading found without a commit that counts.
    """
    blind = sorted(
        f"{group} ({count})"
        for group, count in uncommitted.items()
        if (settings := policy.group_settings(cluster, group)).reset_policy is None
        and settings.mode is not Mode.OBSERVE
    )
    if not blind:
        return [ok("no planned group has partitions whose lag is not known for want of a reset_policy")]
    return [
        warning(
            f"for want of commits the lag of {len(blind)} groups is not known: {_some(blind)}",
            "set reset_policy in their rule to what their consumers have as auto.offset.reset",
        )
    ]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
