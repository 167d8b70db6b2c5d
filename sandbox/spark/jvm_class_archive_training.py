"""Train Spark's class archive: ``python -m sandbox.spark.jvm_class_archive_training POLICY CLUSTER``."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any, Final

from evenlag.policy.loader import load_policy
from spark_jobs.runtime.classic_session import build_session
from spark_jobs.steps.decide import run_decide
from spark_jobs.steps.observe import run_observe

_JVM_END_TIMEOUT_S: Final = 120


def main(argv: list[str]) -> None:
    """Run two cycles in one session; the JVM writes the archive at its exit."""
    policy, cluster = argv
    loaded = load_policy(policy)
    spark = build_session("evenlag training")
    for number in range(2):
        slot = datetime.now(UTC)
        run_observe(spark, loaded, cluster, slot, f"training-{number}")
        run_decide(spark, loaded, cluster, slot, f"training-{number}")
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001  # only it has the JVM's process
    spark.stop()
    # The JVM writes the archive at its exit: wait for it longer than PySpark would.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_JVM_END_TIMEOUT_S)


if __name__ == "__main__":
    main(sys.argv[1:])
