"""The client with the oldest and the newest of Kafka's clients, and on a newer Java."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.hints import Cluster
from tests.support.java_client.group import JavaGroup
from tests.support.java_client.groups import disagreements
from tests.support.java_client.harness import OLDEST, ClientHarness

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.brokers import Brokers

pytestmark = [pytest.mark.broker, pytest.mark.soak]


def newest_java() -> str | None:
    """Return the newest Java of this machine beside the one on the path."""
    found = []
    for java in Path("/usr/lib/jvm").glob("*/bin/java"):
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        number = answer.partition('version "')[2].partition(".")[0].strip('"')
        if number.isdigit() and int(number) > 17:
            found.append((int(number), str(java)))
    return max(found)[1] if found else None


@pytest.mark.parametrize("kafka", [OLDEST, "3.9", "4.4"])
def test_the_client_works_with_another_version_of_kafkas_client(
    broker: Brokers, client_jar: Path, tmp_path: Path, unique: Callable[[str], str], kafka: str
) -> None:
    check(broker, client_jar, tmp_path, unique, kafka=kafka)


def test_the_client_works_on_a_newer_java(
    broker: Brokers, client_jar: Path, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    java = newest_java()
    if java is None:
        pytest.skip("no newer Java is installed in /usr/lib/jvm")
    check(broker, client_jar, tmp_path, unique, java=java)


def check(
    broker: Brokers,
    client_jar: Path,
    tmp_path: Path,
    unique: Callable[[str], str],
    *,
    kafka: str | None = None,
    java: str | None = None,
) -> None:
    """Compare random groups with Python, and let a group follow a hint."""
    with (
        ClientHarness(client_jar, tmp_path, kafka=kafka, java=java) as harness,
        Cluster(
            broker, group_id=unique("group"), topics={unique("orders"): 4}, hint_topic=unique("hints")
        ) as cluster,
        JavaGroup(harness, cluster) as group,
    ):
        reasons: Counter[str] = Counter()
        assert list(disagreements(harness, 200, 7, reasons)) == []
        group.start_java("a", "b")
        group.settle()
        group.wait_for_count("ReadyTotal", 1)
        plan = {"a": [0, 1, 2], "b": [3]}
        group.publish(plan)
        group.wait_for_count("ReceivedTotal", 1)
        group.rebalance("a")
        group.wait_for(plan)
