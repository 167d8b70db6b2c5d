"""Changes to one consumer's group coordinator: KIP-726, true claims, commits by owners only, and fixes.

kafka-python decides at construction whether a consumer revokes all partitions before a join (EAGER) or keeps
them (COOPERATIVE). It does not pass owned partitions to an assignor, and sends any offset to the broker,
which accepts it. Its ``poll()`` returns no records during a join, those of kept partitions included. This
module replaces methods of one coordinator object; `kafka_python` checks their names.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any

from kafka.consumer.subscription_state import SubscriptionType
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    RetriableError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.util import Timer

from assignor_core.busy_time import read_busy_time
from evenlag.consumer._current_join import CurrentJoin
from evenlag.consumer._wire_format import make_subscription
from evenlag.consumer.events import named_logger

_log = named_logger(__name__)
# How long a poll waits for records before it looks again whether a join has ended.
_LOOK_AGAIN_S = 0.05
# All members have heard of a rebalance after one heartbeat interval, and polled a little later.
_HEARTBEATS = 1.2
_HALF_LIFE_S = 10.0
# How long a request takes on a machine with other work.
_REQUEST_S = 0.1
PROTOCOLS = [RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER]


class Membership:
    """One consumer's membership of its group.

    consumer: The `KafkaConsumer`; it has not joined yet.
    on_commit_refused: Called with the (topic, partition) pairs that were not committed: this member does
        not own them.
    settle_s: Returns how many seconds to wait after an assignment before a follow-up rebalance.
    on_join: Called when a join is about to be sent.
    commit_text: Returns the metadata of commits that have none of their own.
    mode: Of the next prepare: the highest protocol of the assignor that the group selected last; EAGER
        before the first join and after a loss (KIP-726).
    assigned_generation: The generation of the last accepted assignment, by any assignor; a join in progress
        is newer.
    postponed_generation: The generation after which this member requests the next round with a delay; -1
        for none.
    """

    def __init__(
        self,
        consumer: Any,
        *,
        on_commit_refused: Callable[[list[tuple[str, int]]], None] = lambda _: None,
        settle_s: Callable[[], float] = lambda: 0.0,
        on_join: Callable[[], None] = lambda: None,
        commit_text: Callable[[], str] = str,
    ) -> None:
        self._coordinator = consumer._coordinator  # noqa: SLF001  # the purpose of this module
        self._subscription = consumer._subscription  # noqa: SLF001
        self._fetcher = consumer._fetcher  # noqa: SLF001
        self._rack = consumer.config.get("client_rack") or None
        self._backoff_s = consumer.config["retry_backoff_ms"] / 1000
        self._on_commit_refused = on_commit_refused
        self._settle_s = settle_s
        self._on_join = on_join
        self._commit_text = commit_text
        self._cluster = consumer._cluster  # noqa: SLF001  # as above
        self._longest_patience_s: float = _HEARTBEATS * consumer.config["heartbeat_interval_ms"] / 1000
        self._request_timeout_ms = consumer.config["request_timeout_ms"]
        self.mode = RebalanceProtocol.EAGER
        self.assigned_generation = -1
        self.postponed_generation = -1
        # Revoked from this member, but not assigned to another member before this one joins again.
        self._releasing: frozenset[Any] = frozenset()
        # An eager assignor was selected while this member kept its partitions: others may own them by now.
        self._all_lost = False
        self._gave_up_all = False
        # No assignor of the join ignores claims.
        self._is_cooperative = False
        # A heartbeat said so after the assignment that is not applied yet.
        self._rebalances_again = False
        self._expects_until_s = 0.0
        self._processing_s, self._last_poll_s = 0.0, time.monotonic()
        self._join = CurrentJoin(self._coordinator, self._keeps_partitions, self._patience_s)
        self._last = LastMembership(self._coordinator, self._subscription, lambda: self._all_lost)
        self._replace_all()

    def held(self) -> set[Any]:
        """Return the partitions that this member owns now."""
        return set() if self._all_lost else self._subscription.assigned_partitions()

    def claims(self) -> tuple[list[tuple[str, int]], int]:
        """Return the owned partitions and the generation that assigned them, as reported at a join."""
        held = sorted((tp.topic, tp.partition) for tp in self.held())
        # Owned in spite of a loss: without a claim it would go to another member at once.
        return held, -1 if self._coordinator._generation.is_lost() else self.assigned_generation  # noqa: SLF001

    def _replace_all(self) -> None:
        self._replace("_on_join_prepare_async", self._prepare)
        self._replace("group_protocols", self._group_protocols)
        self._replace("_process_join_group_response", self._process_join_response)
        self._replace("_do_join_and_sync_async", self._join.join)
        self._replace("_on_join_complete_async", self._complete)
        self._replace("_invoke_rebalance_listener_async", self._tell_listener)
        self._replace("_send_offset_commit_request", self._send_commit)
        self._replace("_handle_offset_commit_response", self._handle_commit_response)
        self._replace("generation_if_stable", self._generation_if_stable)
        self._replace("coordinator", self._coordinator_node)
        self._replace("maybe_leave_group_async", self._leave_group)
        self._replace("stable", self._is_stable)
        self._replace("_on_close_prepare_async", self._prepare_close)
        self._replace("reset_generation", self._reset_generation)
        self._replace("_handle_heartbeat_response", self._handle_heartbeat_response)
        self._replace("poll_heartbeat", self._poll_heartbeat)
        self._replace("ensure_coordinator_ready_async", self._ensure_coordinator_ready)
        self._replace("poll", self._poll)
        self._replace("time_to_next_poll", self._time_to_next_poll)

    def _replace(self, name: str, method: Callable[..., Any]) -> None:
        original = getattr(self._coordinator, name)

        @wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return method(original, *args, **kwargs)

        setattr(self._coordinator, name, replaced)

    async def _prepare(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Revoke what the mode requires before a join, and make sure that the join completes.

        A join for changed metadata or another subscription sets no flag in kafka-python, and its cause is
        cleared before it ends. If ``poll()`` runs out of time in between, no later poll has a reason to
        process the response: the member is removed from the group, and never rejoins (Java: KAFKA-9815).
        """
        self._coordinator.request_rejoin()
        failed = await self._give_up_all() if self._all_lost else None
        held = self._subscription.assigned_partitions()
        gives_up_all = self.mode is RebalanceProtocol.EAGER and bool(held)
        # A member without partitions prepares alike in both modes, except that in EAGER mode kafka-python
        # calls the listener with no revoked partitions.
        self._set_protocol(RebalanceProtocol.EAGER if gives_up_all else RebalanceProtocol.COOPERATIVE)
        try:
            await original(*args, **kwargs)
        finally:
            self._gave_up_all = self._gave_up_all or gives_up_all
            if gives_up_all:
                self._clear()
        _raise_from(failed)

    def _group_protocols(self, original: Callable[..., Any]) -> list[Any]:
        """Return the protocols of a join. Each cooperative assignor claims the partitions that are owned."""
        self._releasing = frozenset()
        self._rebalances_again = False
        self._on_join()
        owned, generation = self.claims()
        sent = []
        self._is_cooperative = True
        for name, metadata in original():
            if self._protocol_of(name) is RebalanceProtocol.COOPERATIVE:
                made = make_subscription(metadata.topics, owned, generation, self._rack)
                made.user_data = metadata.user_data
                sent.append((name, made))
            else:
                self._is_cooperative = False
                sent.append((name, metadata))
        return sent

    def _process_join_response(self, original: Callable[..., Any], response: Any, send_time: float) -> Any:
        result = original(response, send_time)
        self._join.answered()
        self._last.joined(response.generation_id, response.member_id)
        if response.leader != response.member_id:
            # kafka-python resets this flag once a join: it stays set if this member led an attempt that
            # failed and a later attempt has another leader.
            self._coordinator._is_leader = False  # noqa: SLF001
        held = self._subscription.assigned_partitions()
        if held and self._protocol_of(response.protocol_name) is RebalanceProtocol.EAGER:
            # Kept, as the last assignor allowed, but this one ignores claims: from the sync on, any member
            # may own these partitions.
            self._all_lost = True
            self._subscription.mark_pending_revocation(held)
        return result

    async def _complete(
        self, original: Callable[..., Any], generation: int, member_id: str, protocol: str, content: Any
    ) -> None:
        failed = await self._give_up_all() if self._all_lost else None
        self._forget_fetched_offsets()
        self._join.applied()
        self._last.assigned(generation, member_id)
        self.mode = self._protocol_of(protocol)
        self._set_protocol(self.mode)
        await self._auto_commit_revoked(content)
        try:
            await original(generation, member_id, protocol, content)
        finally:
            # Not if it was rejected for a topic that is no longer subscribed: the owned partitions are then
            # those of the previous generation.
            if self.held() == set(ConsumerProtocolAssignment.decode(content).partitions()):
                self.assigned_generation = generation
        if self._gave_up_all and not self.held() and self.mode is RebalanceProtocol.COOPERATIVE:
            # Prepared as EAGER: the listener expects the partitions that came back, even if there are none.
            await self._tell_listener_if_any("on_partitions_assigned", set())
        self._gave_up_all = False
        self._let_others_sync(generation)
        if self._rebalances_again:
            self._coordinator.request_rejoin()
        elif self.held() and self.mode is RebalanceProtocol.COOPERATIVE:
            self._expect_next_round()
        _raise_from(failed)

    async def _auto_commit_revoked(self, content: Any) -> None:
        """Commit what was returned of partitions that are revoked now.

        kafka-python commits before a join; records were returned since.
        """
        if self._coordinator.config["enable_auto_commit"] and self.held():
            kept = set(ConsumerProtocolAssignment.decode(content).partitions())
            consumed = self._subscription.all_consumed_offsets()
            revoked = {tp: offset for tp, offset in consumed.items() if tp not in kept}
            await self._commit_or_warn(revoked)

    async def _commit_or_warn(self, offsets: Mapping[Any, Any]) -> None:
        try:
            await self._coordinator._commit_offsets_sync_async(offsets, self._request_timeout_ms)  # noqa: SLF001
        except KafkaError as error:
            _log.warning("offsets of revoked partitions were not committed: %r", error)

    def _forget_fetched_offsets(self) -> None:
        """Fetch the committed offsets of the assigned partitions again.

        kafka-python caches a response that a poll had no time to wait for, and uses it when the same set of
        partitions is looked up again: a partition that another member owned in between is processed again.
        """
        self._coordinator._offset_fetch_futures.clear()  # noqa: SLF001

    def _let_others_sync(self, generation: int) -> None:
        """Delay the next round, if this assignment requests one.

        A member that rejoins before the others have fetched their assignment makes them join with their
        previous claims, and that round achieves nothing.
        """
        delay_s = self._settle_s()
        was_taken = self.assigned_generation == generation
        if delay_s <= 0 or not was_taken or not self._coordinator.rejoin_needed:
            return

        def ask() -> None:
            if self.postponed_generation == generation:
                self.postponed_generation = -1
            if self.assigned_generation == generation:
                self._coordinator.request_rejoin()

        self.postponed_generation = generation
        self._coordinator.rejoin_needed = False
        self._coordinator._net.call_later(delay_s, ask)  # noqa: SLF001

    def _expect_next_round(self) -> None:
        """Send a heartbeat as soon as others may have requested the next round of a cooperative rebalance.

        Until then, a member with long batches begins none: the others would wait for it.
        """
        delay_s = 2 * self._settle_s() + _REQUEST_S
        self._expects_until_s = time.monotonic() + min(self._processing_s, delay_s + _REQUEST_S)
        self._coordinator._net.call_later(delay_s, self._look_for_next_round)  # noqa: SLF001

    async def _look_for_next_round(self) -> None:
        if self._coordinator.stable() and not self._coordinator.rejoin_needed:
            await self._coordinator._do_heartbeat()  # noqa: SLF001

    async def _give_up_all(self) -> Exception | None:
        """Call the listener's ``on_partitions_lost``, drop all partitions, return the listener's error."""
        lost, failed = self._subscription.assigned_partitions(), None
        try:
            if lost:
                await self._tell_listener_if_any("on_partitions_lost", lost)
        except Exception as error:  # noqa: BLE001  # the application's code; raised after the cleanup
            _log.exception("the rebalance listener failed in on_partitions_lost")
            failed = error
        self._clear()
        self._all_lost = False
        return failed

    def _clear(self) -> None:
        """Drop all partitions and fetched records: returning ones start at their committed offset."""
        if self._subscription.partitions_auto_assigned():
            self._subscription.assign_from_subscribed([])
        self._fetcher.close()
        self._fetcher._completed_fetches.clear()  # noqa: SLF001
        self._fetcher._next_partition_records = None  # noqa: SLF001

    async def _tell_listener_if_any(self, name: str, partitions: set[Any]) -> None:
        if self._subscription.rebalance_listener:
            await self._coordinator._invoke_rebalance_listener_async(name, partitions)  # noqa: SLF001

    async def _tell_listener(self, original: Callable[..., Any], name: str, partitions: Any) -> None:
        if name == "on_partitions_revoked":
            self._releasing = frozenset(partitions)
        await original(name, partitions)

    async def _send_commit(self, original: Callable[..., Any], offsets: Mapping[Any, Any]) -> Any:
        """Commit only offsets of partitions that this member owns: the broker accepts any partition.

        Raises a retriable error if a rebalance refuses the commit: ``commit()`` sends it again, here.
        """
        if not offsets or not self._subscription.partitions_auto_assigned():
            return await original(offsets)
        mine = self.held() if self._all_lost else self.held() | self._releasing
        refused = sorted((tp.topic, tp.partition) for tp in offsets if tp not in mine)
        if refused:
            _log.warning("not committed, held by this member no more: %s", _names(refused))
            self._on_commit_refused(refused)
            offsets = {tp: offset for tp, offset in offsets.items() if tp in mine}
            if not offsets:
                raise CommitFailedError(
                    f"this member holds none of the partitions that it was to commit: {_names(refused)}"
                )
        try:
            return await self._commit_with_text(original, offsets)
        except RebalanceInProgressError as error:
            raise _CommitRefusedError(*error.args) from error

    async def _commit_with_text(self, original: Callable[..., Any], offsets: Mapping[Any, Any]) -> Any:
        """Commit; from the first time that the broker refuses the text, without it."""
        generation = self._coordinator._generation  # noqa: SLF001
        try:
            return await original(_Offsets(_with_text(offsets, self._commit_text()), generation))
        except OffsetMetadataTooLargeError:
            self._commit_text = str
            return await original(_Offsets(_with_text(offsets, ""), generation))

    def _handle_commit_response(
        self, original: Callable[..., Any], offsets: Any, send_time: float, response: Any
    ) -> Any:
        """Keep the membership if the group's next generation, which this member joins, refused a commit."""
        codes = {code for _, partitions in response.topics for _, code in partitions}
        current = self._coordinator._generation  # noqa: SLF001
        is_joining = self._join.is_running or getattr(offsets, "generation", current) != current
        is_refused = IllegalGenerationError.errno in codes and is_joining
        if is_refused or RebalanceInProgressError.errno in codes:
            raise RebalanceInProgressError
        return original(offsets, send_time, response)

    def _generation_if_stable(self, original: Callable[..., Any]) -> Any:
        """Return the generation to commit with: the broker accepts commits until it answers the join.

        From its answer to that of the sync it refuses them; after the sync the next generation commits.
        """
        found, current = original(), self._coordinator._generation  # noqa: SLF001
        commits = self._join.is_sent or self._join.is_finished
        return current if found is None and commits and not current.is_lost() else found

    def _coordinator_node(self, original: Callable[..., Any]) -> Any:
        """Return the coordinator's node id; during a join that of its broker's other connection.

        The broker reads nothing from a connection while it holds back the answer to a join or a sync.
        """
        node_id = original()
        known = self._cluster.broker_metadata(node_id)
        if known is None or not self._join.is_running:
            return node_id
        brokers = self._cluster.brokers()
        same = (each.node_id for each in brokers if (each.host, each.port) == (known.host, known.port))
        return next(same, node_id)

    async def _leave_group(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        coordinator = self._coordinator
        known = coordinator.coordinator_id
        coordinator.coordinator_id = coordinator.coordinator()
        try:
            await original(*args, **kwargs)
        finally:
            if coordinator.coordinator_id is not None:
                coordinator.coordinator_id = known

    def _is_stable(self, original: Callable[..., Any]) -> bool:
        """Return whether heartbeats are sent: also before a poll applies an assignment, as in Java."""
        return bool(original()) or self._join.is_finished

    async def _prepare_close(self, original: Callable[..., Any]) -> None:
        failed = await self._give_up_all() if self._all_lost else None
        await original()
        _raise_from(failed)

    def _reset_generation(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Reset the membership, and revoke all partitions before the next join, also during a join.

        kafka-python prepares once a join, even if the membership is lost during the join: old positions would
        be kept. Java's client prepares again (``needsJoinPrepare``).
        """
        self._last.lost()
        original(*args, **kwargs)
        self.mode = RebalanceProtocol.EAGER
        self._releasing = frozenset()
        if self._coordinator.rejoining and self._subscription.assigned_partitions():
            self._coordinator.rejoining = False

    def _handle_heartbeat_response(self, original: Callable[..., Any], *args: Any) -> None:
        """Make the next poll raise when another member took over this one's instance id, as Java's does.

        kafka-python only stops its heartbeats then: the application would continue with lost partitions.
        """
        try:
            original(*args)
        except FencedInstanceIdError:
            self._coordinator._async_commit_fenced = True  # noqa: SLF001
            raise
        except RebalanceInProgressError:
            # The flag that is set now is cleared when the assignment is applied that waits for a poll.
            self._rebalances_again = self._join.is_finished
            raise

    def _poll_heartbeat(self, original: Callable[..., Any]) -> None:
        """Rejoin when the heartbeats stopped: only a join restarts them in kafka-python."""
        try:
            original()
        except Exception:
            self._coordinator.request_rejoin()
            raise

    async def _ensure_coordinator_ready(
        self, original: Callable[..., Any], timeout_ms: float | None = None
    ) -> bool:
        """Retry the coordinator lookup until the timeout, whatever retriable error occurs.

        Otherwise a retriable error propagates out of ``poll()``: the restart of a broker would end the
        application.
        """
        timer = Timer(timeout_ms)
        while True:
            try:
                return bool(await original(timeout_ms=timer.timeout_ms))
            except RetriableError as error:
                _log.debug("looking for the coordinator goes on: %r", error)
                if timer.expired:
                    return False
                await self._coordinator._net.sleep(self._backoff_s)  # noqa: SLF001

    def _poll(self, original: Callable[..., Any], timeout_ms: float | None = None) -> bool:
        """Return whether records are returned; leave retriable errors to the next poll.

        As in Java (KIP-429), a join in flight does not hold back records of partitions that are kept.
        """
        self._note_processing()
        try:
            is_joined = bool(original(timeout_ms=timeout_ms))
            if is_joined and time.monotonic() < self._expects_until_s:
                time.sleep(min(_LOOK_AGAIN_S, math.inf if timeout_ms is None else timeout_ms / 1000))
                return False
            return is_joined or self._goes_on()
        except RetriableError as error:
            _log.debug("the group's part of a poll is tried again: %r", error)
            wait_s = self._backoff_s if timeout_ms is None else min(self._backoff_s, timeout_ms / 1000)
            time.sleep(wait_s)
            return False
        finally:
            self._last_poll_s = time.monotonic()

    def _goes_on(self) -> bool:
        """Do what kafka-python does after a join, and return True, if the join does not hold up the poll."""
        if not self._join.lets_polls_return:
            return False
        self._coordinator.poll_heartbeat()
        self._coordinator._maybe_auto_commit_offsets_async()  # noqa: SLF001
        return True

    def _note_processing(self) -> None:
        """Note the longest time between two polls, which counts half after ten seconds."""
        passed_s = time.monotonic() - self._last_poll_s
        # Not 0.5 to the power: Python raises OverflowError for a result too small to have all its digits.
        self._processing_s = max(passed_s, self._processing_s * math.exp2(-passed_s / _HALF_LIFE_S))

    def _patience_s(self) -> float:
        """Return how long this member's polls wait for a join: as long as it processed before.

        A member with long batches thus joins twice between two of them, if the others learn of the rebalance
        with their next heartbeats.
        """
        return min(self._processing_s, self._longest_patience_s)

    def _keeps_partitions(self) -> bool:
        """Return whether no other member can own this member's partitions before it has applied a join.

        Not while an assignor that ignores claims may be selected, and not after a loss.
        """
        if not self._is_cooperative or self._coordinator._generation.is_lost():  # noqa: SLF001
            return False
        held, subscribed = self.held(), self._subscription.subscription or ()
        return bool(held) and all(tp.topic in subscribed for tp in held)

    def _time_to_next_poll(self, original: Callable[..., Any]) -> float:
        """Return for how many seconds a poll may wait for records; kafka-python's is 0 during a join."""
        return _LOOK_AGAIN_S if self._join.is_running else float(original())

    def _set_protocol(self, protocol: RebalanceProtocol) -> None:
        self._coordinator._rebalance_protocol = protocol  # noqa: SLF001

    def _protocol_of(self, name: str) -> RebalanceProtocol:
        """Return the highest protocol of an assignor. kafka-python rejects an unknown one later."""
        assignor = self._coordinator._lookup_assignor(name)  # noqa: SLF001
        return RebalanceProtocol.EAGER if assignor is None else max(assignor.supported_protocols())


class _CommitRefusedError(RebalanceInProgressError, RetriableError):  # type: ignore[misc]  # no types
    """A rebalance refused a commit, which may succeed later."""


class _Offsets(dict[Any, Any]):
    """Offsets to commit, with the generation that commits them."""

    def __init__(self, offsets: Mapping[Any, Any], generation: Any) -> None:
        super().__init__(offsets)
        self.generation = generation


def _with_text(offsets: Mapping[Any, Any], text: str) -> dict[Any, Any]:
    """Return offsets with a text as their metadata, but where the application has its own.

    A position that no record has changed has the metadata of the commit that it was fetched with.
    """
    return {
        tp: offset._replace(metadata=text)
        if not offset.metadata or read_busy_time(offset.metadata)
        else offset
        for tp, offset in offsets.items()
    }


def _raise_from(failed: Exception | None) -> None:
    """Raise the listener's error to the application, as kafka-python does."""
    if failed is not None:
        raise KafkaError("the rebalance listener failed in on_partitions_lost") from failed


def _names(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in pairs)


class LastMembership:
    """The last membership of one consumer, which stays in its group metadata after a loss.

    coordinator, subscription: Those of the consumer; the coordinator's ``group_metadata`` is replaced.
    has_lost_all: Returns whether the partitions were lost although the membership continues.
    """

    def __init__(self, coordinator: Any, subscription: Any, has_lost_all: Callable[[], bool]) -> None:
        self._original = coordinator.group_metadata
        self._subscription = subscription
        self._has_lost_all = has_lost_all
        self._generation, self._member_id = -1, ""
        self._is_lost = False
        coordinator.group_metadata = self._group_metadata

    def joined(self, generation: int, member_id: str) -> None:
        """Record the coordinator's answer to a join."""
        if self._generation < 0:
            self._generation = generation
        if not self._is_lost:
            self._member_id = member_id

    def assigned(self, generation: int, member_id: str) -> None:
        """Record an assignment: from now on the current membership is shown again."""
        self._generation, self._member_id, self._is_lost = generation, member_id, False

    def lost(self) -> None:
        """Record that the membership ended."""
        self._is_lost = self._is_lost or bool(self._member_id)

    def _group_metadata(self) -> Any:
        """Return the group metadata; after a loss with the last generation, which the broker refuses."""
        current = self._original()
        # Partitions that the application assigned itself belong to no member.
        is_manual = self._subscription.subscription_type == SubscriptionType.USER_ASSIGNED
        if is_manual or not (self._is_lost or self._has_lost_all()):
            return current
        return current._replace(generation_id=self._generation, member_id=self._member_id)
