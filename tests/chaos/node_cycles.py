"""Cycles while nodes fail: ``python -m tests.chaos.node_cycles [--cycles N] [--seed N]``.

On a cluster of three nodes, cycles run one after the other while `tests.chaos.node_faults` goes on beside
them. Each group needs a plan in each cycle, so a cycle that makes fewer has lost them because of a broker. A
plan that was not published is held, and the next cycle publishes it or a newer one. What was seen goes to
docs/bench/chaos_plans.json.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from evenlag.errors import JobError
from tests.chaos.node_faults import NodeFaults
from tests.chaos.spark_world import CLUSTER, NUM_GROUPS, TOPIC, World, say
from tests.support.kafka_cluster import Cluster

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "chaos_plans.json"
HINT_TOPIC = "hints"


def run_cycles(world: World, faults: NodeFaults, least: int) -> list[dict[str, Any]]:
    """Run cycles until each kind of fault has happened, and at least so many."""
    seen: list[dict[str, Any]] = []
    while len(seen) < least or not faults.has_had_all:
        faults.check()
        entry = one_cycle(world)
        seen.append(entry)
        say(f"cycle {len(seen)}: {json.dumps(entry)}, faults so far: {dict(faults.counts)}")
    return seen


def one_cycle(world: World) -> dict[str, Any]:
    """Run a cycle; an error of evenlag is a cycle without plans."""
    started = time.monotonic()
    try:
        return world.cycle()
    except JobError as error:
        seconds = round(time.monotonic() - started, 1)
        return {"plans": 0, "approved": 0, "published": 0, "held": 0, "seconds": seconds, "error": str(error)}


def main(argv: list[str] | None = None) -> int:
    """Run the cycles, and write what was seen; status 1 when a plan was lost or something is half-visible."""
    parser = argparse.ArgumentParser(prog="tests.chaos.node_cycles", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20, help="at least so many")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    chance = random.Random(arguments.seed)  # noqa: S311  # repeatable, no secret
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        directory = Path(temporary)
        nodes = stack.enter_context(Cluster.start(directory / "nodes"))
        world = stack.enter_context(World(directory / "world", num_workers=0, brokers=nodes))
        # The first one creates the hint topic, and warms up.
        first = world.cycle()
        say(f"undisturbed: {json.dumps(first)}")
        faults = NodeFaults(
            nodes, chance, group_id="g0", topic=TOPIC, hint_topic=HINT_TOPIC, note=lambda *_, **__: None
        )
        with faults:
            seen = run_cycles(world, faults, arguments.cycles)
        faults.check()
        last = world.cycle()
        violations = world.violations()
    lost = sum(NUM_GROUPS - entry["plans"] for entry in seen)
    results = {
        "cluster": {"nodes": len(nodes.nodes), "policy_name": CLUSTER, "groups": NUM_GROUPS},
        "seed": arguments.seed,
        "faults": dict(sorted(faults.counts.items())),
        "cycles": len(seen),
        "plans": sum(entry["plans"] for entry in seen),
        "plans_lost_because_of_a_broker": lost,
        "published": sum(entry["published"] for entry in seen),
        "held_for_the_next_cycle": sum(entry["held"] for entry in seen),
        "published_by_the_cycle_after_the_faults": last["published"],
        "violations": violations,
        "longest_cycle_s": max(entry["seconds"] for entry in seen),
        "undisturbed_cycle_s": last["seconds"],
        "seen": seen,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    say(json.dumps({name: value for name, value in results.items() if name != "seen"}, indent=1))
    return int(bool(lost or violations or last["published"] != NUM_GROUPS))


if __name__ == "__main__":
    raise SystemExit(main())
