"""Checks of a cluster's groups against the policy: modes, rules, assignors and usable commits."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from evenlag.doctor.broker_checks import connected
from evenlag.doctor.model import Check, ok, skipped, warning
from evenlag.enums import EVENLAG_ASSIGNOR, HINTABLE_TYPES, GroupType, LagStatus, Mode
from evenlag.kafka.member_protocol import CONSUMER_PROTOCOL_TYPE
from evenlag.lake.tables import LAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlag.doctor.kafka_probe import KafkaView
    from evenlag.doctor.model import Finding
    from evenlag.policy.loader import LoadedPolicy
    from evenlag.policy.settings import Policy

_NAMED: Final = 5


def group_checks(view: KafkaView, loaded: LoadedPolicy) -> list[Check]:
    """Return the checks of one cluster's groups."""
    policy = view.policy
    return [
        Check("groups", "modes", connected(lambda: [ok(describe_modes(policy, view.name, view.groups))])),
        Check("groups", "rules", connected(lambda: check_unmatched(loaded, view.name, view.groups))),
        Check("groups", "assignor", connected(lambda: check_assignors(policy, view.name, view.groups))),
        Check("groups", "kip848", connected(lambda: _check_extra(view))),
        Check("groups", "commits", lambda: _check_commits(view)),
    ]


def describe_modes(policy: Policy, cluster: str, groups: Iterable[str]) -> str:
    """Count the groups by mode.

    Returns for example ``3 in shadow, 1 in auto``.
    """
    counts = Counter(policy.group_settings(cluster, group).mode for group in groups)
    modes = ", ".join(f"{counts[mode]} in {mode.value}" for mode in Mode if counts[mode])
    return modes or "no group shows"


def check_unmatched(loaded: LoadedPolicy, cluster: str, groups: Iterable[str]) -> list[Finding]:
    """Check that each rule for this cluster applies to an existing group: a misspelled name matches none.

    Returns a warning per unused rule; one `ok` if there is none.
    """
    rules, names = loaded.policy.groups, list(groups)
    if not names:
        return [skipped("no group shows")]
    used = {id(loaded.policy.rule_of(cluster, group)) for group in names}
    found: list[Finding] = [
        warning(
            f"rule {number}, {rule.match!r}, matches none of the {len(names)} existing groups",
            f"is the name right? evenlag policy explain {rule.match}",
        )
        for number, rule in enumerate(rules, start=1)
        if cluster in (rule.clusters or (cluster,)) and id(rule) not in used
    ]
    return found or [ok("each rule matches an existing group")]


def _is_hintable(group: Mapping[str, Any]) -> bool:
    """Whether hints could reach a group at all: Kafka Connect's workers, say, assign no partitions."""
    return (
        group.get("group_type", GroupType.CLASSIC) in HINTABLE_TYPES
        and (group.get("protocol_type") or CONSUMER_PROTOCOL_TYPE) == CONSUMER_PROTOCOL_TYPE
    )


def check_assignors(policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Check that each group that may receive hints uses evenlag's assignor; other groups ignore hints.

    groups: Groups by id, as in ``KafkaView.groups``.
    """
    hinted = {
        name: group
        for name, group in groups.items()
        if policy.group_settings(cluster, name).mode.rank >= Mode.APPROVE.rank and _is_hintable(group)
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
            "have every consumer of the group offer the assignor evenlag (docs/hint-client.md; in Java "
            "docs/java-client.md), or ask for "
            "group.remote.assignor=evenlag where the brokers assign (docs/broker-plugin.md)",
        )
    ]


def check_extra(
    policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]], *, is_installed: bool
) -> list[Finding]:
    """Check that the client for KIP-848 groups is installed if one of them may receive hints.

    The publisher uses this client, an optional extra, to make coordinators compute a new target assignment.

    groups: Groups by id, as in ``KafkaView.groups``.
    """
    asked = [
        name
        for name, group in groups.items()
        if group.get("group_type") == GroupType.CONSUMER
        and policy.group_settings(cluster, name).mode.rank >= Mode.APPROVE.rank
    ]
    if not asked:
        return [skipped("no group of the consumer protocol (KIP-848) is in mode approve or auto")]
    if policy.clusters[cluster].temporary_member_after_s is None:
        # Publishing asks no coordinator then, with the client or without it.
        return [
            ok(
                f"temporary_member_after_s is null: {len(asked)} groups of the consumer protocol follow "
                "a hint when they change by themselves"
            )
        ]
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
            ("status", "in", [LagStatus.NO_COMMIT, LagStatus.DATA_LOSS, LagStatus.OUT_OF_RANGE]),
        ],
    )
    return check_commits(view.policy, view.name, Counter(rows["group_id"].to_pylist()))


def check_commits(policy: Policy, cluster: str, uncommitted: Mapping[str, int]) -> list[Finding]:
    """Check that the lag of partitions without a usable commit is known from the rule's `reset_policy`.

    uncommitted: By group, the number of partitions without a usable commit in the newest snapshot.
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
