"""Faults during a cycle on a Spark cluster: ``python -m tests.chaos.spark_faults [--tries N] [--seed N]``.

Drivers and workers are killed (SIGKILL) at random moments of ``observe`` and ``decide``, the broker while a
cluster is read. After each, and again after the next cycle, nothing may be half-visible; that cycle has to
plan and publish every group. What was seen goes to docs/bench/faults.json.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.processes import kill_process
from tests.chaos.spark_world import NUM_GROUPS, World, new_slot, say

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from datetime import datetime

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench" / "faults.json"
STEPS = ("observe", "decide")


@dataclass
class Faults:
    """Tries faults on a world and keeps what was seen."""

    world: World
    random: random.Random
    seen: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def measure(self) -> None:
        """Run both steps undisturbed: how long they take, and that the cluster works."""
        slot = new_slot()
        for step in STEPS:
            started = time.monotonic()
            status = self.world.finish(self.world.submit(step, slot))
            if status != 0:
                log = self.world.directory / "drivers.log"
                raise RuntimeError(f"undisturbed, {step} ended with {status}: {log}")
            self._seconds[step] = time.monotonic() - started
            say(f"{step}, undisturbed: {self._seconds[step]:.0f} s")

    def driver_killed(self, step: str) -> None:
        """Kill the driver, its JVM and its Python, somewhere in a step."""
        self._try(f"driver killed in {step}", step, kill_process)

    def worker_killed(self, step: str) -> None:
        """Kill a worker with its executor somewhere in a step; the other one goes on."""

        def kill(driver: subprocess.Popen[bytes]) -> int:
            self.world.cluster.kill_worker(self.random.choice(self.world.cluster.workers))
            return self.world.finish(driver)

        self._try(f"worker killed in {step}", step, kill)
        self.world.cluster.start_worker()
        self.world.cluster.wait_for_workers(2)

    def broker_down(self) -> None:
        """Kill the broker while it may be read, and start it again when the step has ended."""

        def kill(driver: subprocess.Popen[bytes]) -> int:
            self.world.broker.kill()
            try:
                return self.world.finish(driver)
            finally:
                self.world.broker.restart()
                self.world.wait_until_stable()

        self._try("broker down in observe", "observe", kill)

    def _try(self, fault: str, step: str, kill: Callable[[subprocess.Popen[bytes]], int]) -> None:
        slot = new_slot()
        if step == "decide":
            self.world.observe(slot)
        # From the JVM's start to just before the usual end.
        after_s = self._seconds[step] * self.random.uniform(0.2, 0.95)
        driver = self.world.submit(step, slot)
        time.sleep(after_s)
        was_running = driver.poll() is None
        status = kill(driver)
        entry = self._judge(slot, after_s, status, was_running=was_running)
        self.seen.setdefault(fault, []).append(entry)
        say(f"{fault}: {json.dumps(entry)}")

    def _judge(self, slot: datetime, after_s: float, status: int, *, was_running: bool) -> dict[str, Any]:
        found = self.world.violations()
        begun = self.world.tables_with(slot)
        following = self._next_cycle()
        found += self.world.violations()
        if following["published"] != NUM_GROUPS:
            found.append(f"the next cycle published {following['published']} of {NUM_GROUPS} groups")
        return {
            "after_s": round(after_s, 1),
            "was_running": was_running,
            "exit_code": status,
            "tables_begun": begun,
            "next_cycle": following,
            "violations": found,
        }

    def _next_cycle(self) -> dict[str, Any]:
        return self.world.cycle()


def main(argv: list[str] | None = None) -> int:
    """Try every fault, and write what was seen; status 1 when anything was half-visible."""
    parser = argparse.ArgumentParser(prog="tests.chaos.spark_faults", description=__doc__)
    parser.add_argument("--tries", type=int, default=3, help="of each fault in each step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for lake and logs, to look at")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        directory = arguments.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        with World(directory) as world:
            faults = Faults(world, random.Random(arguments.seed))  # noqa: S311 - when to kill is no secret
            faults.measure()
            for _ in range(arguments.tries):
                for step in STEPS:
                    faults.driver_killed(step)
                    faults.worker_killed(step)
                    keep("spark", faults.seen, arguments.seed)
                faults.broker_down()
                keep("spark", faults.seen, arguments.seed)
    return int(any(entry["violations"] for entries in faults.seen.values() for entry in entries))


def keep(kind: str, seen: dict[str, list[dict[str, Any]]], seed: int) -> None:
    """Write what was seen so far beside what other faults have left there."""
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    shown = {
        fault: {
            "tries": len(entries),
            "violations": sum(len(entry["violations"]) for entry in entries),
            "next_cycle_published_all": all(
                entry["next_cycle"]["published"] == NUM_GROUPS for entry in entries
            ),
            "seen": entries,
        }
        for fault, entries in seen.items()
    }
    results |= {kind: {"seed": seed, "groups": NUM_GROUPS, "faults": shown}}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
