"""Requests to many brokers side by side, so that a slow one holds up nobody but itself.

kafka-python's admin client asks brokers one after another and fails as a whole when one of them does not
answer. Here each broker has a lane of its own: its requests go one at a time, each with its own time and a
few repeats, and a broker that has failed too often is left alone for the rest of the reading.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from evenlag.kafka.rate_limit import Deadline, RequestBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenlag.kafka.rate_limit import ReadingLimits

MAX_ATTEMPTS: Final = 3
_FIRST_BACKOFF_S: Final = 0.2
# A broker that throttles us, or a connection just lost: looked at again after this.
_NOT_READY_S: Final = 0.1
TIME_IS_OVER: Final = "the time for this reading is over"


@dataclass(frozen=True, slots=True)
class Call:
    """A request to one broker.

    Attributes
    ----------
    node_id
        The broker; None: any one will do.
    make
        Makes the request, anew for each attempt.
    """

    node_id: int | None
    make: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a call.

    Attributes
    ----------
    response
        kafka-python's decoded response; None when there is none.
    error
        Why there is none, else None.
    at
        When it was known.
    failed_node
        The broker that did not answer; None when there is an answer, or the fault is not a broker's.
    """

    response: Any
    error: str | None
    at: datetime
    failed_node: int | None = None


class BrokerCalls:
    """Sends calls through one admin client and keeps account of brokers that do not answer.

    Parameters
    ----------
    client
        A ``KafkaAdminClient``.
    budget
        Each request that is sent, repeats included, is taken from it.
    deadline
        When it is over, what has not been asked yet is not asked any more.
    timeout_s
        How long one request may take, connecting included.
    max_failures
        How often a broker may not answer before it is left alone.
    broken
        Brokers that are left alone from the beginning, and why.
    """

    def __init__(
        self,
        client: Any,
        *,
        budget: RequestBudget,
        deadline: Deadline,
        timeout_s: float,
        max_failures: int,
        broken: Mapping[int, str] | None = None,
    ) -> None:
        # There is no public way to send a message of one's own, nor to send to many brokers at once.
        self._manager = client._manager  # noqa: SLF001
        self._budget = budget
        self._deadline = deadline
        self._timeout_s = timeout_s
        self._max_failures = max_failures
        self._failures: Counter[int] = Counter()
        # Jitter, nothing secret.
        self._random = random.Random()  # noqa: S311
        self.broken: dict[int, str] = dict(broken or {})

    @classmethod
    def within(
        cls,
        client: Any,
        limits: ReadingLimits,
        *,
        budget: RequestBudget | None = None,
        broken: Mapping[int, str] | None = None,
    ) -> BrokerCalls:
        """Make calls within limits, whose time begins now; with a budget of their own unless one is given."""
        return cls(
            client,
            budget=budget or RequestBudget(limits.requests_per_s),
            deadline=Deadline(limits.deadline_s),
            timeout_s=limits.request_timeout_s,
            max_failures=limits.max_broker_failures,
            broken=broken,
        )

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Make calls: of one broker one after another, of different brokers side by side.

        Returns
        -------
        list of Answer
            In the order of the calls. A broker's fault is an answer, never an exception.
        """
        if not calls:
            return []
        answers: list[Answer] = self._manager.run(self._run, calls)
        return answers

    def ask_any(self, make: Callable[[], Any]) -> Any:
        """Ask any broker.

        Raises
        ------
        kafka.errors.KafkaConnectionError
            When none answers.
        """
        import kafka.errors

        (answer,) = self.run([Call(None, make)])
        if answer.error is not None:
            raise kafka.errors.KafkaConnectionError(answer.error)
        return answer.response

    def brokers(self) -> list[int]:
        """Ids of the cluster's brokers, in order."""
        return sorted(broker.node_id for broker in self._manager.cluster.brokers())

    def api_version(self, request: Any) -> int:
        """The newest version of a request that the first broker and kafka-python both know."""
        return int(self._manager.broker_version_data.api_version(request))

    def pause(self, attempt: int) -> None:
        """Wait before asking again about what was answered with "not now", the longer the later."""
        self._manager.run(self._wait, self._backoff_s(attempt))

    def name_of(self, node_id: int) -> str:
        """A broker as people know it."""
        broker = self._manager.cluster.broker_metadata(node_id)
        return f"broker {node_id}" if broker is None else f"broker {node_id} ({broker.host}:{broker.port})"

    # On kafka-python's I/O thread -------------------------------------------------------------------------

    async def _run(self, calls: Sequence[Call]) -> list[Answer]:
        lanes: dict[int | None, list[int]] = defaultdict(list)
        for number, call in enumerate(calls):
            lanes[call.node_id].append(number)
        answers: dict[int, Answer] = {}
        running = [
            self._manager.call_soon(self._run_lane, calls, numbers, answers) for numbers in lanes.values()
        ]
        for lane in running:
            await lane
        return [answers[number] for number in range(len(calls))]

    async def _run_lane(
        self, calls: Sequence[Call], numbers: Iterable[int], answers: dict[int, Answer]
    ) -> None:
        for number in numbers:
            answers[number] = await self._answer(calls[number])

    async def _answer(self, call: Call) -> Answer:
        import kafka.errors

        error, node = "no broker is left to be asked", call.node_id
        for attempt in range(MAX_ATTEMPTS):
            node = self._any_node() if call.node_id is None else call.node_id
            if node is None:
                break
            if node in self.broken:
                return Answer(None, self.broken[node], _now(), node)
            if attempt:
                await self._wait(self._backoff_s(attempt))
            if self._deadline.is_over:
                return Answer(None, TIME_IS_OVER, _now())
            try:
                return Answer(await self._send(call, node), None, _now())
            except _no_answer_errors() as raised:
                error = self._note_failure(node, raised)
            except kafka.errors.KafkaError as raised:
                return Answer(None, _told(raised), _now())
        return Answer(None, error, _now(), node)

    async def _send(self, call: Call, node: int) -> Any:
        import kafka.errors

        if (delay := self._budget.take()) > 0:
            self._deadline.extend(min(delay, self._budget.interval_s))
            await self._wait(delay)
        ends_in = min(self._timeout_s, max(self._deadline.left_s, _NOT_READY_S))
        waited = 0.0
        while True:
            timeout_ms = 1000 * (ends_in - waited)
            try:
                sent = self._manager.send(call.make(), node_id=node, request_timeout_ms=timeout_ms)
                return await self._manager.wait_for(sent, timeout_ms)
            except kafka.errors.NodeNotReadyError:
                # It was not sent: the broker throttles us, or its connection was lost a moment ago.
                pause = max(_NOT_READY_S, self._manager.connection_delay(node))
                if waited + pause >= ends_in:
                    raise
                waited += pause
                await self._wait(pause)
            except kafka.errors.KafkaTimeoutError:
                # While a connection is being made, kafka-python would send what we no longer wait for.
                self._manager.close(node)
                raise

    def _note_failure(self, node: int, error: Exception) -> str:
        self._failures[node] += 1
        message = f"{self.name_of(node)} did not answer: {_told(error)}"
        if self._failures[node] >= self._max_failures:
            self.broken[node] = message
        return message

    def _any_node(self) -> int | None:
        nodes = [node for node in self.brokers() if node not in self.broken]
        if not nodes:
            return None
        fewest = min(self._failures[node] for node in nodes)
        return self._random.choice([node for node in nodes if self._failures[node] == fewest])

    def _backoff_s(self, attempt: int) -> float:
        return float(_FIRST_BACKOFF_S * 2**attempt * self._random.uniform(0.5, 1.5))

    async def _wait(self, seconds: float) -> None:
        await self._manager._net.sleep(seconds)  # noqa: SLF001 - as above


def _no_answer_errors() -> tuple[type[Exception], ...]:
    """What kafka-python raises when a broker is not there, or not in time."""
    import kafka.errors

    return (
        kafka.errors.KafkaConnectionError,
        kafka.errors.KafkaTimeoutError,
        kafka.errors.RequestTimedOutError,
        kafka.errors.NodeNotReadyError,
        kafka.errors.Cancelled,
        OSError,
    )


def _told(error: Exception) -> str:
    """An error in one line; kafka-python's begin with their names themselves."""
    name, text = type(error).__name__, str(error)
    return (text if text.startswith(name) else f"{name}: {text}")[:300]


def _now() -> datetime:
    return datetime.now(UTC)
