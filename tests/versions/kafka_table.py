"""Run the suites on each version of Kafka and record the result: ``python -m tests.versions.kafka_table``.

It writes ``docs/bench/kafka_versions.json`` and the table in ``docs/versions.md``. ``--kafka 3.9`` runs one
version and keeps the record of the others; ``--suite doctor`` runs one column.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.versions.suites import KAFKAS, ROOT, SUITES, run

RECORD: Final = ROOT / "docs" / "bench" / "kafka_versions.json"
PAGE: Final = ROOT / "docs" / "versions.md"
_TABLE: Final = re.compile(r"(?<=<!-- kafka versions -->\n).*?(?=<!-- end -->)", re.DOTALL)


def release(kafka: str) -> str:
    """Return the release of a version, as the sandbox fetches it: ``3.9`` → ``3.9.2``."""
    found = re.findall(
        rf'name="kafka_2\.13" rev="({re.escape(kafka)}\.\d+)"',
        (ROOT / "sandbox" / "ivy.xml").read_text("utf-8"),
    )
    return str(found[0])


def table(record: dict[str, Any]) -> str:
    """Return the table of a record in Markdown."""
    head = f"| Kafka | {' | '.join(suite.title for suite in SUITES.values())} |"
    rows = [
        f"| {release(kafka)} | {' | '.join(_cell(record, kafka, name) for name in SUITES)} |"
        for kafka in KAFKAS
    ]
    return "\n".join([head, "| --- " * (1 + len(SUITES)) + "|", *rows]) + "\n"


def _cell(record: dict[str, Any], kafka: str, name: str) -> str:
    if kafka < SUITES[name].oldest:
        return f"from {SUITES[name].oldest}"
    counts = record.get(kafka, {}).get(name)
    if counts is None:
        return "not run"
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    failed = f", **{counts['failed']} failed**" if counts["failed"] else ""
    return f"{counts['passed']} passed{skipped}{failed}"


def main() -> int:
    """Run what is asked for; the exit code is 1 if a test failed."""
    parser = argparse.ArgumentParser(description="Run the suites on each version of Kafka, and record it.")
    parser.add_argument("--kafka", action="append", choices=KAFKAS)
    parser.add_argument("--suite", action="append", choices=list(SUITES))
    asked = parser.parse_args()
    record: dict[str, Any] = json.loads(RECORD.read_text("utf-8")) if RECORD.is_file() else {}
    num_failed = 0
    for kafka in asked.kafka or KAFKAS:
        for name in asked.suite or SUITES:
            if kafka < SUITES[name].oldest:
                continue
            with tempfile.TemporaryDirectory(prefix="evenlag-versions-") as folder:
                counts, output = run(SUITES[name], kafka, Path(folder))
            sys.stdout.write(f"{kafka} {name}: {counts}\n{output if counts.failed else ''}")
            sys.stdout.flush()
            num_failed += counts.failed
            record.setdefault(kafka, {})[name] = {
                "passed": counts.passed,
                "skipped": counts.skipped,
                "failed": counts.failed,
            }
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
    PAGE.write_text(_TABLE.sub(lambda _: table(record), PAGE.read_text("utf-8")), "utf-8")
    return 1 if num_failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
