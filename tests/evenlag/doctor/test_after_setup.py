"""`evenlag doctor` as it is called right after `make setup`: no activated environment, no Airflow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import sandbox.jars
from evenlag.doctor.spark_checks import check_submit, jars_findings
from tests.evenlag.doctor.verdicts import worst


def test_delta_s_jars_are_known_by_either_name() -> None:
    # As `make setup` names them, with the organisation.
    fetched = ["io.delta_delta-spark_4.1_2.13-4.4.0.jar", "io.delta_delta-storage-4.4.0.jar"]
    assert worst(jars_findings(fetched, "f", "4.4.0")) == "ok"
    assert worst(jars_findings(fetched, "f", "4.3.0")) == "failed"
    other = "io.delta_delta-storage-s3-dynamodb-4.4.0.jar"
    assert worst(jars_findings([fetched[0], other], "f", "4.4.0")) == "failed"


def test_spark_submit_is_missed_only_where_airflow_calls_it(tmp_path: Path) -> None:
    nowhere = {"PATH": str(tmp_path)}
    assert worst(check_submit(nowhere)) == "skipped"
    assert worst(check_submit(nowhere | {"AIRFLOW_HOME": "/airflow"})) == "failed"
    (tmp_path / "spark-submit").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "spark-submit").chmod(0o755)
    assert worst(check_submit(nowhere)) == "ok"


def test_the_jars_that_set_up_fetches_are_those_that_doctor_looks_for() -> None:
    listed = (Path(sandbox.jars.__file__).parent / "jars.sha256").read_text(encoding="utf-8").split()
    names = [name.removeprefix("spark/") for name in listed if name.startswith("spark/")]
    assert worst(jars_findings(names, "f", metadata.version("delta-spark"))) == "ok"


def test_doctor_is_green_right_after_set_up_without_an_activated_venv(tmp_path: Path) -> None:
    # As `.venv/bin/evenlag doctor` is called from a new shell: nothing but the system's own folders.
    java = shutil.which("java")
    assert java is not None
    environ = {
        "PATH": os.pathsep.join(["/usr/bin", "/bin", str(Path(java).parent)]),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(Path(sandbox.jars.__file__).parents[1]),
    }
    environ |= {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    command = [sys.executable, "-m", "evenlag", "doctor", "--json", "--timeout", "900"]
    done = subprocess.run(
        command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1_200
    )
    assert done.stderr == ""
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    results = {name: checks[name]["result"] for name in ("spark.java", "spark.submit", "spark.packages")}
    assert results == {"spark.java": "ok", "spark.submit": "skipped", "spark.packages": "ok"}
    assert checks["spark.jars"]["result"] == "ok", checks["spark.jars"]
    assert done.returncode == 0, done.stdout
