"""Brokers without a policy are read as an empty policy would read them; mistakes in a call are one line."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from evenlag.cli.cluster_target import DEFAULT_CLUSTER, find_target
from evenlag.instant_lag.targets import brokers_target, policy_target

if TYPE_CHECKING:
    from tests.support.fixtures.command import Evenlag

SERVERS = "kafka-1:9092, kafka-2:9092"


@pytest.mark.parametrize("reset_policy", [None, "earliest", "by_duration:PT6H"])
def test_brokers_without_a_policy_have_the_defaults_of_a_policy(
    evenlag: Evenlag,  # noqa: ARG001  # an environment without settings
    reset_policy: str | None,
) -> None:
    found = find_target(SERVERS, None, None, reset_policy=reset_policy)
    of_policy = policy_target(found.loaded.policy, found.name)
    plain = brokers_target(DEFAULT_CLUSTER, SERVERS, reset_policy)
    # Somebody waits in front of a terminal: a wrong address is reported sooner.
    assert plain.client["bootstrap_timeout_ms"] < of_policy.client["bootstrap_timeout_ms"]
    assert {**plain.client, "bootstrap_timeout_ms": 15_000} == of_policy.client
    for name in ("name", "bootstrap_servers", "hint_topic", "limits"):
        assert getattr(plain, name) == getattr(of_policy, name), name
    rows = [{"client_id": "c", "client_host": "h"}]
    assert of_policy.pseudonymizer is not None
    assert of_policy.pseudonymizer.apply(rows) == rows
    # As executors get them.
    expected = pickle.loads(pickle.dumps(of_policy.settings_of("any"))).values()  # noqa: S301
    values = plain.settings_of("any").values()
    assert values == {name: expected[name] for name in values}
    assert {name: type(value) for name, value in values.items()} == {
        name: type(expected[name]) for name in values
    }
    assert plain.settings_of("any").capacity_of("pod-0") == 1.0
    assert plain.load_cluster().bootstrap_servers == of_policy.load_cluster().bootstrap_servers


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (("--watch",), 2, "--watch is for a running cluster"),
        (("--every", "5s"), 2, "--every is for a running cluster"),
        (("--reset-policy", "latest"), 2, "--reset-policy is for a running cluster"),
        (("-b", "a:1", "--every", "5s"), 2, "--every goes with --watch"),
        (("-b", "a:1", "--watch", "--every", "0"), 2, "is no interval"),
        (("-b", "a:1", "--lake", "l"), 2, "--lake is for the last snapshot"),
        (("-b", "a:1", "--config", "x.yaml"), 2, "not both"),
        (("-b", "a:1", "--watch", "--export", "x.csv"), 2, "leave --watch out"),
        (("-b", "kafka-1:99999"), 2, "kafka-1:99999"),
        (("--live",), 2, "which cluster?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_is_one_line(
    evenlag: Evenlag, arguments: tuple[str, ...], exit_code: int, message: str
) -> None:
    answer = evenlag("lag", *arguments)
    assert answer.exit_code == exit_code
    assert message in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stdout == ""


def test_a_cluster_that_does_not_answer_is_one_line(evenlag: Evenlag) -> None:
    answer = evenlag("lag", "-b", "127.0.0.1:1")
    assert answer.exit_code == 3
    assert "127.0.0.1:1 refuses connections" in answer.stderr
    assert "Traceback" not in answer.output
