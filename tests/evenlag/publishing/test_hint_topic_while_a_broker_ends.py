"""The publisher asks for the hint topic again while its client still chooses a broker that has ended."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import ClusterAuthorizationFailedError, KafkaConnectionError

from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.writing.topic_settings import ensure_hint_topic

SETTINGS = ClusterSettings(bootstrap_servers=("a:1", "b:1", "c:1"), hint_topic="hints")


class Client:
    """An admin client whose first requests go to a broker that has ended: no real one does so reliably."""

    def __init__(self, num_failures: int, error: Exception | None = None) -> None:
        self.num_requests, self._num_failures = 0, num_failures
        self._error = error or KafkaConnectionError("111 ECONNREFUSED")

    def list_topics(self) -> list[str]:
        self.num_requests += 1
        if self.num_requests <= self._num_failures:
            raise self._error
        return ["hints"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock: a pause passes at once."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    module = "evenlag.publishing.writing.topic_settings"
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


def test_a_request_to_a_broker_that_has_ended_is_repeated(clock: list[float]) -> None:
    client: Any = Client(num_failures=3)
    ensure_hint_topic(client, SETTINGS, is_checked=False)
    assert client.num_requests == 4
    assert clock[0] < 2


def test_where_nobody_answers_the_error_comes_after_some_seconds(clock: list[float]) -> None:
    client: Any = Client(num_failures=10_000)
    with pytest.raises(KafkaConnectionError):
        ensure_hint_topic(client, SETTINGS, is_checked=False)
    assert 15 <= clock[0] < 16


def test_another_error_is_not_repeated(clock: list[float]) -> None:
    client: Any = Client(1, ClusterAuthorizationFailedError())
    with pytest.raises(ClusterAuthorizationFailedError):
        ensure_hint_topic(client, SETTINGS, is_checked=False)
    assert (client.num_requests, clock) == (1, [0.0])
