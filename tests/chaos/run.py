"""The long storm: ``python -m tests.chaos.run [--seconds N] [--seed N]``; writes docs/bench/chaos.json."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from sandbox.kafka.broker import Broker
from tests.chaos.storm import Storm

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "chaos.json"


def main(argv: list[str]) -> int:
    """Run a storm with auto-creation of topics off and one with it on, and write the figures."""
    parser = argparse.ArgumentParser(prog="tests.chaos.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=240.0, help="how long each of the two storms lasts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the journals, to look at")
    parser.add_argument("--only", choices=["off", "on"], help="one of the two storms")
    arguments = parser.parse_args(argv)
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    status = 0
    for auto_create in (False, True):
        name = "on" if auto_create else "off"
        if arguments.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            directory = (arguments.keep or Path(temporary)) / f"auto-create-{name}"
            properties = {"auto.create.topics.enable": str(auto_create).lower()}
            directory.mkdir(parents=True, exist_ok=True)
            with Broker.start(directory / "node", properties=properties) as broker:
                storm = Storm(broker, directory / "journals", seed=arguments.seed, auto_create=auto_create)
                verdict = storm.run(arguments.seconds)
        for finding in verdict.findings:
            sys.stdout.write(f"{finding}\n")
        figures = {
            "seed": arguments.seed,
            "seconds": arguments.seconds,
            "consumers": storm.num_consumers,
            "findings": len(verdict.findings),
            **verdict.figures,
        }
        results[f"auto_create_{name}"] = figures
        sys.stdout.write(json.dumps(figures, indent=1) + "\n")
        status |= bool(verdict.findings)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
