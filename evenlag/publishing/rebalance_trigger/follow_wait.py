"""Wait until groups follow their hints, and make those rebalance that do not.

The wait is limited in time, and nothing in it can fail a publishing: the hints are on the topic, and are read
when the group rebalances next.
"""

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any, ClassVar, Final

from assignor_core.hint import HintPayload
from evenlag.enums import REBALANCING_STATES, GroupType
from evenlag.errors import JobError
from evenlag.kafka.connection import kafka_errors, request_limits
from evenlag.kafka.live_groups import LiveGroup, read_live_groups
from evenlag.logging_setup import named_logger
from evenlag.policy.cluster_settings import ClusterSettings

_LOG = named_logger(__name__)
_AT_ONCE: Final = 8
_MIN_READ_S: Final = 5.0
_LOOK_EVERY_S: Final = 1.0
# Between the looks of the first ten seconds: in this time groups follow.
_FIRST_PAUSES_S: Final = (0.125, 0.125, *39 * (0.25,))


@dataclass(slots=True)
class FollowCost:
    """What a wait saw of a group; Kafka describes no members of a group that rebalances, and no generation.

    followed_at: When the group was first seen to follow; None if it was not, or did at the first look.
    rebalancing_s: How long the group rebalanced, by the looks.
    """

    followed_at: datetime | None = None
    rebalancing_s: float = 0.0
    num_triggers: int = 0


def is_taken_up(payload: HintPayload, group: LiveGroup) -> bool:
    """Whether every hinted member of a group has exactly its hinted partitions, or these as target."""

    def numbers_of(held: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        return {topic: sorted(numbers) for topic, numbers in held.items() if len(numbers)}

    wanted = {key: numbers_of(by_topic) for key, by_topic in payload.assignment.items()}
    return all(numbers_of(group.held.get(key, {})) == numbers for key, numbers in wanted.items() if numbers)


@dataclass(slots=True)
class _Progress:
    """What is known about a group between two looks; it has looked like `last` since `same_since`."""

    last: LiveGroup | None = None
    same_since: float = field(default=float("inf"))
    num_asks: int = 0
    asked_at: float = field(default=float("-inf"))


class FollowWait(ABC):
    """The groups that do not follow their hints yet, each with the reason; errors are reasons, too.

    quiet_s: A group is asked when it has looked the same for this long.
    settle_s: How long after a request the group may still begin to follow.
    """

    group_type: ClassVar[GroupType]
    first_reason: ClassVar[str]
    asked_reason: ClassVar[str]
    last_reason: ClassVar[str]
    max_asks: ClassVar[int]
    settle_s: ClassVar[float]
    ask_timeout_s: ClassVar[float] = float("inf")
    quiet_s: float = 0.0

    def __init__(
        self, client: Any, cluster: ClusterSettings, payloads: Mapping[str, HintPayload], deadline: float
    ) -> None:
        self.client, self.cluster, self.payloads, self.deadline = client, cluster, payloads, deadline
        self.reasons = dict.fromkeys(sorted(payloads), self.first_reason)
        self.left = list(self.reasons)
        self.costs = {group_id: FollowCost() for group_id in self.reasons}
        self._progress: dict[str, _Progress] = defaultdict(_Progress)
        self._looked_at: float | None = None
        self._is_first_look = True

    @abstractmethod
    def ask(self, group_id: str, timeout_s: float) -> None:
        """Make a group rebalance; called on several threads."""

    @abstractmethod
    def why_never(self, payload: HintPayload, group: LiveGroup) -> str | None:
        """Why a group that could be read cannot follow any more; None if it can."""

    def why_wait(self, _payload: HintPayload, _group: LiveGroup) -> str | None:
        """Why a group that could be read is not asked at this moment; None if it may be."""
        return None

    def finish(self, costs: dict[str, FollowCost] | None = None) -> dict[str, str]:
        """Wait until all groups follow or the time is over; return the reasons of those that do not."""
        if costs is not None:
            costs.update(self.costs)
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the hints are published, whatever fails here
            _LOG.exception("groups could not be asked")
            self._give_up(f"unexpected {type(error).__name__}: {error}")
        for group_id, reason in sorted(self.reasons.items()):
            _LOG.warning("hint not taken up so far: %s", reason, extra={"group_id": group_id})
        return self.reasons

    def _run(self) -> None:
        pauses = chain(_FIRST_PAUSES_S, repeat(_LOOK_EVERY_S))
        # Groups are read before any is joined: that would create a missing one, or change its protocol.
        while True:
            if due := self._look():
                self._ask(due)
            if not self.left or time.monotonic() >= self.deadline:
                return
            time.sleep(next(pauses))

    def _look(self) -> list[str]:
        """Remove the groups that follow, or never will; return those that are to be asked now."""
        live = self._read_groups()
        if live is None:
            return []
        now, due = time.monotonic(), []
        for group_id in list(self.left):
            group, payload, progress = live[group_id], self.payloads[group_id], self._progress[group_id]
            last, progress.last = progress.last, group
            if last is None or (last.state, last.held) != (group.state, group.held):
                progress.same_since = now
            is_over = now >= progress.asked_at + self.settle_s
            if is_taken_up(payload, group):
                self._note_followed(group_id)
            elif group.error is not None:
                self.reasons[group_id] = f"its members cannot be read: {group.error}"
            elif final := self.why_never(payload, group):
                self._drop(group_id, final)
            elif waits := self.why_wait(payload, group):
                self.reasons[group_id] = waits
            elif is_over and progress.num_asks == self.max_asks:
                self._drop(group_id, self.last_reason)
            elif is_over and now - progress.same_since >= self.quiet_s:
                due.append(group_id)
        return due

    def _ask(self, due: Sequence[str]) -> None:
        def attempt(group_id: str) -> str | None:
            left_s = min(self.ask_timeout_s, self.deadline - time.monotonic())
            if left_s <= 0:
                return self.reasons[group_id]
            try:
                self.ask(group_id, left_s)
            except JobError as error:
                return str(error)
            self.costs[group_id].num_triggers += 1
            return None

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            refusals = list(pool.map(attempt, due))
        for group_id, refusal in zip(due, refusals, strict=True):
            progress = self._progress[group_id]
            # A refused request counts too: what refuses one (a full group, a missing right) stays.
            progress.num_asks += 1
            progress.asked_at, progress.last = time.monotonic(), None
            self.reasons[group_id] = refusal or self.asked_reason
            if refusal is not None and progress.num_asks == self.max_asks:
                self.left.remove(group_id)

    def _note_followed(self, group_id: str) -> None:
        self.left.remove(group_id)
        del self.reasons[group_id]
        if not self._is_first_look:
            self.costs[group_id].followed_at = datetime.now(UTC)

    def _drop(self, group_id: str, reason: str) -> None:
        self.left.remove(group_id)
        self.reasons[group_id] = reason

    def _give_up(self, reason: str) -> None:
        self.reasons |= dict.fromkeys(self.left, reason)
        self.left = []

    def _read_groups(self) -> dict[str, LiveGroup] | None:
        """Describe the groups that are left; None after an error, by which the wait is over."""
        limits = request_limits(self.cluster)
        left_s = max(_MIN_READ_S, self.deadline - time.monotonic())
        limits = replace(limits, deadline_s=left_s, request_timeout_s=min(limits.request_timeout_s, left_s))
        ignored = frozenset({self.cluster.hint_topic})
        try:
            with kafka_errors(self.cluster):
                live = read_live_groups(
                    self.client, dict.fromkeys(self.left, self.group_type), limits, ignored
                )
        except JobError as error:
            self._give_up(f"its members cannot be read: {error}")
            return None
        last, self._looked_at = self._looked_at, time.monotonic()
        self._is_first_look = last is None
        for group_id, group in live.items():
            if last is not None and group.state in REBALANCING_STATES:
                self.costs[group_id].rebalancing_s += self._looked_at - last
        return live
