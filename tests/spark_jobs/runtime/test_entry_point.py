"""How the process of a job ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JOBS = Path(__file__).resolve().parents[3] / "spark_jobs"
# At the worst, this is what a thread of a library does while the interpreter is being cleaned up.
CRASH = "import atexit, os, runpy, signal, sys\natexit.register(os.kill, os.getpid(), signal.SIGSEGV)\n"


def test_a_crash_after_the_work_leaves_the_exit_code_as_it_is(tmp_path: Path) -> None:
    arguments = ["observe", "--cluster=c", "--slot=2026-03-01T00:00Z", "--run-id=r"]
    text = f"{CRASH}sys.argv = {['job', *arguments, '--config', str(tmp_path / 'missing.yaml')]}\n"
    text += "runpy.run_module('spark_jobs.cycle', run_name='__main__')\n"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=JOBS.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, "missing.yaml" in done.stderr) == (2, True), done.stderr


def test_every_job_ends_so() -> None:
    texts = [text for path in JOBS.glob("*.py") if "run_job(JOB)" in (text := path.read_text("utf-8"))]
    assert len(texts) == 7
    assert all(text.endswith("\n    end_process(run_job(JOB))\n") for text in texts)
