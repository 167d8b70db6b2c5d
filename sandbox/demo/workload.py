"""Run the demo's skewed group on an existing broker: ``python -m sandbox.demo.workload run …``.

It creates the topics, starts the consumers, gives the first one a backlog, and produces skewed traffic until
it is stopped. ``check`` reports by its exit code whether all processes run, for a health check.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Final

from sandbox.demo.run import NUM_CONSUMERS, interruptible, make_workload, skewed_backlog, start_hot_traffic
from sandbox.kafka.broker import quiet
from sandbox.workload.workload import WorkloadError

# The file is touched every second; when it is older than this, the workload hangs.
_STALE_S: Final = 30.0
_SIGN: Final = "well"


def run(bootstrap_servers: str, folder: Path) -> None:
    """Run the workload until SIGTERM or Ctrl-C; its folder is emptied, so a restart counts nothing twice."""
    shutil.rmtree(folder, ignore_errors=True)
    with make_workload(bootstrap_servers, folder) as workload:
        workload.start_consumers(NUM_CONSUMERS)
        workload.fill(skewed_backlog(workload.wait_until_owned()))
        start_hot_traffic(workload)
        while True:
            workload.check()
            (folder / _SIGN).touch()
            time.sleep(1)


def is_well(folder: Path) -> bool:
    """Return whether the workload of this folder runs with all its processes."""
    try:
        return time.time() - (folder / _SIGN).stat().st_mtime < _STALE_S
    except OSError:
        return False


def main(argv: list[str]) -> int:
    """Run or check the workload; returns the exit code."""
    parser = argparse.ArgumentParser(prog="sandbox.demo.workload", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    running, checking = commands.add_parser("run"), commands.add_parser("check")
    running.add_argument("--bootstrap-servers", required=True)
    for command in (running, checking):
        command.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args(argv)
    if arguments.command == "check":
        return 0 if is_well(arguments.folder) else 1
    try:
        with quiet("kafka"), interruptible():
            run(arguments.bootstrap_servers, arguments.folder)
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass  # requested stop
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
