"""Mutated records in the plug-in's codec and in Python's: equal verdicts.

``python -m tests.support.broker_plugin.records --records 1000000`` compares that many.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox.kafka.jvm_jars import build_plugin
from tests.support.broker_plugin.harness import Harness, as_base64
from tests.support.records.mutations import (
    ACCEPTED,
    CLUSTER_ID,
    GROUP_ID,
    MASTER_KEY,
    MutatedRecord,
    mutated_records,
    verdict,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["compare", "verdicts_in_java"]

_BATCH = 1000
_DIGEST_DIGITS = 64


def verdicts_in_java(harness: Harness, records: Sequence[MutatedRecord]) -> list[str]:
    """Return ACCEPTED or the reason of each refusal."""
    values = [
        ["loads" if record.is_loads else "hint", record.is_signed, as_base64(record.value)]
        for record in records
    ]
    answer = harness.ask(
        "verdicts", group=GROUP_ID, cluster_id=CLUSTER_ID, master_keys=[MASTER_KEY], values=values
    )
    found: list[str] = answer["verdicts"]
    # What is accepted is named by its digest.
    return [ACCEPTED if len(each) == _DIGEST_DIGITS else each for each in found]


def compare(harness: Harness, number: int, seed: int) -> tuple[Counter[str], list[MutatedRecord]]:
    """Return how often each verdict was reached, and the records on which the two differ."""
    counts: Counter[str] = Counter()
    different: list[MutatedRecord] = []
    records = mutated_records(number, seed)
    while batch := list(islice(records, _BATCH)):
        for record, found in zip(batch, verdicts_in_java(harness, batch), strict=True):
            counts[found] += 1
            if verdict(record) != found:
                different.append(record)
    return counts, different


def main() -> int:
    """Compare, and return 1 if there is a difference."""
    parser = argparse.ArgumentParser(description="Compare the codecs of records in Java and in Python.")
    parser.add_argument("--records", type=int, default=1_000_000, help="number of mutated records")
    parser.add_argument("--seed", type=int, default=20, help="of the mutations")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "classes").mkdir()
        with Harness(build_plugin(folder), folder / "classes") as harness:
            counts, different = compare(harness, options.records, options.seed)
    for record in different[:5]:
        sys.stdout.write(f"{record}\n")
    sys.stdout.write(f"{dict(counts)}, {len(different)} different\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
