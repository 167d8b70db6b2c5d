"""A publisher that is killed (-9) at one step: run as a process of its own by tests.

Arguments: policy file, cluster, slot, step. Steps: ``before`` anything is sent, ``sent`` (the transaction is
open), ``committed`` (the hint stands, no event), ``recorded`` (the event is written).
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import datetime
from typing import Any

from kafka import KafkaProducer

from evenlag.policy.loader import load_policy
from evenlag.publishing import publish
from evenlag.publishing.writing.hint_publisher import HintPublisher


def die(*_: Any) -> None:
    """End as a machine that loses its power does."""
    os.kill(os.getpid(), signal.SIGKILL)


def main(argv: list[str]) -> None:
    """Run until killed; a run that gets to its end has missed its death."""
    config, cluster, slot, step = argv
    if step == "before":
        setattr(HintPublisher, "write", die)  # noqa: B010 - the fault is the point of this program
    elif step == "sent":
        KafkaProducer.commit_transaction = die
    elif step == "committed":
        setattr(publish, "append_plan_events", die)  # noqa: B010 - as above
    publish.publish_hints(load_policy(config), cluster, datetime.fromisoformat(slot), "killed")
    if step == "recorded":
        die()


if __name__ == "__main__":
    main(sys.argv[1:])
