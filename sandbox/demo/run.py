"""The demo: a broker, a group with even partition counts and uneven lag, Airflow, and two runs of the DAG."""

import argparse
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from evenlag.logging_setup import set_up_logging
from sandbox.airflow.instance import Airflow
from sandbox.demo.answers import check_shown_lag, run_command
from sandbox.demo.console import Story
from sandbox.demo.page import write_page
from sandbox.demo.result import DemoError, DemoLake, DemoResult, Promise, PublishedPlan, check_promises
from sandbox.demo.sampler import LagSampler
from sandbox.demo.services import CONSUMER, JAVA, start_airflow, start_demo_broker, write_policy
from sandbox.kafka.broker import quiet
from sandbox.processes import SandboxError
from sandbox.workload.workload import Workload, WorkloadError

CLUSTER: Final = "sandbox"
GROUP: Final = "billing"
TOPIC: Final = "orders"
DAG_ID: Final = f"lag_rebalance__{CLUSTER}"
NUM_PARTITIONS: Final = 12
NUM_CONSUMERS: Final = 4
# Slow enough that the backlog still exists at the second run.
CONSUMER_RECORDS_PER_S: Final = 60.0
TRAFFIC_RECORDS_PER_S: Final = 80.0
# Backlogs of the first consumer's partitions, as with a few hot keys.
HEAVY_BACKLOG: Final = (24_000, 16_000, 11_000)
LIGHT_BACKLOG: Final = 400
RUN_TIMEOUT_S: Final = 900.0
PAGE: Final = "index.html"
_TWO_PHASES: Final = "The consumers follow the hint, in two phases"
_MARKER: Final = ".evenlag-demo"
EXPECTED_ERRORS: Final = (SandboxError, OSError)


@dataclass(frozen=True, slots=True)
class Consumers:
    """The consumers' protocol, and of a classic group the language of their client."""

    protocol: str
    client: str


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs during the demo."""

    protocol: str
    workload: Workload
    airflow: Airflow
    sampler: LagSampler
    lake: DemoLake


def run_demo(
    folder: Path, *, protocol: str = "classic", client: str = "python", keep_going: bool = False
) -> int:
    """Run the demo and return the exit code: 0 only if every promise was kept.

    protocol: ``classic``: evenlag's own consumers. ``consumer`` (KIP-848): confluent-kafka consumers, which
        know nothing of hints, and a broker with the plug-in.
    """
    terminal = Story()
    try:
        # The clients log a lot while a broker stops.
        with quiet("kafka"), interruptible():
            consumers = Consumers(protocol, client)
            promises = _tell(prepare_folder(folder), terminal, consumers, keep_going=keep_going)
    except EXPECTED_ERRORS as error:
        terminal.say(f"\nThe demo stopped: {error}", style="bold red")
        terminal.say(f"Logs are in {folder.resolve()}")
        return 1
    except KeyboardInterrupt:
        terminal.say("\nStopped; nothing runs any more.", style="bold")
        return 130
    page = (folder / PAGE).resolve()
    terminal.promises(promises)
    kept = all(promise.kept for promise in promises)
    terminal.say(f"\nThe picture: {page.as_uri()}", style="bold")
    terminal.say(
        f"Done in {terminal.elapsed_s:.0f} s." if kept else "Not every promise was kept.",
        style="" if kept else "bold red",
    )
    return 0 if kept else 1


def _tell(folder: Path, story: Story, consumers: Consumers, *, keep_going: bool) -> tuple[Promise, ...]:
    story.chapter("1  A cluster, a group, a backlog")
    with ExitStack() as stack:
        stage = _set_up(stack, folder, story, consumers)
        story.chapter("2  The first run: observe, decide, publish")
        plan = _first_run(stage, story)
        story.chapter("3  The second run: what became of the hint?")
        result = _second_run(stage, plan, story)
        owners = stage.workload.owners()
        with story.step("Stopping the consumers, and looking through what they noted"):
            samples = stage.sampler.stop()
            stage.workload.stop()
            evidence = stage.workload.evidence()
        promises = check_promises(result, plan, owners, evidence, records_per_s=CONSUMER_RECORDS_PER_S)
        with story.step("Comparing the lag that the command shows with the lake's files") as tell:
            promises = (*promises, check_shown_lag(folder / "lake", CLUSTER, run_command))
            tell(promises[-1].seen)
        write_page(folder / PAGE, result, promises, samples, is_java=consumers.client == JAVA)
        story.lag_table(result)
        if keep_going:
            _stay(stage, story)
    return promises


def _set_up(stack: ExitStack, folder: Path, story: Story, consumers: Consumers) -> Stage:
    protocol = consumers.protocol
    with story.step("Kafka: one node, on a port of its own") as tell:
        broker = stack.enter_context(start_demo_broker(folder, protocol))
        tell(f"{broker.bootstrap_servers}{', with the plug-in' if protocol == CONSUMER else ''}")
    policy = write_policy(folder, broker, CLUSTER, GROUP)
    servers, parts = broker.bootstrap_servers, folder / "workload"
    workload = stack.enter_context(make_workload(servers, parts, protocol, consumers.client))
    in_java = "in Java, " if consumers.client == JAVA else ""
    with story.step(
        f"{NUM_CONSUMERS} consumers {in_java}of {TOPIC}, {NUM_PARTITIONS} partitions, group {GROUP}"
    ) as tell:
        workload.start_consumers(NUM_CONSUMERS)
        share = NUM_PARTITIONS // NUM_CONSUMERS
        owners = workload.wait_until_owned(condition=lambda held: all(len(held[n]) == share for n in held))
        tell(f"{share} partitions each: even by count")
    backlog = skewed_backlog(owners)
    # Airflow's start and the backlog both take long: do them in parallel.
    with ThreadPoolExecutor(1) as pool:
        filling = pool.submit(workload.fill, backlog)
        airflow = start_airflow(stack, folder, policy, DAG_ID, story)
    with story.step("A backlog that is anything but even") as tell:
        filling.result()
        workload.start_traffic(records_per_s=TRAFFIC_RECORDS_PER_S, skew=1.0)
        tell(f"{sum(HEAVY_BACKLOG):,} of {sum(backlog.values()):,} records wait for one consumer")
    sampler = LagSampler(workload)
    stack.callback(sampler.stop)
    sampler.start()
    return Stage(protocol, workload, airflow, sampler, DemoLake(folder / "lake", CLUSTER, GROUP))


def make_workload(
    bootstrap_servers: str, folder: Path, protocol: str = "classic", client: str = "python"
) -> Workload:
    """Return the demo's topic and consumers, not started yet."""
    return Workload(
        {"bootstrap_servers": bootstrap_servers},
        folder,
        topic=TOPIC,
        num_partitions=NUM_PARTITIONS,
        group_id=GROUP,
        consumer={"records_per_s": CONSUMER_RECORDS_PER_S, "protocol": protocol, "language": client},
    )


def start_hot_traffic(workload: Workload) -> None:
    """Produce about as much as the consumers process: the owner of the moving hot partitions falls behind."""
    workload.start_traffic(records_per_s=200.0, skew=1.2, shift_every_s=300.0)


def skewed_backlog(owners: dict[str, set[int]]) -> dict[int, int]:
    """Return the records to write by partition: many for the first consumer's, few for the others."""
    first = min(owners)
    heavy = dict(zip(sorted(owners[first]), HEAVY_BACKLOG, strict=True))
    return {number: heavy.get(number, LIGHT_BACKLOG) for numbers in owners.values() for number in numbers}


def _first_run(stage: Stage, story: Story) -> PublishedPlan:
    _run_dag(stage, story, "first run")
    plan = stage.lake.published_plan()
    story.say(
        f"  plan {plan.head['plan_id'][:12]} for {GROUP}: {plan.head['moves']} partitions move, "
        f"largest lag {plan.head['metrics_before']['max_member_lag_records']:,} → "
        f"{plan.head['metrics_after']['max_member_lag_records']:,} predicted"
    )
    by_broker = "The broker assigns as hinted, the consumers go there"
    with story.step(by_broker if stage.protocol == CONSUMER else _TWO_PHASES):
        try:
            stage.workload.wait_until_owned(condition=lambda held: held == dict(plan.owners))
        except WorkloadError as error:
            raise DemoError(f"the consumers did not take up the hint: {error}") from error
    stage.sampler.mark("hint followed")
    return plan


def _second_run(stage: Stage, plan: PublishedPlan, story: Story) -> DemoResult:
    _run_dag(stage, story, "second run")
    result = stage.lake.result(plan)
    outcome = result.outcome
    story.say(
        f"  plan {result.plan_id[:12]}: {outcome.get('outcome', 'no outcome')} ({outcome.get('reason')})"
    )
    return result


def _run_dag(stage: Stage, story: Story, which: str) -> None:
    rest = stage.airflow.rest
    with story.dag_run(f"{DAG_ID}, {which}, by Airflow") as show:
        run = rest.trigger(DAG_ID)
        stage.sampler.mark(which)
        rest.wait(run, timeout_s=RUN_TIMEOUT_S, on_look=show)


def _stay(stage: Stage, story: Story) -> None:
    story.say(
        f"\nAirflow: {stage.airflow.url}  user {stage.airflow.username}  password {stage.airflow.password}"
    )
    story.say("Ctrl-C stops all.")
    while True:
        time.sleep(1)


def prepare_folder(folder: Path) -> Path:
    """Create or empty the demo's folder, and return it."""
    target = folder.resolve()
    if target.exists() and any(target.iterdir()) and not (target / _MARKER).exists():
        raise DemoError(f"{target} is not empty and no earlier demo's: give another one with --folder")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / _MARKER).touch()
    return target


@contextmanager
def interruptible() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that everything is stopped cleanly."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        # Only once: a second signal would interrupt the shutdown.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """Run the demo with the options that ``evenlag demo`` has checked; returns the exit code."""
    parser = argparse.ArgumentParser(prog="sandbox.demo", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--protocol", required=True)
    parser.add_argument("--client", required=True)
    parser.add_argument("--keep", action="store_true", dest="keep_going")
    arguments = vars(parser.parse_args())
    set_up_logging(is_command=True)
    return run_demo(**arguments)
