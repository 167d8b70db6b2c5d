"""Record the lakes again: ``python -m tests.truth.record`` (needs `make setup` and a C compiler, ``cc``).

Real brokers, real consumer processes and the product's own jobs in one Spark session write each lake into a
temporary folder; audit and comparison follow, then it is packed as it is into
``tests/truth/lakes/NAME.tar.xz``, which `recorded_lakes` reads. Record again whenever tables change: nothing
here names a table or a column. About ten minutes on two idle cores.

- ``hints``: every ending that a plan can have, two names of one cluster, all modes.
- ``brokers``: two brokers, one of which does not answer during some snapshots; a member
  leaves while a snapshot is taken.
- ``names``: odd and long names of groups, clients and topics; a UTC midnight.
- ``foreign``: groups as other clients make them (malformed assignment, short subscription, an expression, a
  commit beyond the end, an emptied log, a rebalance that lasts), and one that is behind in bursts.

``--only NAME`` records one of them, ``--target`` writes elsewhere, ``--keep`` keeps brokers and lakes to look
at. `test_recorded_lakes` says whether a recording has all that it is for: a very busy machine may miss a
hint's time; record that lake again then.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandbox.jars import broker_classpath
from sandbox.kafka.broker import Broker
from spark_jobs.runtime.classic_session import build_session
from tests.truth.recorded_lakes import FOLDER
from tests.truth.recording import brokers, foreign, hints, names
from tests.truth.recording.archive import pack
from tests.truth.recording.clock import remove_clock, set_clock, start_shifted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_LAKES: Final = {each.NAME: each for each in (hints, brokers, names, foreign)}


def record(names: Sequence[str], target: Path, folder: Path) -> None:
    """Record these lakes, one after the other, in one session."""
    os.chdir(folder)
    spark = build_session("recorded lakes")
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for name in names:
            began = time.monotonic()
            _record_one(spark, name, target, folder / name)
            sys.stdout.write(f"{name}: {time.monotonic() - began:.0f} s\n")
    finally:
        os.chdir("/")
        spark.stop()


def _record_one(spark: SparkSession, name: str, target: Path, folder: Path) -> None:
    folder.mkdir()
    # The lake is "lake", wherever this is: no path of a machine gets into a table.
    os.chdir(folder)
    set_clock(None)
    with Broker.start(folder / "broker") as broker:
        stage = _LAKES[name].record(spark, broker, folder)
    pack(folder, stage, target / f"{name}.tar.xz", _kafka_version())


def _kafka_version() -> str:
    found = re.search(r"kafka-clients-([0-9.]+)\.jar", broker_classpath())
    return found[1] if found else "unknown"


def main(argv: Sequence[str] | None = None) -> int:
    """Record into the repository, or elsewhere."""
    parser = argparse.ArgumentParser(prog="tests.truth.record", description=__doc__)
    parser.add_argument("--target", type=Path, default=FOLDER, help="where the archives go")
    parser.add_argument("--only", choices=sorted(_LAKES), action="append", help="record this one")
    parser.add_argument("--keep", type=Path, help="an empty folder for brokers and lakes, to look at")
    arguments = parser.parse_args(argv)
    start_shifted(sys.argv[1:] if argv is None else argv)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            record(arguments.only or list(_LAKES), arguments.target.resolve(), folder)
        finally:
            remove_clock()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
