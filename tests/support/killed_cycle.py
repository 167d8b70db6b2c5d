"""Cycles that are killed (-9) right after the n-th write of one table: a program of the tests.

It reads a line of JSON for each, ``[policy file, cluster, slot, first step, table, n]``, runs it in a fork
of its own, and answers with the fork's status: a driver's imports are loaded already, so a death costs
seconds less. With the first step ``publish``, the publisher is killed between its hint and its event. The
driver attaches to the JVM of the tests' session, whose gateway is in the environment. What another of its
threads was writing may still be completed there, as in a driver that died a moment later.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evenlag.lake.writer import DirectWriter
from evenlag.policy.loader import load_policy
from evenlag.publishing import publish
from spark_jobs.runtime.delta_lake import Lake
from spark_jobs.steps.cycle_steps import run_decide, run_observe

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

RUN_ID = "killed"


def die() -> None:
    """End as a machine that loses its power does."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after_write(table_name: str, nth: int) -> None:
    """Make the lake's writes, by Spark and without it, end this process after the n-th write of a table."""
    written: Counter[str] = Counter()

    def count(name: str) -> None:
        written[name] += 1
        if name == table_name and written[name] == nth:
            die()

    def watched(write: Callable[..., Any], table_of: Callable[..., str]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            result = write(*given, **more)
            count(table_of(*given))
            return result

        return wrapped

    # The fault is the point of this program.
    Lake.append = watched(  # type: ignore[method-assign]
        Lake.append, lambda _, table, *__: str(table.name)
    )
    # All writes without Spark end in this method.
    DirectWriter.commit = watched(  # type: ignore[method-assign]
        DirectWriter.commit, lambda writer, *_: str(writer.table.name)
    )


def attach_session() -> SparkSession:
    """Drive the session that runs in the JVM behind the gateway."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # PySpark ships no type for it
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    conf = SparkConf(_jconf=java_context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=java_context, conf=conf))


def run(config: str, cluster: str, slot_text: str, first_step: str, table_name: str, nth: int) -> None:
    """Run until killed; a run that gets to its end has missed its death."""
    loaded, slot = load_policy(config), datetime.fromisoformat(slot_text)
    if first_step == "publish":
        # Before the event: what the publisher calls to write it is its end.
        setattr(publish, "append_plan_events", lambda *_: die())  # noqa: B010 - not exported, on purpose
        publish.publish_hints(loaded, cluster, slot, RUN_ID)
        return
    kill_after_write(table_name, nth)
    spark = attach_session()
    if first_step == "observe":
        run_observe(spark, loaded, cluster, slot, RUN_ID)
    run_decide(spark, loaded, cluster, slot, RUN_ID)


def run_in_fork(arguments: list[Any]) -> int:
    """Run in a process of its own; returns its status, negative when a signal ended it."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        run(*arguments)
    except BaseException:  # noqa: BLE001  # a fork never returns into its parent's loop
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Serve until the input ends."""
    # What a cycle imports while it runs.
    import great_expectations  # noqa: F401
    import pandas  # noqa: F401, ICN001
    import pyspark.sql.functions  # noqa: F401

    for line in sys.stdin:
        # A lock that another thread held at the fork would stay locked in the child.
        assert threading.active_count() == 1, threading.enumerate()
        sys.stdout.write(f"{run_in_fork(json.loads(line))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
