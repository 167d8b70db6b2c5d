"""What a job's log looks like from outside: one JSON object a line, what it is about, and no secret."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import PolicyError
from evenlag.logging_setup import (
    FIELDS,
    JsonFormatter,
    TextFormatter,
    log_fields,
    named_logger,
    present_fields,
    set_up_logging,
)
from evenlag.policy.secrets import SecretRef
from evenlag.redaction import redact, remember_secret, tell_secrets
from spark_jobs.runtime.frames import run_in_parallel

if TYPE_CHECKING:
    from evenlag.logging_setup import WorkerLog

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = 's3cr"et\\with\nteeth'

_JOB = """
import logging
from pathlib import Path
from evenlag.logging_setup import WorkerLog, log_fields, set_up_logging
from evenlag.policy.secrets import SecretRef
set_up_logging()
secret = SecretRef(env="JOB_SECRET").resolve()
log = logging.getLogger("some.library")
with log_fields(run_id="r1", cluster="orders", step="decide"):
    log.info("begun")
    with WorkerLog.of_driver().about(group_id="billing"):
        log.warning("two\\nlines of %s", {"password": secret})
    try:
        raise ValueError(f"refused {secret!r}")
    except ValueError:
        log.exception("did not work", extra={"plan_id": "p" * 64})
    logging.getLogger("kafka.conn").info("chatter")
    raise RuntimeError(f"nobody catches this: {secret}")
"""


def run_job(form: str) -> list[str]:
    answer = subprocess.run(
        [sys.executable, "-c", _JOB],
        env={
            "JOB_SECRET": SECRET,
            "EVENLAG_SECRETS": "JOB_SECRET",
            "EVENLAG_LOG_FORMAT": form,
            "PYTHONPATH": str(REPOSITORY),
        },
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert answer.returncode == 1
    return answer.stderr.splitlines()


def test_a_job_logs_one_json_object_a_line_with_ids_and_without_secrets() -> None:
    lines = run_job("json")
    assert "teeth" not in "".join(lines)
    begun, warned, failed, ended = map(json.loads, lines)
    assert {name: begun[name] for name in ("level", "logger", "message")} == {
        "level": "INFO",
        "logger": "some.library",
        "message": "begun",
    }
    about = {"run_id": "r1", "cluster": "orders", "step": "decide"}
    assert about.items() <= begun.items()
    assert {*about.items(), ("group_id", "billing")} <= set(warned.items())
    assert warned["message"] == "two\nlines of {'password': '***'}"
    assert failed["plan_id"] == "p" * 64
    assert failed["exception"].endswith("ValueError: refused '***'")
    assert "Traceback" in failed["exception"]
    # Uncaught, it leaves the block that said what it is about: a record all the same.
    assert ended["level"] == "CRITICAL"
    assert "nobody catches this: ***" in ended["exception"]


def test_as_text_the_fields_stand_at_the_line_s_end() -> None:
    lines = run_job("text")
    assert "teeth" not in "\n".join(lines)
    assert lines[0].endswith("Z INFO some.library: begun [run_id=r1 cluster=orders step=decide]")


def record(**extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("a.b", logging.INFO, __file__, 1, "said %s", ("it",), None)
    made.__dict__.update(extra)
    return made


def test_a_record_s_own_ids_win_and_fields_add_up() -> None:
    with log_fields(cluster="orders", plan_id="around", snapshot_id=None), log_fields(step="publish"):
        content = json.loads(JsonFormatter().format(record(plan_id="own")))
        assert present_fields() == {"cluster": "orders", "step": "publish", "plan_id": "around"}
    assert (content["plan_id"], content["cluster"], content["step"]) == ("own", "orders", "publish")
    assert "snapshot_id" not in content
    assert present_fields() == {}
    assert TextFormatter().format(record()).endswith("a.b: said it")


def test_threads_that_work_side_by_side_log_about_the_same() -> None:
    with log_fields(cluster="orders"):
        assert run_in_parallel(present_fields, present_fields) == [{"cluster": "orders"}] * 2


def test_a_field_that_is_not_documented_is_refused() -> None:
    with pytest.raises(TypeError, match="plan"), log_fields(plan="p"):
        pass
    page = (REPOSITORY / "docs" / "reference" / "logs.md").read_text(encoding="utf-8")
    assert [name for name in FIELDS if f"`{name}`" not in page] == []


def test_a_form_that_does_not_exist_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_LOG_FORMAT", "xml")
    with pytest.raises(PolicyError, match="EVENLAG_LOG_FORMAT is 'xml': give text or json"):
        set_up_logging()


def test_a_secret_of_several_lines_is_masked_by_every_handler(caplog: pytest.LogCaptureFixture) -> None:
    secret = "-----BEGIN KEY-----\nabcdef\n-----END KEY-----"
    remember_secret(secret)
    error = ValueError(f"cannot load {secret}")
    named_logger("evenlag.several_lines").error("refused: %s", secret, exc_info=error)
    (record,) = caplog.records
    assert record.getMessage() == "refused: ***"
    assert "cannot load ***" in caplog.text
    assert "abcdef" not in caplog.text


def test_whoever_hides_secrets_too_is_told_each_once(tmp_path: Path) -> None:
    found: list[str] = []
    file = tmp_path / "secret"
    file.write_text("found-once-77\n", encoding="utf-8")
    tell_secrets(found.append)
    assert SecretRef(file=file).resolve() == SecretRef(file=file).resolve() == "found-once-77"
    assert found.count("found-once-77") == 1
    assert redact("Authorization: found-once-77, found-once-7") == "Authorization: ***, found-once-7"
    # A secret so short that it would mask half of every line is not masked.
    remember_secret("ab")
    assert redact("about") == "about"


def worker_log_pickles(log: WorkerLog) -> WorkerLog:
    import pickle

    copied: WorkerLog = pickle.loads(pickle.dumps(log))  # noqa: S301  # made one line above
    return copied


def test_what_a_worker_is_given_travels() -> None:
    from evenlag.logging_setup import WorkerLog

    with log_fields(run_id="r1"):
        log = WorkerLog.of_driver()
    copied = worker_log_pickles(log)
    with copied.about(group_id="billing"):
        assert present_fields() == {"run_id": "r1", "group_id": "billing"}
