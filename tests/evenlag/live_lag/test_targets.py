"""How a running cluster is read, by a policy or by its brokers alone; mistakes in a call are one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.cli.cluster_target import find_target
from evenlag.enums import Mode
from evenlag.live_lag.snapshot import policy_target

if TYPE_CHECKING:
    from tests.support.fixtures.command import Evenlag

SERVERS = "kafka-1:9092, kafka-2:9092"


@pytest.mark.parametrize("reset_policy", [None, "earliest", "by_duration:PT6H"])
def test_brokers_without_a_policy_have_its_defaults_and_report_a_wrong_address_sooner(
    evenlag: Evenlag,  # noqa: ARG001  # an environment without settings
    reset_policy: str | None,
) -> None:
    found = find_target(SERVERS, None, None, reset_policy=reset_policy)
    of_file = policy_target(found.loaded.policy, found.name)
    named = policy_target(found.loaded.policy, found.name, is_named=True)
    assert (of_file.client["bootstrap_timeout_ms"], named.client["bootstrap_timeout_ms"]) == (15_000, 5_000)
    assert named.settings.bootstrap_servers == ("kafka-1:9092", "kafka-2:9092")
    assert named.settings.hint_topic == "evenlag-hints"
    settings = named.settings_of("any")
    assert (settings.mode, settings.reset_policy) == (Mode.SHADOW, reset_policy)


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
