"""Publish approved plans as hints, once each, to groups that have not changed since they were planned.

No JVM: ``deltalake`` reads the lake and events are appended to ``plan_events``. The stages and their order
make a repeat safe:

1. Look for candidates, fence other publishers, and read the candidates.
2. Read the hint topic, and find the plans that are already published on it.
3. Expire the plans that no longer apply: eligibility, live group, live lag.
4. Write all hints in one transaction.
5. Wait until the groups follow, and make those rebalance that do not by themselves; meanwhile refresh loads.
   A process that runs cycle after cycle waits beside its next ones.
6. Append the events.

When the process is killed between 4 and 6, the repeat finds its plan on the topic (stage 2) and records it
with the sequence that the hint already has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar

from assignor_core.hint import Hint, HintPayload, encode_hint, hint_key
from assignor_core.loads import MAX_CLOCK_AHEAD_MS
from evenlag.enums import CycleStep, GroupType, PlanEvent
from evenlag.errors import JobError
from evenlag.kafka.connection import admin_client, kafka_cluster_id
from evenlag.lake.delta_log import one_look
from evenlag.lake.filters import matching
from evenlag.lake.reader import LakeReader
from evenlag.lake.run_records import REPEATS
from evenlag.lake.tables import PLAN_EVENTS
from evenlag.logging_setup import log_fields, named_logger
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.loader import LoadedPolicy
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.following import Following
from evenlag.publishing.hint_topic import MAX_PLAUSIBLE_SEQUENCE, TopicState, is_plausible, read_hint_topic
from evenlag.publishing.loads import LoadsReport, refresh_loads
from evenlag.publishing.plugin_memory import groups_without_room
from evenlag.publishing.publish_checks import Plan, RefusedPlan, expire_stale
from evenlag.publishing.publishable_plans import find_approved, read_publishable
from evenlag.publishing.rebalance_trigger.await_followers import await_followers
from evenlag.publishing.rebalance_trigger.await_target import await_target_assignment
from evenlag.publishing.rebalance_trigger.follow_wait import FollowCost
from evenlag.publishing.sealing.signed_records import group_signing_key, signing_key_id
from evenlag.publishing.sealing.verified_plans import NOT_AS_SEALED, oldest_day
from evenlag.publishing.writing.hint_publisher import hint_publisher
from evenlag.publishing.writing.topic_settings import ensure_hint_topic, read_max_bytes, size_problem

_LOG = named_logger(__name__)
_Result = TypeVar("_Result")
_NOT_OURS: Final = (
    "this plan replaces a hint, sequence %d on %s, that this lake has not recorded: does another policy "
    "publish for the group? (once, after a killed run or on a new lake, it is none)"
)


@dataclass(frozen=True, slots=True)
class PublishReport:
    """Result of one publishing run, by (group_id, plan_id, sequence or reason).

    published: The hints that this run, or its killed earlier try, wrote.
    expired: The plans that no longer apply.
    held: The plans that wait for the next run, for example while all hints are stopped. They stay approved.
    not_taken_up: Published plans that their group does not follow yet, or whose coordinator has not adopted
        the hint as its target. Empty if ``temporary_member_after_s`` is null: nothing is waited for then.
    """

    published: list[tuple[str, str, int]] = field(default_factory=list)
    expired: list[tuple[str, str, str]] = field(default_factory=list)
    held: list[tuple[str, str, str]] = field(default_factory=list)
    not_taken_up: list[tuple[str, str, str]] = field(default_factory=list)
    loads: LoadsReport = field(default_factory=LoadsReport)

    def summary(self) -> dict[str, int]:
        """Return the number of plans of each list by its name, for the run's record."""
        counts = {name: len(getattr(self, name)) for name in ("published", "expired", "held", "not_taken_up")}
        return counts | {"loads": len(self.loads.refreshed), "loads_removed": len(self.loads.removed)}


@dataclass(frozen=True, slots=True)
class _Written:
    """State of the plans after the transaction."""

    published: tuple[PublishedPlan, ...] = ()
    expired: tuple[RefusedPlan, ...] = ()
    held: tuple[RefusedPlan, ...] = ()


def publish_cycle(
    loaded: LoadedPolicy, cluster: str, slot: datetime, run_id: str, following: Following | None = None
) -> dict[str, int]:
    """Publish as the last step of a command's cycle, with the step in the log."""
    with log_fields(run_id=run_id, cluster=cluster, step=CycleStep.PUBLISH, slot=slot.isoformat()):
        report = publish_hints(loaded, cluster, slot, run_id, actor="command", following=following)
        return report.summary()


def publish_hints(
    loaded: LoadedPolicy,
    cluster: str,
    slot: datetime,
    run_id: str,
    *,
    actor: str = "evenlag",
    only: Collection[str] | None = None,
    following: Following | None = None,
) -> PublishReport:
    """Publish the approved plans of a cluster up to a slot, and refresh the loads of its groups.

    The groups' current modes apply, not the modes that the plans were made in.

    only: Ids of the plans that may be published; all, and loads, when None.
    following: What waits until the groups follow, and then records the plans; this call does if None. The
        report has the groups whose waits have ended.
    """
    refresh = partial(refresh_loads, loaded, cluster) if only is None else LoadsReport
    reader, since = LakeReader(loaded.policy.lake), oldest_day(slot.astimezone(UTC))
    beside = Following() if following is None else following
    with one_look():
        if not find_approved(reader, cluster, since, only).open_ids - beside.plan_ids:
            return PublishReport(loads=refresh(), not_taken_up=beside.take_not_taken_up())
    settings = loaded.policy.clusters[cluster]
    with ExitStack() as stack:
        client = stack.enter_context(admin_client(settings))
        ensure_hint_topic(client, settings)
        with hint_publisher(kafka_cluster_id(client), settings) as publisher, one_look(0.0):
            # Read behind the fence: no other run publishes from here on, and what another run published,
            # or a user withdrew, while this run hung is visible now.
            plans = read_publishable(loaded, cluster, slot, only=only)
            written = _write_hints(loaded, cluster, plans, client, publisher, beside)
        # The publisher is closed, and no loads depend on whether the groups follow.
        loads = _in_thread(refresh)
        record = partial(_follow_and_record, loaded, cluster, client, run_id=run_id, actor=actor)
        if following is None or not written.published:
            reasons = record(written)
        else:
            expired = _build_events(replace(written, published=()), cluster, run_id, actor, {})
            append_plan_events(loaded.policy.lake, expired)
            wait, kept = _in_thread(partial(record, replace(written, expired=()))), stack.pop_all()
            wait.add_done_callback(lambda _: kept.close())
            following.start([done.plan for done in written.published], wait)
            reasons = {}
    report = _build_report(written, reasons, loads.result())
    return replace(report, not_taken_up=[*beside.take_not_taken_up(), *report.not_taken_up])


def _follow_and_record(
    loaded: LoadedPolicy, cluster: str, client: Any, written: _Written, *, run_id: str, actor: str
) -> dict[str, str]:
    """Wait until groups follow, append the events, and return why groups do not follow yet."""
    # Before the events: when killed here, the repeat finds the hints on the topic and waits again.
    costs: dict[str, FollowCost] = {}
    reasons = _await_groups(client, loaded.policy.clusters[cluster], written.published, costs)
    append_plan_events(loaded.policy.lake, _build_events(written, cluster, run_id, actor, costs))
    return reasons


def _in_thread(work: Callable[[], _Result]) -> Future[_Result]:
    """Start a piece of work in a thread that an interrupted process does not wait for."""
    future: Future[_Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is used
            future.set_exception(error)

    # With the fields of the log records.
    threading.Thread(target=copy_context().run, args=(run,), name="beside-publishing", daemon=True).start()
    return future


def _write_hints(
    loaded: LoadedPolicy,
    cluster: str,
    plans: Sequence[Plan],
    client: Any,
    publisher: Any,
    following: Following,
) -> _Written:
    """Select the plans that still apply and write their hints in one transaction."""
    settings = loaded.policy.clusters[cluster]
    state = read_hint_topic(settings, {plan["group_id"] for plan in plans})
    new, meanwhile = following.split(plans)
    published, waiting = reconcile_published(new, state)
    if state.stopped:
        held = tuple(RefusedPlan(plan, "all hints are stopped", datetime.now(UTC)) for plan in waiting)
        return _logged(_Written(published=tuple(published), expired=tuple(meanwhile), held=held))
    current = expire_stale(loaded, cluster, waiting, client)
    issued_at = datetime.now(UTC)
    last_sequences = read_last_sequences(loaded.policy.lake, cluster, issued_at)
    hints, too_large = encode_hints(
        loaded,
        cluster,
        current.accepted,
        state,
        last_sequences=last_sequences,
        max_bytes=read_max_bytes(client, settings.hint_topic),
        issued_at=issued_at,
    )
    expired = (*meanwhile, *current.expired, *too_large)
    for hint in hints:
        if (number := last_sequences.unrecorded(hint.plan["group_id"], state)) is not None:
            _LOG.warning(_NOT_OURS, number, settings.hint_topic, extra=_log_fields(hint.plan))
    publisher.write({hint.plan["group_id"]: hint.value for hint in hints})
    if expired and not hints:
        # Without a write, nothing has checked the fence: a fenced publisher may have judged groups that
        # already follow its successor's hints.
        publisher.check_fence()
    return _logged(_Written(published=(*published, *hints), expired=expired, held=current.held))


def _await_groups(
    client: Any,
    settings: ClusterSettings,
    published: Sequence[PublishedPlan],
    costs: dict[str, FollowCost],
) -> dict[str, str]:
    """Wait until groups follow; return why others do not yet, by group. `costs` receives what was seen."""
    after_s = settings.temporary_member_after_s
    if after_s is None:
        return {}
    classic = _payloads(published, GroupType.CLASSIC)
    followers = _in_thread(partial(await_followers, client, settings, classic, after_s=after_s, costs=costs))
    triggered = _payloads(published, GroupType.CONSUMER)
    reasons = await_target_assignment(client, settings, triggered, costs=costs)
    return reasons | _room_reasons(settings, reasons) | followers.result()


def _room_reasons(settings: ClusterSettings, reasons: Mapping[str, str]) -> dict[str, str]:
    """The reasons why brokers do not follow hints, with whether they may have no room for them."""
    if not reasons:
        return {}
    try:
        without = groups_without_room(read_hint_topic(settings))
    except JobError as error:
        _LOG.warning("whether brokers have room for hints is not known: %s", error)
        return {}
    found = {group_id: without[group_id] for group_id in reasons if group_id in without}
    for group_id, reason in found.items():
        _LOG.warning("%s", reason, extra={"group_id": group_id})
    return {group_id: f"{reasons[group_id]}; {reason}" for group_id, reason in found.items()}


def _payloads(published: Sequence[PublishedPlan], group_type: GroupType) -> dict[str, HintPayload]:
    return {
        done.plan["group_id"]: HintPayload.decode(done.plan["payload"].encode())
        for done in published
        if done.plan["group_type"] == group_type
    }


def _build_events(
    written: _Written, cluster: str, run_id: str, actor: str, costs: Mapping[str, FollowCost]
) -> list[dict[str, Any]]:
    def event(plan: Plan, kind: PlanEvent, reason: str | None, at: datetime, **more: Any) -> dict[str, Any]:
        row = {**plan, "cluster": cluster, "run_id": run_id}
        return plan_event(row, kind, reason=reason, actor=actor, at=at, **more)

    about = ("sequence", "expires_at", "signing_key_id")
    published = [
        event(
            each.plan,
            PlanEvent.PUBLISHED,
            None,
            each.issued_at,
            **{name: getattr(each, name) for name in about},
            **_cost_columns(each, costs.get(each.plan["group_id"])),
        )
        for each in written.published
    ]
    return published + [event(each.plan, PlanEvent.EXPIRED, each.reason, each.at) for each in written.expired]


def _cost_columns(published: PublishedPlan, cost: FollowCost | None) -> dict[str, int]:
    """What following cost, as far as it was seen."""
    if cost is None:
        return {}
    columns = {"num_triggers": cost.num_triggers}
    if cost.followed_at is not None:
        follow_s = (cost.followed_at - published.issued_at).total_seconds()
        columns["follow_ms"] = max(0, round(1000 * follow_s))
        if published.plan["group_type"] == GroupType.CLASSIC:
            columns["rebalancing_ms"] = round(1000 * cost.rebalancing_s)
    return columns


def _build_report(written: _Written, not_taken_up: Mapping[str, str], loads: LoadsReport) -> PublishReport:
    plan_ids = {done.plan["group_id"]: done.plan["plan_id"] for done in written.published}

    def named(items: Iterable[RefusedPlan]) -> list[tuple[str, str, str]]:
        return [(item.plan["group_id"], item.plan["plan_id"], item.reason) for item in items]

    return PublishReport(
        published=[
            (done.plan["group_id"], done.plan["plan_id"], done.sequence) for done in written.published
        ],
        expired=named(written.expired),
        held=named(written.held),
        not_taken_up=[(group_id, plan_ids[group_id], reason) for group_id, reason in not_taken_up.items()],
        loads=loads,
    )


def _logged(written: _Written) -> _Written:
    for expired in written.expired:
        tell = _LOG.error if expired.reason.startswith(NOT_AS_SEALED) else _LOG.info
        tell("plan expired: %s", expired.reason, extra=_log_fields(expired.plan))
    for held in written.held:
        _LOG.warning("plan waits for the next run: %s", held.reason, extra=_log_fields(held.plan))
    for done in written.published:
        _LOG.info("hint published, sequence %d", done.sequence, extra=_log_fields(done.plan))
    return written


def _log_fields(plan: Plan) -> dict[str, Any]:
    return {name: plan[name] for name in ("group_id", "plan_id", "snapshot_id")}


@dataclass(frozen=True, slots=True)
class PublishedPlan:
    """A plan whose hint is on the topic, or about to be written.

    signing_key_id: Id of the master key that signed it; None if it is unsigned, or an earlier try wrote it.
    value: The record; empty if an earlier try wrote it.
    """

    plan: Plan
    sequence: int
    issued_at: datetime
    expires_at: datetime
    signing_key_id: str | None = None
    value: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class LastSequences:
    """Newest sequence numbers of recent events by group; no number of another group is above `floor`."""

    by_group: Mapping[str, int]
    floor: int = 0

    def next_of(self, group_id: str, state: TopicState) -> int:
        """Return the sequence number of a group's next hint.

        The hint on the topic has the newest number, unless the topic is lost, or the hint is not from here.
        """
        current = state.hints.get(group_id)
        if current is None or current.sequence > MAX_PLAUSIBLE_SEQUENCE:
            last = self.by_group.get(group_id, self.floor)
        else:
            last = max(current.sequence, self.by_group.get(group_id, 0))
        # A forged number at the limit ends the counting: from then on time alone decides.
        return min(1 + last, MAX_PLAUSIBLE_SEQUENCE)

    def unrecorded(self, group_id: str, state: TopicState) -> int | None:
        """Return the sequence number of a group's hint if it is larger than all on record, else None."""
        current = state.hints.get(group_id)
        if current is None or not self.by_group.get(group_id, self.floor) < current.sequence:
            return None
        return current.sequence


def reconcile_published(plans: Sequence[Plan], state: TopicState) -> tuple[list[PublishedPlan], list[Plan]]:
    """Separate the plans whose hint is already on the topic: an earlier try was killed before its events."""
    published: list[PublishedPlan] = []
    waiting: list[Plan] = []
    now_ms = _to_ms(datetime.now(UTC))
    for plan in plans:
        hint = state.hints.get(plan["group_id"])
        if hint is None or hint.plan_id != plan["plan_id"] or not is_plausible(hint, now_ms):
            waiting.append(plan)
        else:
            issued_at, expires_at = _from_ms(hint.issued_at_ms), _from_ms(hint.expires_at_ms)
            published.append(PublishedPlan(plan, hint.sequence, issued_at, expires_at))
    return published, waiting


def encode_hints(
    loaded: LoadedPolicy,
    cluster: str,
    plans: Sequence[Plan],
    state: TopicState,
    *,
    last_sequences: LastSequences,
    max_bytes: int | None,
    issued_at: datetime,
) -> tuple[list[PublishedPlan], list[RefusedPlan]]:
    """Encode and sign the hints of plans, one per group; one that exceeds `max_bytes` expires its plan."""
    settings = loaded.policy.clusters[cluster]
    signer = signing_key_id(settings)
    hints: list[PublishedPlan] = []
    expired: list[RefusedPlan] = []
    for plan in plans:
        group_id = plan["group_id"]
        sequence = last_sequences.next_of(group_id, state)
        ttl_s = loaded.policy.group_settings(cluster, group_id).hint_ttl_s
        at = _issue_time(issued_at, state.hints.get(group_id))
        expires_at = at + timedelta(seconds=ttl_s)
        value = encode_hint(
            plan["payload"].encode(),
            sequence=sequence,
            issued_at_ms=_to_ms(at),
            expires_at_ms=_to_ms(expires_at),
            group_key=group_signing_key(
                settings, group_id, is_for_brokers=plan["group_type"] == GroupType.CONSUMER
            ),
        )
        if reason := size_problem(hint_key(group_id), value, max_bytes):
            expired.append(RefusedPlan(plan, f"the hint has {reason}", datetime.now(UTC)))
        else:
            hints.append(PublishedPlan(plan, sequence, at, expires_at, signer, value))
    return hints, expired


def read_last_sequences(lake: str, cluster: str, now: datetime) -> LastSequences:
    """Read the newest sequence numbers from the lake: they outlive a withdrawn hint, and a lost topic.

    Only recent events are read. A group without any gets numbers from the time in seconds on, which are
    larger than all earlier ones; in a lake without older events it has had no hint, and begins with 1.
    """
    reader, since = LakeReader(lake, skip_unreadable=True), now - REPEATS
    # A hint may be withdrawn although its PUBLISHED event was never written: WITHDRAWN counts too.
    # A number that is not ours may have been recorded by a version that continued from it.
    hints = matching(cluster=cluster, event=[PlanEvent.PUBLISHED.value, PlanEvent.WITHDRAWN.value])
    plausible = [*hints, ("at", ">=", since), ("sequence", "<=", MAX_PLAUSIBLE_SEQUENCE)]
    columns = ["group_id", "sequence"]
    events = reader.read(PLAN_EVENTS, columns=columns, filters=plausible)
    totals = events.group_by("group_id").aggregate([("sequence", "max")])
    by_group = dict(zip(totals["group_id"].to_pylist(), totals["sequence_max"].to_pylist(), strict=True))
    older = reader.read_newest(PLAN_EVENTS, "at", columns=["at"], filters=[*hints, ("at", "<", since)])
    floor = int(now.timestamp()) if older.num_rows else 0
    return LastSequences({group_id: number for group_id, number in by_group.items() if number}, floor)


def _issue_time(now: datetime, current: Hint | None) -> datetime:
    """When the next hint is issued: now, or right after a hint whose sequence is not counted on.

    Consumers accept the next one by its time alone, unless they would not believe that.
    """
    now_ms = _to_ms(now)
    if current is None or current.sequence < MAX_PLAUSIBLE_SEQUENCE:
        return now
    is_ahead = now_ms <= current.issued_at_ms < now_ms + MAX_CLOCK_AHEAD_MS
    return _from_ms(current.issued_at_ms + 1) if is_ahead else now


def _to_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _from_ms(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
