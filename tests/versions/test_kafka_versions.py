"""evenlag works with brokers of other versions: the oldest in every run, the others in `make soak`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from sandbox.kafka.broker import BrokerError, default_version
from tests.versions.kafka_table import PAGE, RECORD, table
from tests.versions.suites import KAFKAS, QUICK, SUITES, run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.extended


@pytest.mark.broker
def test_the_oldest_kafka_is_read_checked_and_followed(tmp_path: Path) -> None:
    counts, output = run(QUICK, KAFKAS[0], tmp_path)
    assert (counts.passed, counts.failed, counts.skipped) == (len(QUICK.files), 0, 0), output


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kafka", "name"),
    [(kafka, name) for kafka in KAFKAS for name, suite in SUITES.items() if kafka >= suite.oldest],
)
def test_each_part_on_each_kafka(tmp_path: Path, kafka: str, name: str) -> None:
    counts, output = run(SUITES[name], kafka, tmp_path)
    assert counts.failed == 0, output
    assert counts.passed > 0


def test_the_page_has_the_table_that_was_recorded() -> None:
    record = json.loads(RECORD.read_text("utf-8"))
    assert table(record) in PAGE.read_text("utf-8")
    cells = [(kafka, name, counts) for kafka, suites in record.items() for name, counts in suites.items()]
    assert [cell for cell in cells if cell[2]["failed"] or not cell[2]["passed"]] == []


def test_a_kafka_that_the_sandbox_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_KAFKA", "2.8")
    with pytest.raises(BrokerError, match=r"EVENLAG_KAFKA is '2\.8': the sandbox has Kafka 3\.9, 4\.0, "):
        default_version()
