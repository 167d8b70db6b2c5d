"""Checks of Kafka permissions. They ask for authorized operations and change nothing.

Kafka reports the authorized operations of the resources that a client describes, but not those of
transactional ids. A check shows that one can be described. Only a write would show that it can be written,
and it would fence an active publisher.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from evenlag.doctor.broker_checks import connected
from evenlag.doctor.model import Check, failed, ok, skipped, warning
from evenlag.enums import EVENLAG_ASSIGNOR, Mode
from evenlag.kafka.connection import OPERATION_NAMES, Grants
from evenlag.publishing.writing.hint_publisher import publisher_id
from evenlag.publishing.writing.topic_settings import new_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.doctor.kafka_probe import KafkaView
    from evenlag.doctor.model import Finding
    from evenlag.policy.settings import Policy

_TRANSACTIONS: Final = "__transaction_state"
_UNKNOWN_TOPIC: Final = 3
_NAMED: Final = 5
_NOT_ALLOWED: Final = 29
_HINT_TOPIC_OPERATIONS: Final = ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")


def permission_checks(view: KafkaView) -> list[Check]:
    """Return the permission checks of one cluster."""
    return [
        Check("permissions", "cluster", connected(lambda: _check_cluster(view))),
        Check("permissions", "topics", connected(lambda: _check_topics(view))),
        Check("permissions", "groups", connected(lambda: _check_groups(view))),
        Check("permissions", "hint_topic", connected(lambda: _check_hint_topic(view))),
        Check("permissions", "transactional_id", connected(lambda: _check_transactional_id(view))),
    ]


def grants_of(view: KafkaView) -> Grants:
    """Return the ACL commands for evenlag's principal, as far as the policy shows it."""
    return Grants.of(view.servers, view.settings.kafka)


def missing_operations(allowed: list[str] | None, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the required operations that are not authorized; all of them if Kafka reports none."""
    return tuple(operation for operation in wanted if operation not in (allowed or ()))


def _check_cluster(view: KafkaView) -> list[Finding]:
    missing = missing_operations(view.cluster.get("authorized_operations"), ("DESCRIBE",))
    if missing:
        return [
            failed(
                "evenlag may not describe the cluster: it sees no group that it was not granted by name",
                grants_of(view).line(missing, "--cluster"),
            )
        ]
    return [ok("the cluster may be described")]


def _check_topics(view: KafkaView) -> list[Finding]:
    """Check for subscribed topics that are not visible: topics without Describe are not in the metadata."""
    seen = {row["name"] for row in view.client.describe_topics() if not row.get("error_code")}
    taken = {topic for group in view.groups.values() for topic in _subscribed(group)}
    hidden = sorted(taken - seen)
    if not hidden:
        return [ok(f"{len(seen)} topics may be described, among them all that groups take")]
    shown = ", ".join(hidden[:5]) + (f" and {len(hidden) - 5} more" if len(hidden) > 5 else "")  # noqa: PLR2004
    return [
        warning(
            f"{len(hidden)} topics that groups take do not show, so their lag is not seen: {shown}",
            "if they are there: " + grants_of(view).line(("DESCRIBE",), "--topic '*'"),
        )
    ]


def _check_groups(view: KafkaView) -> list[Finding]:
    remedy = grants_of(view).line(("DESCRIBE",), "--group '*'")
    groups = view.groups
    refused = sorted(
        name for name, group in groups.items() if "AuthorizationFailed" in str(group.get("error") or "")
    )
    if refused:
        return [failed(f"{len(refused)} groups may not be described, e.g. {refused[0]}", remedy)]
    if not groups:
        return [skipped("no group shows, so nothing could be tried")]
    blind = sorted(
        name
        for name, group in groups.items()
        if group.get("authorized_operations") is not None
        and missing_operations(group["authorized_operations"], ("DESCRIBE",))
    )
    if blind:
        return [failed(f"offsets of {len(blind)} groups may not be read, e.g. {blind[0]}", remedy)]
    found = [ok(f"{len(groups)} groups may be described")]
    return found + check_joins(view.policy, view.name, groups, grants_of(view))


def check_joins(
    policy: Policy, cluster: str, groups: Mapping[str, Mapping[str, Any]], grants: Grants
) -> list[Finding]:
    """Check that evenlag's temporary member may join the groups that get hints.

    groups: Groups by id, as in ``KafkaView.groups``.
    """
    if policy.clusters[cluster].temporary_member_after_s is None:
        return []
    closed = sorted(
        name
        for name, group in groups.items()
        if group.get("protocol_data") == EVENLAG_ASSIGNOR
        and policy.group_settings(cluster, name).mode.rank >= Mode.APPROVE.rank
        and group.get("authorized_operations") is not None
        and missing_operations(group["authorized_operations"], ("READ",))
    )
    if not closed:
        return []
    names = " ".join(f"--group {shlex.quote(name)}" for name in closed[:_NAMED])
    return [
        warning(
            f"{len(closed)} groups that get hints may not be joined, e.g. {closed[0]}: where no member asks, "
            "they follow a hint only when they change by themselves",
            f"{grants.line(('READ',), names)}, or set temporary_member_after_s: null",
        )
    ]


def _check_hint_topic(view: KafkaView) -> list[Finding]:
    name = view.settings.hint_topic
    if not view.publishes:
        return [skipped("no rule of the policy lets hints be published here")]
    grants, code = grants_of(view), view.hint_topic.get("error_code")
    resource = f"--topic {name}"
    if code == _UNKNOWN_TOPIC:
        return _may_create(view, grants)
    if code == _NOT_ALLOWED:
        return [
            failed(
                f"the topic {name} may not be described, or does not exist and may not be created",
                grants.line(("CREATE", *_HINT_TOPIC_OPERATIONS), resource),
            )
        ]
    missing = missing_operations(view.hint_topic.get("authorized_operations"), _HINT_TOPIC_OPERATIONS)
    if missing:
        names = ", ".join(OPERATION_NAMES[operation] for operation in missing)
        return [failed(f"on the topic {name} evenlag lacks {names}", grants.line(missing, resource))]
    return [ok(f"the topic {name} may be read and written")]


def _may_create(view: KafkaView, grants: Grants) -> list[Finding]:
    """Ask the broker whether it would create the topic (``validate_only``)."""
    import kafka.errors

    name = view.settings.hint_topic
    try:
        view.client.create_topics({name: new_topic(view.settings)}, validate_only=True)
    except kafka.errors.AuthorizationError:
        line = grants.line(("CREATE", *_HINT_TOPIC_OPERATIONS), f"--topic {name}")
        return [failed(f"the topic {name} does not exist and evenlag may not create it", line)]
    except kafka.errors.KafkaError as error:
        return [
            failed(
                f"the topic {name} does not exist, and the brokers refuse to create it: "
                f"{type(error).__name__}",
                "correct hint_topic_partitions and hint_topic_replication_factor, or create it manually",
            )
        ]
    return [ok(f"the topic {name} does not exist; the first publishing may create it")]


def _check_transactional_id(view: KafkaView) -> list[Finding]:
    import kafka.errors

    if not view.publishes:
        return [skipped("no rule of the policy lets hints be published here")]
    name = publisher_id(view.cluster["cluster_id"], view.settings.hint_topic)
    [state] = view.client.describe_topics([_TRANSACTIONS])
    if state.get("error_code") == _UNKNOWN_TOPIC:
        # A request for a transaction coordinator would create Kafka's internal topic.
        return [skipped("no producer has used transactions on this cluster yet, so this is not known")]
    try:
        view.client.describe_transactions([name])
    except kafka.errors.AuthorizationError:
        line = grants_of(view).line(("WRITE", "DESCRIBE"), f"--transactional-id {name}")
        return [failed(f"evenlag may not use the transactional id {name}", line)]
    except kafka.errors.TransactionalIdNotFoundError:
        pass
    return [
        ok(f"the transactional id {name} may be described; --probe-writes tests whether it may be written")
    ]


def _subscribed(group: dict[str, Any]) -> list[str]:
    topics: list[str] = []
    for member in group.get("members") or ():
        topics += member["subscription"] or ()
    return topics
