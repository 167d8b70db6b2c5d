"""Which tests make up a cell of the table of Kafka versions, and how they run on a broker of one version."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from sandbox.jars import OTHER_KAFKAS, OWN_KAFKA

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
KAFKAS: Final = tuple(sorted((*OTHER_KAFKAS, OWN_KAFKA)))
_TIMEOUT_S: Final = 900
_MARKS: Final = "broker and not soak and not airflow"


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of one part of evenlag.

    title: Head of the column.
    oldest: First version of Kafka that has what the part needs.
    only: What ``-k`` selects; empty: all.
    has_spark: Whether tests that start Spark belong to it.
    """

    title: str
    files: tuple[str, ...]
    oldest: str = "3.9"
    only: str = ""
    has_spark: bool = False


SUITES: Final = {
    "snapshot": Suite("snapshots", ("tests/evenlag/kafka/test_cluster_reader.py",)),
    "publisher": Suite(
        "publisher",
        (
            "tests/evenlag/publishing/test_publish.py",
            "tests/evenlag/publishing/test_held_plans.py",
        ),
        only="not protocol",
        has_spark=True,
    ),
    "doctor": Suite("`doctor`", ("tests/evenlag/doctor/test_with_broker.py",)),
    "consumer": Suite(
        "consumer client",
        (
            "tests/evenlag/consumer/test_following_hints.py",
            "tests/evenlag/consumer/test_watcher.py",
            "tests/evenlag/consumer/test_broker_restart.py",
        ),
    ),
    "kip848": Suite(
        "groups of the consumer protocol", ("tests/evenlag/kafka/test_kip848_groups.py",), oldest="4.0"
    ),
    "plugin": Suite("broker plug-in", ("tests/broker_plugin/test_in_a_broker.py",), oldest="4.1"),
}
_READER: Final = "tests/evenlag/kafka/test_cluster_reader.py"
_FOLLOWING: Final = "tests/evenlag/consumer/test_following_hints.py"
QUICK: Final = Suite(
    "quick",
    (
        f"{_READER}::test_offsets_commits_and_members_of_a_live_group",
        f"{_READER}::test_reset_offsets_by_duration_are_those_of_the_records_times",
        "tests/evenlag/doctor/test_with_broker.py::test_a_cluster_over_tls_is_well_and_stays_as_it_is",
        "tests/evenlag/kafka/test_kip848_groups.py::test_a_group_that_is_not_there_is_an_error_of_its_own",
        f"{_FOLLOWING}::test_a_published_hint_is_followed_in_two_phases_and_nothing_is_read_twice",
    ),
)
"""What `make test` runs on the oldest version."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many tests of a suite ran, and how they ended."""

    passed: int
    skipped: int
    failed: int


def run(suite: Suite, kafka: str, folder: Path) -> tuple[Counts, str]:
    """Run a suite with brokers of one version in a process of its own; return its counts and its output."""
    marks = _MARKS if suite.has_spark else f"{_MARKS} and not jvm"
    report = folder / f"{kafka}.xml"
    selected = ("-k", suite.only) if suite.only else ()
    # The output's folder is new: pytest removes old ones of other runs.
    command = [
        *(sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-m", marks),
        *(f"--junitxml={report}", f"--basetemp={folder / 'pytest'}", *selected, *suite.files),
    ]
    done = _run(command, {"EVENLAG_KAFKA": kafka})
    if not report.is_file():
        return Counts(0, 0, 1), done
    totals = next(ET.parse(report).iter("testsuite")).attrib  # noqa: S314  # pytest wrote it
    failed = int(totals["failures"]) + int(totals["errors"])
    skipped = int(totals["skipped"])
    return Counts(int(totals["tests"]) - failed - skipped, skipped, failed), done


def _run(command: Sequence[str], variables: dict[str, str]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.stdout
