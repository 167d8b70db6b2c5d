"""A process that runs cycles and is killed right after a write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


REPOSITORY = Path(__file__).resolve().parents[2]


class Killer:
    """A process that has all that a driver imports, and forks drivers which are killed (`killed_cycle`)."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        parameters = gateway.gateway_parameters
        environ = os.environ | {
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
            "PYTHONPATH": str(REPOSITORY),
        }
        self.log = folder / "killed.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.killed_cycle"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environ,
                text=True,
            )

    def ask(self, arguments: list[Any]) -> int:
        """Run a cycle that is to be killed; returns how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, self.log.read_text(encoding="utf-8")[-3000:]
        return int(answer)

    def close(self) -> None:
        """End the process; the drivers that it forked have ended."""
        self._process.kill()
        self._process.communicate()
