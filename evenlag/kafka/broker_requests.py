"""Concurrent requests to many brokers, so that a slow broker delays only its own requests.

kafka-python's admin client sends requests to brokers one after another, and fails as a whole when one broker
does not answer. Here each broker has its own queue: its requests are sent one at a time, each with its own
timeout and a few retries. A broker that fails too often is skipped for the rest of the snapshot.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import kafka.errors


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of one snapshot: requests over all brokers, the time of one request, and of all.

    max_broker_failures: Number of failures after which a broker is skipped.
    failover_s: How long to wait for the brokers that take over from one that fails, from its first failure;
        by default more than the 9 s after which a cluster replaces a broker that is gone.
    """

    requests_per_s: float = 100.0
    request_timeout_s: float = 30.0
    max_broker_failures: int = 3
    deadline_s: float = 120.0
    failover_s: float = 15.0


class RequestBudget:
    """A token bucket: in any ``t`` seconds at most ``requests_per_s * (t + 1)`` requests, and at least one.

    requests_per_s: Refill rate. The bucket's size is the requests of one second, at least one.
    num_requests: Number of requests taken.

    Examples
    --------
    >>> budget = RequestBudget(2, clock=lambda: 0.0)
    >>> [budget.take() for _ in range(4)]
    [0.0, 0.0, 0.5, 1.0]
    """

    def __init__(self, requests_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = requests_per_s
        self._size = max(requests_per_s, 1.0)
        self._tokens = self._size
        self._clock = clock
        self._seen_at = clock()
        self.num_requests = 0

    @property
    def interval_s(self) -> float:
        """Seconds between requests when the bucket is empty."""
        return 1.0 / self._rate

    def take(self) -> float:
        """Take one request from the budget."""
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._seen_at) * self._rate)
        self._seen_at = now
        self._tokens -= 1.0
        self.num_requests += 1
        return max(0.0, -self._tokens / self._rate)


class Deadline:
    """A time limit, so that one slow broker cannot block a run forever.

    seconds: Time until the deadline.
    clock: Monotonic clock in seconds.
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return self.left_s <= 0

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self._end - self._clock()

    def extend(self, seconds: float) -> None:
        """Extend the deadline: waits of the rate limit do not count."""
        self._end += seconds


class FailoverWindow:
    """The time in which other brokers may take over what a failing broker leads or coordinates.

    It opens with the first failure, and closes with the deadline.
    """

    def __init__(
        self, seconds: float, deadline: Deadline, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._deadline = deadline
        self._clock = clock
        self._since: float | None = None

    def begin(self) -> None:
        """Record a failure, or that a leader or a coordinator is moving; the first one opens the window."""
        if self._since is None:
            self._since = self._clock()

    @property
    def is_open(self) -> bool:
        """Whether there is a failure, and time to wait for its end."""
        if self._since is None or self._deadline.is_over:
            return False
        return self._clock() - self._since < self._seconds


MAX_ATTEMPTS: Final = 3
_FIRST_BACKOFF_S: Final = 0.2
_MAX_DOUBLINGS: Final = 3
# Wait before the next attempt when a broker throttles the client, or its connection was just lost.
_NOT_READY_S: Final = 0.1
TIME_IS_OVER: Final = "the time for this reading is over"


@dataclass(frozen=True, slots=True)
class Call:
    """A request to one broker.

    make: Builds the request. Called again for each attempt.
    """

    node_id: int | None
    make: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Batch:
    """A request to one broker about several groups; ``make`` builds it for some of their names."""

    node_id: int
    names: Sequence[str]
    make: Callable[[Sequence[str]], Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of a call: the decoded response, or why there is none.

    failed_node: Id of the broker that did not answer; None if the error is not a broker's.
    is_undecodable: Whether kafka-python cannot decode the response, or it is too large for it.
    """

    response: Any
    error: str | None
    at: datetime
    failed_node: int | None = None
    is_undecodable: bool = False


class BrokerCalls:
    """Sends calls through one admin client, and counts the failures of each broker.

    limits: The deadline begins now; after it no further request is sent.
    budget: Each request takes from it, retries included; None: a new one of ``limits.requests_per_s``.
    broken: Brokers to skip from the beginning, with the error.
    """

    def __init__(
        self,
        client: Any,
        limits: RequestLimits,
        *,
        budget: RequestBudget | None = None,
        broken: Mapping[int, str] | None = None,
    ) -> None:
        # kafka-python has no public API to send custom messages, or to send to many brokers at once.
        self._manager = client._manager  # noqa: SLF001
        self._budget = budget or RequestBudget(limits.requests_per_s)
        self._deadline = Deadline(limits.deadline_s)
        self._limits = limits
        self._failures: Counter[int] = Counter()
        self.failover = FailoverWindow(limits.failover_s, self._deadline)
        # For jitter and the choice of a broker: needs no cryptographic randomness.
        self._random = random.Random()  # noqa: S311
        self.broken: dict[int, str] = dict(broken or {})

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Send calls: one after another to one broker, concurrently to several. An error is an answer."""
        if not calls:
            return []
        answers: list[Answer] = self._manager.run(self._run, calls)
        return answers

    def run_batches(self, batches: Sequence[Batch]) -> list[tuple[Batch, Answer]]:
        """Send requests as :meth:`run`; one whose response cannot be decoded is sent again in halves."""
        done: list[tuple[Batch, Answer]] = []
        while batches:
            answers = self.run([Call(batch.node_id, partial(batch.make, batch.names)) for batch in batches])
            halves: list[Batch] = []
            for batch, answer in zip(batches, answers, strict=True):
                if answer.is_undecodable and len(batch.names) > 1:
                    middle = len(batch.names) // 2
                    parts = (batch.names[:middle], batch.names[middle:])
                    halves += [replace(batch, names=names) for names in parts]
                else:
                    done.append((batch, answer))
            batches = halves
        return done

    def ask_any(self, make: Callable[[], Any]) -> Any:
        """Send one request to any broker."""
        (answer,) = self.run([Call(None, make)])
        if answer.error is not None:
            raise kafka.errors.KafkaConnectionError(answer.error)
        return answer.response

    def brokers(self) -> list[int]:
        """Return the ids of the cluster's brokers, in order."""
        return sorted(broker.node_id for broker in self._manager.cluster.brokers())

    def api_version(self, request: Any) -> int:
        """Return the newest version of a request that both the first broker and kafka-python support."""
        return int(self._manager.broker_version_data.api_version(request))

    def rounds(self) -> Iterator[int]:
        """Yield the numbers of rounds of requests, with a pause before each repeat, until nothing is left.

        There are three, and more while brokers take over from one that fails.
        """
        yield 0
        attempt = 1
        while attempt < MAX_ATTEMPTS or self.failover.is_open:
            self.pause(attempt)
            yield attempt
            attempt += 1

    def pause(self, attempt: int) -> None:
        """Wait before a retry: exponential backoff with jitter."""
        self._manager.run(self._wait, self._backoff_s(attempt))

    def name_of(self, node_id: int) -> str:
        """Return a broker's name for messages."""
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
            except no_answer_errors() as raised:
                error = self._note_failure(node, raised)
            except kafka.errors.KafkaProtocolError as raised:
                return Answer(None, in_one_line(raised), _now(), is_undecodable=True)
            except kafka.errors.KafkaError as raised:
                return Answer(None, in_one_line(raised), _now())
        return Answer(None, error, _now(), node)

    async def _send(self, call: Call, node: int) -> Any:
        if (delay := self._budget.take()) > 0:
            self._deadline.extend(min(delay, self._budget.interval_s))
            await self._wait(delay)
        ends_in = min(self._limits.request_timeout_s, max(self._deadline.left_s, _NOT_READY_S))
        waited = 0.0
        while True:
            timeout_ms = 1000 * (ends_in - waited)
            try:
                sent = self._manager.send(call.make(), node_id=node, request_timeout_ms=timeout_ms)
                return await self._manager.wait_for(sent, timeout_ms)
            except kafka.errors.NodeNotReadyError:
                # Not sent: the broker throttles the client, or its connection was just lost.
                pause = max(_NOT_READY_S, self._manager.connection_delay(node))
                if waited + pause >= ends_in:
                    raise
                waited += pause
                await self._wait(pause)
            except kafka.errors.KafkaTimeoutError:
                # After connecting, kafka-python would still send a request whose result nobody awaits.
                self._manager.close(node)
                raise

    def _note_failure(self, node: int, error: Exception) -> str:
        self.failover.begin()
        self._failures[node] += 1
        message = f"{self.name_of(node)} did not answer: {in_one_line(error)}"
        if self._failures[node] >= self._limits.max_broker_failures:
            self.broken[node] = message
        return message

    def _any_node(self) -> int | None:
        nodes = [node for node in self.brokers() if node not in self.broken]
        if not nodes:
            return None
        fewest = min(self._failures[node] for node in nodes)
        return self._random.choice([node for node in nodes if self._failures[node] == fewest])

    def _backoff_s(self, attempt: int) -> float:
        return float(_FIRST_BACKOFF_S * 2 ** min(attempt, _MAX_DOUBLINGS) * self._random.uniform(0.5, 1.5))

    async def _wait(self, seconds: float) -> None:
        await self._manager._net.sleep(seconds)  # noqa: SLF001 - as above


def _now() -> datetime:
    return datetime.now(UTC)


_MAX_CHARACTERS = 300


def no_answer_errors() -> tuple[type[Exception], ...]:
    """Return kafka-python's errors of a broker that cannot be reached, or does not answer in time."""
    return (
        kafka.errors.KafkaConnectionError,
        kafka.errors.KafkaTimeoutError,
        kafka.errors.RequestTimedOutError,
        kafka.errors.NodeNotReadyError,
        kafka.errors.Cancelled,
        OSError,
    )


def in_one_line(error: Exception) -> str:
    """Return an error with its name; the text of kafka-python's errors already begins with their name."""
    name, text = type(error).__name__, str(error)
    return (text if text.startswith(name) else f"{name}: {text}")[:_MAX_CHARACTERS]
