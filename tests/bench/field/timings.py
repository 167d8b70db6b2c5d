"""What rebalances cost each client, drawn within the measured spread.

Measured (``docs/bench/following.json``, ``python -m tests.bench.following``; Kafka's defaults): the time
until a hint is followed and until a new process has its share, the stop of partitions that stay, and the time
without an owner of those that move. Not measured, and from Kafka's documented intervals: members learn of a
rebalance by a heartbeat (``heartbeat.interval.ms`` 3 s, ``group.consumer.heartbeat.interval.ms`` 5 s), so
that a leaver's partitions wait for the last of them, and an eager group stops from each member's heartbeat to
the last one's. A static member that does not come back is removed after ``session.timeout.ms``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.lag.arrays import Floats

FOLLOWING: Final = Path(__file__).resolve().parents[3] / "docs" / "bench" / "following.json"
SESSION_TIMEOUT_S: Final = 45.0
# From the first member's answer to the assignment: join, sync and the leader's assignor.
SYNC_S: Final = 0.1
_BURST: Final = FOLLOWING.with_name("burst.json")
_AIRFLOW: Final = FOLLOWING.with_name("airflow_cycle.json")


class Spread(NamedTuple):
    """A measured range: half of the draws are below the median, evenly down to the least."""

    least: float
    median: float
    largest: float

    def draw(self, chance: np.random.Generator) -> float:
        """Return one value."""
        ends = (self.least, self.median) if chance.random() < 0.5 else (self.median, self.largest)
        return float(chance.uniform(*ends))


# From the creation of a pod until its process starts, its image on the node: Kubernetes' objective is 5 s for
# 99 % (github.com/kubernetes/community, sig-scalability/slos/pod_startup_latency.md).
POD_START: Final = Spread(1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one rebalance costs a cooperative group, in seconds.

    follow: From the hint, or from the start of a joining process, until all partitions are processed again.
    stop: Of partitions that stay.
    unowned: Of each partition that moves, within `follow`.
    rebalances: Generations, or epochs, that it takes.
    """

    follow: Spread
    stop: Spread
    unowned: Spread
    rebalances: Spread


@dataclass(frozen=True, slots=True)
class Client:
    """A consumer client: costs of a followed hint and of a member that joins.

    start: From the start of a process until it first joins or, as a known static member, fetches.
    """

    follow: Cost
    join: Cost
    heartbeat_s: float
    start: Spread

    def heartbeats(self, chance: np.random.Generator, num_members: int) -> Floats:
        """Return when each member next learns of a rebalance, seconds from its beginning."""
        return chance.uniform(0.0, self.heartbeat_s, num_members)


# A JVM with Kafka's client, or Python with a client, on two busy cores: the fastest measured join less what
# its two rebalances take at least (the least time in which a hint is followed).
_START: Final = Spread(0.8, 1.5, 2.5)
_HEARTBEATS: Final = {"java": 3.0, "kafka_python": 3.0, "kip848": 5.0}


@cache
def clients() -> Mapping[str, Client]:
    """Return the clients by the names of the measurements; ``kip848`` is librdkafka."""
    rows = json.loads(FOLLOWING.read_text(encoding="utf-8"))

    def cost(name: str) -> Cost:
        fields = ("follow_s", "longest_stop_s", "unowned_s_per_move", "rebalances")
        return Cost(*(Spread(**rows[name][field]) for field in fields))

    return {
        name: Client(cost(name), cost(f"{name}_join"), heartbeat_s, _START)
        for name, heartbeat_s in _HEARTBEATS.items()
    }


@cache
def watched_cycle_s() -> Floats:
    """Return measured times of cycles of ``evenlag run --watch``, from the snapshot to the published hint."""
    bursts = json.loads(_BURST.read_text(encoding="utf-8"))["kafka-python every 60 s"]["bursts"]
    return np.unique([burst["cycle_until_published_s"] for burst in bursts])


@cache
def airflow_cycle_s() -> Floats:
    """Return the same of cycles through Airflow by a Spark Connect server."""
    runs = json.loads(_AIRFLOW.read_text(encoding="utf-8"))["connect"]["runs"]
    return np.array([run["seconds"] - run["tasks"]["report"] for run in runs])
