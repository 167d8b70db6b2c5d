"""Pods of the consumer protocol as processes: those that end, that hang, and that fail."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from sandbox.workload.evidence import gather
from tests.bench.field.broker import kip848, measures
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def spec_of(folder: Path, **spans: list[tuple[float, float | None]]) -> dict[str, Any]:
    pods = [{"name": name, "instance_id": None, "spans": of, "speed": 1.0} for name, of in spans.items()]
    return {
        "folder": str(folder), "topic": "orders", "configs": {}, "begin_ns": time.monotonic_ns(),
        "pods": pods,
    }  # fmt: skip


def hang(pod: kip848.Pod) -> None:
    """Consume nothing; a pod named "stuck" never ends."""
    pod._journal.write("assigned", partitions=[["orders", 0]])
    if pod.name == "stuck":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while pod.name == "stuck" or not pod._is_stopping():
        time.sleep(0.01)


def test_a_pod_that_hangs_is_killed_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kip848.Pod, "_consume", hang)
    supervisor = kip848.Supervisor(spec_of(tmp_path, stuck=[(0, 0.1)], short=[(0, 0.1)], long=[(0.2, None)]))
    supervisor.advance()
    limits = {process.name: limit_s for process, limit_s in supervisor._running.items()}
    assert limits["stuck"] == 0.1 + kip848._GRACE_S

    def ended() -> set[str]:
        supervisor.advance()
        found = measures.events(tmp_path)
        return {each.get("victim", each["name"]) for each in found if each["event"] in {"closed", "killed"}}

    # By name: the short one has written its end before its process has ended.
    wait_until(
        lambda: ended() == {"short"} and {each.name for each in supervisor._running} == {"stuck", "long"}
    )
    wait_until(lambda: sum(each["event"] == "assigned" for each in measures.events(tmp_path)) == 3)
    for process in supervisor._running:
        if process.name == "stuck":
            supervisor._running[process] = 0.0
    wait_until(lambda: ended() == {"stuck", "short"})
    supervisor.stop()
    assert ended() == {"stuck", "short", "long"}
    assert [each["victim"] for each in measures.events(tmp_path) if each["event"] == "killed"] == ["stuck"]
    ownerships = gather(sorted(tmp_path.glob("*.jsonl"))).ownerships
    assert {(each.name, each.end) for each in ownerships} == {
        ("stuck", "killed"), ("short", "closed"), ("long", "closed"),
    }  # fmt: skip


def test_a_pod_that_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: kip848.Pod) -> None:
        raise RuntimeError("fenced")

    monkeypatch.setattr(kip848.Pod, "_consume", fail)
    supervisor = kip848.Supervisor(spec_of(tmp_path, one=[(0, None)]))
    with pytest.raises(RuntimeError, match="one ended with status 1"):
        wait_until(supervisor.advance)
