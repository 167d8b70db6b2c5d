"""Run the steps of a cycle in one session, or each in its own process.

``observe`` takes a snapshot, computes lag and settles earlier hints; ``decide`` plans and validates. Both
need Spark. ``publish``, which does not (``evenlag.publishing.publish``), is a step here for many clusters in
one run: each cluster has a thread, and goes on to its next step without waiting for another cluster.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import CycleStep
from evenlag.errors import JobError
from evenlag.lake.location import LakePaths
from evenlag.logging_setup import log_fields, named_logger
from evenlag.policy.loader import load_policy
from spark_jobs.runtime.entry_point import (
    IncompleteJobError,
    Job,
    JobWork,
    end_process,
    moment_argument,
    run_job,
)
from spark_jobs.runtime.progress import ReportProgress, no_progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection

    from pyspark.sql import SparkSession

    _Summaries = dict[str, Any]

_LOG: Final = named_logger(__name__)
_STEPS: Final = (CycleStep.OBSERVE, CycleStep.DECIDE, CycleStep.PUBLISH)
_MOST_NAMED: Final = 5


class ClustersFailedError(JobError):
    """Raised when cycles of some clusters failed; the message says why, of the first ones."""

    def __init__(self, errors: dict[str, JobError], num_clusters: int) -> None:
        named = [f"{name}: {error}" for name, error in list(errors.items())[:_MOST_NAMED]]
        super().__init__(f"{len(errors)} of {num_clusters} clusters failed: {'; '.join(named)}")
        worst = next((each for each in errors.values() if each.retriable), next(iter(errors.values())))
        self.retriable, self.exit_code = worst.retriable, worst.exit_code


def run_clusters(
    clusters: Collection[str], work: Callable[[str], _Summaries], limit_s: float
) -> dict[str, _Summaries]:
    """Run the work of all clusters at the same time, and return what it returns, by cluster.

    An error of a cluster, or one that takes longer than the limit, is raised when all others have ended. What
    takes longer is left behind: the process must end.
    """
    ended: SimpleQueue[tuple[str, _Summaries | JobError]] = SimpleQueue()

    def run(cluster: str) -> None:
        try:
            ended.put((cluster, work(cluster)))
        except JobError as error:
            ended.put((cluster, error))
        except BaseException as error:  # noqa: BLE001  # it stays with its cluster
            _LOG.error("the cycle of %s ended by an unexpected error", cluster, exc_info=error)
            ended.put((cluster, JobError(f"{type(error).__name__}: {error}")))

    for name in clusters:
        threading.Thread(target=copy_context().run, args=(run, name), daemon=True).start()
    slow = JobError(f"its cycle took longer than {limit_s:.0f} s")
    done: dict[str, _Summaries] = {}
    errors: dict[str, JobError] = dict.fromkeys(clusters, slow)
    until_s = monotonic() + limit_s
    with suppress(Empty):
        for _ in clusters:
            name, result = ended.get(timeout=max(0.0, until_s - monotonic()))
            if isinstance(result, JobError):
                errors[name] = result
            else:
                done[name] = result
                del errors[name]
    if errors:
        raise IncompleteJobError(ClustersFailedError(errors, len(clusters)), done)
    return done


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("steps", nargs="+", choices=_STEPS, help="in this order, one or more")
    parser.add_argument(
        "--cluster", required=True, action="append", help="name of the cluster in the policy, several times"
    )
    parser.add_argument("--slot", required=True, type=moment_argument, help="ISO 8601 moment with its offset")
    parser.add_argument("--run-id", required=True, help="name of the run, for the records")
    parser.add_argument(
        "--limit-s", type=float, default=86_400.0, help="of many clusters, leave those that take longer"
    )


def _prepare(arguments: argparse.Namespace) -> JobWork:
    loaded = load_policy(arguments.config)
    clusters, slot, run_id = arguments.cluster, arguments.slot, arguments.run_id
    # One of many that has left the policy since the run was made fails alone.
    if not any(name in loaded.policy.clusters for name in clusters):
        loaded.cluster_settings(clusters[0])
    LakePaths(loaded.policy.lake).make_root()

    def run(spark: SparkSession, progress: ReportProgress) -> dict[str, Any]:
        # Not before the JVM starts.
        from evenlag.publishing.publish import publish_hints
        from spark_jobs.steps.cycle_steps import run_decide, run_observe

        run_step = {CycleStep.OBSERVE: run_observe, CycleStep.DECIDE: run_decide}

        def run_cycle(cluster: str, progress: ReportProgress = no_progress) -> _Summaries:
            summaries = {}
            loaded.cluster_settings(cluster)
            for step in arguments.steps:
                with log_fields(step=step, cluster=cluster):
                    if step == CycleStep.PUBLISH:
                        summaries[step] = publish_hints(loaded, cluster, slot, run_id).summary()
                    else:
                        summaries[step] = run_step[step](spark, loaded, cluster, slot, run_id, progress)
            return summaries

        if len(clusters) == 1:
            return run_cycle(clusters[0], progress)
        return run_clusters(clusters, run_cycle, arguments.limit_s)

    name = clusters[0] if len(clusters) == 1 else f"{len(clusters)} clusters"
    return JobWork(f"evenlag {JOB.step(arguments)} {name}", run, lake=loaded.policy.lake)


JOB: Final = Job("spark_jobs.cycle", __doc__, _add_arguments, _prepare, lambda given: "+".join(given.steps))


if __name__ == "__main__":
    end_process(run_job(JOB))
