"""``make airflow``: a broker, a skewed workload, a Spark Connect server and Airflow, until Ctrl-C."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from sandbox.demo.console import Story
from sandbox.demo.run import (
    CLUSTER,
    DAG_ID,
    EXPECTED_ERRORS,
    GROUP,
    NUM_CONSUMERS,
    TOPIC,
    interruptible,
    make_workload,
    prepare_folder,
    start_hot_traffic,
)
from sandbox.demo.services import start_airflow, write_policy
from sandbox.kafka.broker import Broker, quiet
from sandbox.workload.workload import Workload

FOLDER: Final = Path(".airflow")


def main() -> int:
    """Start everything, print the addresses, and wait; returns the exit code."""
    story = Story()
    folder = FOLDER.resolve()
    try:
        with quiet("kafka"), interruptible(), ExitStack() as stack:
            _start(stack, prepare_folder(folder), story)
    except EXPECTED_ERRORS as error:
        story.say(f"\nIt stopped: {error}\nLogs are in {folder}", style="bold red")
        return 1
    except KeyboardInterrupt:
        story.say("\nStopped; nothing runs any more.", style="bold")
    return 0


def _start(stack: ExitStack, folder: Path, story: Story) -> None:
    with story.step("Kafka: one node, on a port of its own") as tell:
        broker = stack.enter_context(Broker.start(folder / "broker"))
        tell(broker.bootstrap_servers)
    policy = write_policy(folder, broker, CLUSTER, GROUP)
    workload: Workload = stack.enter_context(make_workload(broker.bootstrap_servers, folder / "workload"))
    with story.step(f"{NUM_CONSUMERS} consumers of {TOPIC}, group {GROUP}, and skewed traffic"):
        workload.start_consumers(NUM_CONSUMERS)
        start_hot_traffic(workload)
        workload.wait_until_owned()
    airflow = start_airflow(stack, folder, policy, DAG_ID, story)
    story.say(f"\n  {airflow.url}/dags/{DAG_ID}", style="bold")
    story.say(f"  user      {airflow.username}\n  password  {airflow.password}")
    story.say(f"\nTrigger {DAG_ID} there, and look at what it did with:")
    story.say(f"  evenlag plans --lake {folder / 'lake'}")
    story.say(f"  evenlag hints --bootstrap-servers {broker.bootstrap_servers}")
    story.say("\nCtrl-C stops everything.")
    while True:
        workload.check()
        time.sleep(1)


if __name__ == "__main__":
    sys.exit(main())
