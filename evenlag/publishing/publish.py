"""Publish: approved plans become hints, once each, for groups that are still as they were planned.

No JVM: the lake is read by ``deltalake``, events go to ``control_events``. The order makes every step
repeatable: fence other publishers, read the lake and what stands on the topic, check the live groups, write
all hints in one transaction, write the events. Killed between the transaction and the events, the repeat
finds its plan on the topic and tells of it with the sequence that it has.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from assignor_core.hint import HintPayload, encode_hint, hint_key
from assignor_core.objective import Load
from evenlag.enums import EVENLAG_ASSIGNOR, GroupType, Mode
from evenlag.kafka.connection import admin_client, reading_limits
from evenlag.kafka.live_groups import LiveGroup, read_live_groups
from evenlag.lake.reader import LakeReader
from evenlag.publishing.await_target import ask_until_taken_up
from evenlag.publishing.eligibility import PUBLISHING_MODES, is_approved_by_policy, read_publishable
from evenlag.publishing.event_log import ControlEvent, append_control_events
from evenlag.publishing.hint_topic import (
    TopicState,
    ensure_hint_topic,
    group_signing_key,
    hint_publisher,
    read_hint_topic,
    read_max_bytes,
)
from evenlag.publishing.live_lag import LiveGain, read_live_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from evenlag.enums import Mode
    from evenlag.policy.group_settings import GroupSettings
    from evenlag.policy.loader import LoadedPolicy

_LOG = logging.getLogger(__name__)

_STABLE: Final = "Stable"
# What a record holds beside key and value: Kafka's heads of a record and of a batch, at most.
_RECORD_HEAD_BYTES: Final = 100


@dataclass(slots=True)
class PublishReport:
    """What a publishing did.

    Attributes
    ----------
    published
        (group_id, plan_id, sequence) of the hints that stand on the topic by this run or its earlier try.
    expired
        (group_id, plan_id, reason) of the plans that do not fit the world any more.
    held
        (group_id, plan_id, reason) of the plans that wait, e.g. while everything is stopped.
    not_taken_up
        (group_id, plan_id, reason) of the published ones, for groups of the consumer protocol, that the
        group's coordinator has not made its target so far: it finds the hint when the group changes next.
    """

    published: list[tuple[str, str, int]] = field(default_factory=list)
    expired: list[tuple[str, str, str]] = field(default_factory=list)
    held: list[tuple[str, str, str]] = field(default_factory=list)
    not_taken_up: list[tuple[str, str, str]] = field(default_factory=list)

    def summary(self) -> dict[str, int]:
        """Counts."""
        return {
            "published": len(self.published),
            "expired": len(self.expired),
            "held": len(self.held),
            "not_taken_up": len(self.not_taken_up),
        }


def publish_hints(
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    *,
    actor: str = "evenlag",
    allow_modes: Sequence[Mode] = PUBLISHING_MODES,
    only: Collection[str] | None = None,
) -> PublishReport:
    """Publish the approved plans of a cluster up to a slot.

    Parameters
    ----------
    loaded
        The policy; its modes of this moment count, not those that a plan was made under.
    cluster
        Name of the cluster in the policy.
    slot
        Plans of later slots are left alone.
    run_id, actor
        For the events.
    allow_modes
        Modes that may publish; can only be narrowed.
    only
        Ids of the plans that may be published; all when not given.

    Raises
    ------
    KafkaUnreachableError, KafkaAuthenticationError, PublishError
        When nothing could be published; a repeat puts it right.
    FencedPublisherError
        When another publisher has taken over.
    LakeError
        When the lake cannot be read, or the events cannot be written.
    """
    report = PublishReport()
    if not read_publishable(loaded, cluster, slot, allow_modes, only=only):
        return report
    settings = loaded.policy.clusters[cluster]
    run = _Run(loaded, cluster, run_id, actor, report)
    with admin_client(settings) as client:
        ensure_hint_topic(client, settings)
        with hint_publisher(cluster, settings) as publisher:
            # Read again behind the fence: from here on nobody else publishes, and what another run published,
            # or a person took back, while this one was stuck, is seen.
            plans = read_publishable(loaded, cluster, slot, allow_modes, only=only)
            state = read_hint_topic(settings)
            waiting = run.adopt_standing(plans, state)
            if state.stopped:
                report.held += [(p["group_id"], p["plan_id"], "all hints are stopped") for p in waiting]
            else:
                fitting = run.expire_unfit(waiting, client)
                values = run.encode(fitting, state, max_bytes=read_max_bytes(client, settings.hint_topic))
                publisher.write(values)
                if not values and report.expired:
                    # Who has been fenced judges a world that its successor has changed already.
                    publisher.check_fence()
                run.note_published(fitting)
        # Before the events: killed in between, the repeat finds the hints standing, and asks again.
        run.ask_coordinators(client)
    run.write_events()
    return report


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A hint as it goes out."""

    value: bytes
    sequence: int
    issued_at: datetime
    expires_at: datetime


class _Run:
    """One publishing: gathers the events and what to report."""

    def __init__(
        self, loaded: LoadedPolicy, cluster: str, run_id: str, actor: str, report: PublishReport
    ) -> None:
        self._loaded = loaded
        self._cluster = cluster
        self._run_id = run_id
        self._actor = actor
        self._report = report
        self._events: list[ControlEvent] = []
        self._encoded: dict[str, _Encoded] = {}
        self._of_brokers: dict[str, Mapping[str, Any]] = {}

    def adopt_standing(self, plans: list[dict[str, Any]], state: TopicState) -> list[dict[str, Any]]:
        """Tell of plans that stand on the topic already: an earlier try was killed before its events."""
        waiting = []
        for plan in plans:
            hint = state.hints.get(plan["group_id"])
            if hint is None or hint.plan_id != plan["plan_id"]:
                waiting.append(plan)
                continue
            self._published(plan, hint.sequence, _moment(hint.issued_at_ms), _moment(hint.expires_at_ms))
        return waiting

    def expire_unfit(self, plans: list[dict[str, Any]], client: Any) -> list[dict[str, Any]]:
        """Set aside what may not be published or is no longer true; what is left may go out."""
        allowed = self._without(plans, lambda plan: plan["refusal"] or self._age_misfit(plan))
        of_brokers = {plan["group_id"] for plan in allowed if plan["group_type"] == GroupType.CONSUMER}
        live = read_live_groups(
            client,
            {plan["group_id"] for plan in allowed} - of_brokers,
            of_brokers=of_brokers,
            limits=reading_limits(self._loaded.policy.clusters[self._cluster]),
        )
        fitting = self._without(allowed, lambda plan: _misfit(plan, live[plan["group_id"]]))
        settings = {plan["group_id"]: self._settings(plan) for plan in fitting}
        gains = read_live_gains(
            client,
            fitting,
            {group_id: live[group_id] for group_id in settings},
            settings,
            timeout_s=self._loaded.policy.clusters[self._cluster].request_timeout_ms / 1000,
        )
        return self._without(
            fitting, lambda plan: _gain_misfit(plan, gains[plan["plan_id"]], self._settings(plan))
        )

    def encode(
        self, plans: list[dict[str, Any]], state: TopicState, *, max_bytes: int | None
    ) -> dict[str, bytes]:
        """Encode the hints, by group; one that no record of the topic holds is set aside."""
        known = _known_sequences(self._loaded.policy.lake, self._cluster)
        issued_at = datetime.now(UTC)
        for plan in plans:
            group_id = plan["group_id"]
            standing = state.hints.get(group_id)
            sequence = 1 + max(known.get(group_id, 0), 0 if standing is None else standing.sequence)
            expires_at = issued_at + timedelta(seconds=self._settings(plan).hint_ttl_s)
            value = encode_hint(
                plan["payload"].encode(),
                sequence=sequence,
                issued_at_ms=_ms(issued_at),
                expires_at_ms=_ms(expires_at),
                group_key=group_signing_key(
                    self._loaded.policy.clusters[self._cluster],
                    group_id,
                    is_for_brokers=plan["group_type"] == GroupType.CONSUMER,
                ),
            )
            size = len(value) + len(hint_key(group_id)) + _RECORD_HEAD_BYTES
            if max_bytes is not None and size > max_bytes:
                reason = f"the hint has {size} bytes, a record of the hint topic holds {max_bytes}"
                self._expire(plan, reason)
                continue
            self._encoded[plan["plan_id"]] = _Encoded(value, sequence, issued_at, expires_at)
        return {
            plan["group_id"]: self._encoded[plan["plan_id"]].value
            for plan in plans
            if plan["plan_id"] in self._encoded
        }

    def note_published(self, plans: list[dict[str, Any]]) -> None:
        """Tell of the hints that the topic holds now."""
        for plan in plans:
            if hint := self._encoded.get(plan["plan_id"]):
                self._published(plan, hint.sequence, hint.issued_at, hint.expires_at)

    def ask_coordinators(self, client: Any) -> None:
        """Have the coordinators of published groups of the consumer protocol take their hints up."""
        payloads = {
            group_id: HintPayload.decode(plan["payload"].encode())
            for group_id, plan in self._of_brokers.items()
        }
        missing = ask_until_taken_up(client, self._loaded.policy.clusters[self._cluster], payloads)
        self._report.not_taken_up += [
            (group_id, self._of_brokers[group_id]["plan_id"], reason) for group_id, reason in missing.items()
        ]

    def write_events(self) -> None:
        """Write the events; a repeat writes none twice."""
        append_control_events(self._loaded.policy.lake, self._events)

    def _settings(self, plan: Mapping[str, Any]) -> GroupSettings:
        return self._loaded.policy.group_settings(self._cluster, plan["group_id"])

    def _age_misfit(self, plan: Mapping[str, Any]) -> str | None:
        """A plan is as old as what it saw; one that a person approved, as old as that yes."""
        ttl_s = self._settings(plan).hint_ttl_s
        since, what = plan["approved_at"], "approval"
        if is_approved_by_policy(plan):
            since, what = plan["slot"], "plan"
        age_s = (datetime.now(UTC) - since).total_seconds()
        return f"the {what} is {age_s:.0f} s old, a hint may be {ttl_s} s" if age_s > ttl_s else None

    def _without(
        self, plans: list[dict[str, Any]], obstacle: Callable[[dict[str, Any]], str | None]
    ) -> list[dict[str, Any]]:
        """Set aside the plans that have an obstacle, with it as the reason."""
        kept = []
        for plan in plans:
            reason = obstacle(plan)
            if reason is None:
                kept.append(plan)
            else:
                self._expire(plan, reason)
        return kept

    def _expire(self, plan: Mapping[str, Any], reason: str) -> None:
        about = {name: plan[name] for name in ("group_id", "plan_id", "snapshot_id")}
        _LOG.info("plan expired: %s", reason, extra=about)
        self._report.expired.append((plan["group_id"], plan["plan_id"], reason))
        self._add(plan, "EXPIRED", reason, datetime.now(UTC))

    def _published(
        self, plan: Mapping[str, Any], sequence: int, issued_at: datetime, expires_at: datetime
    ) -> None:
        about = {name: plan[name] for name in ("group_id", "plan_id", "snapshot_id")}
        _LOG.info("hint published, sequence %d", sequence, extra=about)
        self._report.published.append((plan["group_id"], plan["plan_id"], sequence))
        if plan["group_type"] == GroupType.CONSUMER:
            self._of_brokers[plan["group_id"]] = plan
        self._add(plan, "PUBLISHED", None, issued_at, sequence, expires_at)

    def _add(
        self,
        plan: Mapping[str, Any],
        event: str,
        reason: str | None,
        at: datetime,
        sequence: int | None = None,
        expires_at: datetime | None = None,
    ) -> None:
        self._events.append(
            ControlEvent(
                cluster=self._cluster,
                day=plan["day"],
                snapshot_id=plan["snapshot_id"],
                plan_id=plan["plan_id"],
                group_id=plan["group_id"],
                event=event,
                reason=reason,
                actor=self._actor,
                at=at,
                sequence=sequence,
                expires_at=expires_at,
                run_id=self._run_id,
            )
        )


def _misfit(plan: Mapping[str, Any], group: LiveGroup) -> str | None:
    """Why the group is not the one that was planned any more; None when it is."""
    checks = (
        (group.state != _STABLE, f"the group is {group.state}"),
        (
            group.assignor != EVENLAG_ASSIGNOR,
            f"the group has selected {group.assignor}, not {EVENLAG_ASSIGNOR}",
        ),
        (
            group.fingerprint != plan["fingerprint"],
            "the group's members, topics or partitions have changed",
        ),
    )
    return next((reason for is_misfit, reason in checks if is_misfit), None)


def _gain_misfit(plan: Mapping[str, Any], live: LiveGain, settings: GroupSettings) -> str | None:
    """Why a plan is not worth its moves by now; None when it is.

    A plan for rates is not judged by lag, which it does not promise to lower.
    """
    if settings.load is Load.RATE:
        return None
    if live.num_unknown:
        return f"the lag of {live.num_unknown} partitions is not known at this moment"
    if live.gain < settings.min_gain:
        return (
            f"on the lag of this moment it lowers the largest load of a member by {live.gain:.1%} "
            f"({plan['gain']:.1%} when planned), at least {settings.min_gain:.1%} is asked for"
        )
    return None


def _known_sequences(lake: str, cluster: str) -> dict[str, int]:
    """The newest sequence of each group that the lake knows: it outlives a withdrawn hint."""
    # A hint may have been withdrawn whose PUBLISHED was never written: what took it back counts too.
    told = ("event", "in", ["PUBLISHED", "WITHDRAWN"])
    events = LakeReader(lake).read_events(filters=[("cluster", "=", cluster), told])
    totals = events.group_by("group_id").aggregate([("sequence", "max")])
    return dict(zip(totals["group_id"].to_pylist(), totals["sequence_max"].to_pylist(), strict=True))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
