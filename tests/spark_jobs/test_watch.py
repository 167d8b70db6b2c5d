"""The loop of `spark_jobs.watch`: its errors, its policy file and its session. The steps are replaced.

tests/end_to_end/test_watch.py runs it with the real steps.
"""

from __future__ import annotations

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.enums import CycleStep
from evenlag.errors import (
    ClusterMismatchError,
    FencedPublisherError,
    JobError,
    KafkaUnreachableError,
    LakeConflictError,
    PolicyError,
    SparkUnreachableError,
)
from evenlag.job_events import CycleEnded, JobNotice
from evenlag.slot_clock import SlotClock
from spark_jobs import watch as watch_job
from spark_jobs.runtime.session import WarmSession
from spark_jobs.watch import Watch, WatchedPolicy, Watches
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from evenlag.job_events import JobEvent
    from evenlag.policy.loader import LoadedPolicy

POLICY = """\
lake: /lake
max_mode: {mode}
clusters:
  orders: {{bootstrap_servers: "kafka:9092", schedule: null}}
"""
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class _Server:
    """Opens sessions that answer until the server is killed."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.is_alive = True

    @contextmanager
    def open(self) -> Iterator[Any]:
        self.opened += 1
        self.is_alive = True
        try:
            yield self
        finally:
            self.closed += 1

    def range(self, _end: int) -> Any:
        return self

    def collect(self) -> None:
        if not self.is_alive:
            raise ConnectionRefusedError("no JVM")


class Loop:
    """A watch whose cycles do what a script says: raise an error, call a function, or nothing (None)."""

    def __init__(self, policy: Path, patch: pytest.MonkeyPatch, *, publishes: bool = False) -> None:
        self.policy, self.server, self.session = policy, _Server(), None
        self.events: list[JobEvent] = []
        self.modes: list[str] = []
        self._script: list[Any] = []
        self._at = START
        patch.setattr(watch_job, "_STEPS", {CycleStep.OBSERVE: self._observe, CycleStep.DECIDE: self._decide})
        patch.setattr(watch_job, "publish_cycle", lambda *_, **__: {"published": 1})
        clock = SlotClock(timedelta(minutes=1), now=lambda: self._at, sleep=self._sleep)
        watched = WatchedPolicy(str(policy), "orders")
        self.watch = Watch("orders", watched, clock, publishes=publishes, send=self.events.append)

    def _sleep(self, seconds: float) -> None:
        self._at += timedelta(seconds=seconds)
        if not self._script:
            raise KeyboardInterrupt

    def _observe(self, spark: Any, loaded: LoadedPolicy, *_: Any) -> dict[str, Any]:
        assert spark is self.server
        self.modes.append(loaded.policy.max_mode)
        if not self._script:
            raise KeyboardInterrupt
        deed = self._script.pop(0)
        if isinstance(deed, Exception):
            raise deed
        if deed is not None:
            deed()
        return {"num_groups": 1}

    def _decide(self, *_: Any) -> dict[str, Any]:
        return {"plans": 0}

    def run(self, *script: Exception | Callable[[], object] | None) -> list[dict[str, Any]]:
        """Run the script, then interrupt the watch; return the cycles."""
        self._script = list(script)
        with pytest.raises(KeyboardInterrupt):
            self.watch.run(WarmSession(self.server.open))
        return self.cycles

    @property
    def cycles(self) -> list[dict[str, Any]]:
        return [dict(event.cycle) for event in self.events if isinstance(event, CycleEnded)]

    @property
    def notices(self) -> list[str]:
        return [event.message for event in self.events if isinstance(event, JobNotice)]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Write a policy file."""
    file = tmp_path / "evenlag.yaml"
    file.write_text(POLICY.format(mode="auto"), encoding="utf-8")
    return file


def rewrite(file: Path, text: str) -> None:
    """Replace a file as editors and deployments do: by another file of the same name."""
    other = file.with_suffix(".new")
    other.write_text(text, encoding="utf-8")
    other.replace(file)


def test_each_cycle_has_its_slot_its_run_and_the_summaries_of_its_steps(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(policy, monkeypatch, publishes=True)
    cycles = loop.run(None, None, None)
    assert [cycle["slot"] for cycle in cycles] == [f"2026-03-01T12:0{minute}:00+00:00" for minute in range(3)]
    assert [cycle["next_slot"] for cycle in cycles] == [
        f"2026-03-01T12:0{minute}:00+00:00" for minute in range(1, 4)
    ]
    assert len({cycle["run_id"] for cycle in cycles}) == 3
    for cycle in cycles:
        assert (cycle["cluster"], cycle["lake"]) == ("orders", "/lake")
        assert (cycle["observe"], cycle["decide"]) == ({"num_groups": 1}, {"plans": 0})
        assert cycle["publish"] == {"published": 1}
    assert loop.server.opened == 1


def test_without_publish_nothing_is_published(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "publish" not in Loop(policy, monkeypatch).run(None)[0]


@pytest.mark.parametrize(
    "error",
    [
        KafkaUnreachableError("no broker answered"),
        LakeConflictError("another writer"),
        FencedPublisherError("another publisher has taken over"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_may_pass_is_reported_and_the_next_cycles_try_again_later(
    error: JobError, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(policy, monkeypatch)
    cycles = loop.run(None, error, error, error, None, None)
    assert [cycle["slot"][11:16] for cycle in cycles] == [
        "12:00",
        "12:01",
        "12:02",
        "12:04",
        "12:08",
        "12:09",
    ]
    assert [cycle.get("error") for cycle in cycles] == [None, *[str(error)] * 3, None, None]
    assert [cycle["next_slot"][11:16] for cycle in cycles] == [
        "12:01",
        "12:02",
        "12:04",
        "12:08",
        "12:09",
        "12:10",
    ]
    assert {cycle["exit_code"] for cycle in cycles[1:4]} == {3}
    assert loop.server.opened == 1, "Spark had no part in it"


@pytest.mark.parametrize("error", [ClusterMismatchError("another cluster"), PolicyError("no secret")])
def test_an_error_that_cannot_pass_ends_the_job(
    error: JobError, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(policy, monkeypatch)
    loop._script = [None, error, None]
    with pytest.raises(type(error)) as raised:
        loop.watch.run(WarmSession(loop.server.open))
    assert raised.value.exit_code == 2
    assert len(loop.cycles) == 1


def test_a_lost_session_is_replaced(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(policy, monkeypatch)

    def die() -> None:
        loop.server.is_alive = False
        raise RuntimeError("connection reset\nand a stack trace")

    counts: list[tuple[int, int]] = []
    cycles = loop.run(None, die, lambda: counts.append((loop.server.opened, loop.server.closed)))
    assert [cycle.get("error") for cycle in cycles] == [
        None,
        "Spark's session was lost, the next cycle opens another: RuntimeError: connection reset",
        None,
    ]
    assert counts == [(2, 1)]


def test_ctrl_c_interrupts_even_when_the_jvm_is_dead(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A classic session installs a handler that asks the JVM to cancel its jobs before it interrupts."""
    loop = Loop(policy, monkeypatch)
    before = signal.getsignal(signal.SIGINT)

    @contextmanager
    def open_classic() -> Iterator[Any]:
        def ask_the_jvm(_number: int, _frame: object) -> None:
            raise ConnectionRefusedError("no JVM")

        signal.signal(signal.SIGINT, ask_the_jvm)
        with loop.server.open() as spark:
            yield spark

    loop._script = [None, lambda: signal.raise_signal(signal.SIGINT), None]
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.watch.run(WarmSession(open_classic))
    finally:
        signal.signal(signal.SIGINT, before)
    assert [cycle.get("error") for cycle in loop.cycles] == [None]


def test_a_server_that_is_gone_is_an_error_that_may_pass(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of a server converts the errors of its client when it ends."""
    loop = Loop(policy, monkeypatch)

    @contextmanager
    def open_remote() -> Iterator[Any]:
        try:
            with loop.server.open() as spark:
                yield spark
        except RuntimeError as error:
            raise SparkUnreachableError("the Spark Connect server does not answer") from error

    def die() -> None:
        loop.server.is_alive = False
        raise RuntimeError("StatusCode.UNAVAILABLE")

    loop._script = [die, die, die, die, None]
    with pytest.raises(KeyboardInterrupt):
        loop.watch.run(WarmSession(open_remote))
    message = (
        "Spark's session was lost, the next cycle opens another: the Spark Connect server does not answer"
    )
    assert [cycle.get("error") for cycle in loop.cycles] == [*[message] * 4, None]
    assert {cycle["exit_code"] for cycle in loop.cycles[:4]} == {SparkUnreachableError.exit_code}


def test_an_unexpected_error_that_stays_ends_the_job(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(policy, monkeypatch)
    error = ValueError("a bug")
    loop._script = [error, error, None, error, error, error, None]
    with pytest.raises(JobError, match="3 consecutive cycles ended by unexpected errors") as raised:
        loop.watch.run(WarmSession(loop.server.open))
    assert raised.value.exit_code == 1
    assert [cycle.get("error") for cycle in loop.cycles] == [
        *["ValueError: a bug"] * 2,
        None,
        *["ValueError: a bug"] * 2,
    ]


def test_a_changed_policy_applies_from_the_next_cycle_on(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(policy, monkeypatch)
    loop.run(None, lambda: rewrite(policy, POLICY.format(mode="shadow")), None, None)
    assert loop.modes == ["auto", "auto", "shadow", "shadow"]
    assert loop.notices == ["the policy file has changed: it applies from this cycle on"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lake: /lake\nclusters: {}\n", "clusters: "),
        (POLICY.format(mode="auto").replace("orders", "others"), "no cluster 'orders'"),
        (None, "evenlag.yaml"),
    ],
    ids=["invalid", "without the cluster", "removed"],
)
def test_no_cycle_runs_until_a_broken_policy_is_corrected(
    text: str | None, message: str, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that says something else by now, if it can be read again: its old content no longer counts."""
    loop = Loop(policy, monkeypatch)
    sleep, correct_at = loop._sleep, START + timedelta(minutes=4, seconds=30)

    def sleep_and_correct(seconds: float) -> None:
        sleep(seconds)
        if loop._at == correct_at:
            rewrite(policy, POLICY.format(mode="observe"))

    loop.watch.clock._sleep = sleep_and_correct
    breaking = (policy.unlink) if text is None else (lambda: rewrite(policy, text))
    cycles = loop.run(None, breaking, None)
    assert [cycle["slot"][11:16] for cycle in cycles] == ["12:00", "12:01", "12:05"]
    assert loop.modes == ["auto", "auto", "observe"]
    broken, corrected = loop.notices
    assert broken.startswith("no cycle runs until the policy file is corrected: ")
    assert message in broken
    assert broken.count("\n") == 0
    assert corrected == "the policy file has changed: it applies from this cycle on"


def test_an_interrupt_within_a_cycle_is_no_failed_cycle(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(policy, monkeypatch)

    def interrupt() -> None:
        raise KeyboardInterrupt

    assert len(loop.run(None, interrupt)) == 1


class Many:
    """Watches of many clusters, whose cycles count and do what is said by cluster."""

    def __init__(self, policy: Path, patch: pytest.MonkeyPatch, **deeds: Callable[[], object]) -> None:
        self.server, self.deeds = _Server(), deeds
        self.events: list[JobEvent] = []
        self._is_over = False
        patch.setattr(watch_job, "_STEPS", {CycleStep.OBSERVE: self._observe})
        patch.setattr(watch_job, "publish_cycle", lambda *_, **__: {"published": 1})
        patch.setattr(watch_job, "_LOOK_EVERY_S", 0.02)
        patch.setattr(watch_job, "SlotClock", partial(SlotClock, sleep=self._sleep))
        watched, every = WatchedPolicy(str(policy), None), timedelta(milliseconds=200)
        self.watches = Watches(watched, every, publishes=True, send=self.events.append)
        self.session = WarmSession(self.server.open)

    def _sleep(self, seconds: float) -> None:
        if self._is_over:
            raise KeyboardInterrupt
        time.sleep(min(seconds, 0.02))

    def _observe(self, _: Any, __: Any, cluster: str, *___: Any) -> dict[str, Any]:
        self.deeds.get(cluster, int)()
        return {}

    def num_cycles(self, cluster: str, error: str | None = None) -> int:
        """Return how many cycles of a cluster ended so."""
        found = [event.cycle for event in self.events if isinstance(event, CycleEnded)]
        return sum(each["cluster"] == cluster and each.get("error") == error for each in found)

    def run(self, until: Callable[[], bool]) -> None:
        """Run until something is so, and end all threads."""

        def interrupt() -> None:
            try:
                wait_until(until)
            finally:
                self._is_over = True

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                self.watches.run(self.session)
            done.result()
        for thread in self.watches._running.values():
            thread.join()


def with_clusters(*names: str) -> str:
    clusters = "".join(f"  {name}: {{bootstrap_servers: 'kafka:9092', schedule: null}}\n" for name in names)
    return f"lake: /lake\nclusters:\n{clusters}"


def test_no_cluster_waits_for_another_one_or_ends_with_it(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow one, one with an error that cannot pass, one with a bug, and one with a panic of deltalake."""
    rewrite(policy, with_clusters("slow", "wrong", "buggy", "panic", "good"))
    is_over = threading.Event()

    def fail(error: BaseException) -> None:
        raise error

    many = Many(
        policy, monkeypatch, slow=is_over.wait, wrong=lambda: fail(ClusterMismatchError("another cluster")),
        buggy=lambda: fail(ValueError("a bug")), panic=lambda: fail(BaseException("out of range")),
    )  # fmt: skip

    def is_done() -> bool:
        done = (
            many.num_cycles("good") >= 5
            and many.num_cycles("wrong", "another cluster") >= 2
            and many.num_cycles("buggy", "ValueError: a bug") >= 2
            and many.num_cycles("panic", "BaseException: out of range") >= 2
        )
        if done:
            assert many.num_cycles("slow") == 0
            is_over.set()
        return done

    many.run(is_done)
    assert many.server.opened == 1
    cycles = [event.cycle for event in many.events if isinstance(event, CycleEnded)]
    slots = [(cycle["cluster"], cycle["slot"]) for cycle in cycles]
    assert len(set(slots)) == len(slots)
    assert all(cycle["publish"] == {"published": 1} for cycle in cycles if cycle["cluster"] == "good")


def test_a_lost_session_is_replaced_once_for_all_clusters(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(policy, with_clusters("one", "two"))
    died = threading.Event()

    def die_once() -> None:
        if not died.is_set():
            died.set()
            many.server.is_alive = False
            raise RuntimeError("connection reset")

    many = Many(policy, monkeypatch, one=die_once)
    lost = "Spark's session was lost, the next cycle opens another: RuntimeError: connection reset"
    many.run(lambda: min(many.num_cycles("one"), many.num_cycles("two")) >= 2)
    assert many.num_cycles("one", lost) == 1
    assert (many.server.opened, many.server.closed) == (2, 1)


def test_no_cluster_waits_for_the_answer_of_a_busy_server_to_another_one(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(policy, with_clusters("failing", "good"))
    is_over = threading.Event()

    def fail() -> None:
        raise KafkaUnreachableError("no broker answered")

    def is_done() -> bool:
        done = many.num_cycles("good") >= 3
        if done:
            assert many.num_cycles("failing", "no broker answered") == 0
            is_over.set()
        return done

    many = Many(policy, monkeypatch, failing=fail)
    monkeypatch.setattr(many.server, "collect", lambda: is_over.wait(60))
    many.run(is_done)


def test_clusters_come_and_go_with_the_policy(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(policy, with_clusters("stays", "goes"))
    many = Many(policy, monkeypatch)
    gone: list[int] = []
    late: list[int] = []

    def is_done() -> bool:
        if not gone and min(many.num_cycles("stays"), many.num_cycles("goes")) >= 2:
            rewrite(policy, with_clusters("stays", "comes"))
            gone.append(0)
        # What was running when the file changed may still end.
        if len(gone) == 1 and many.num_cycles("comes") >= 1:
            gone.append(many.num_cycles("goes"))
            late.append(many.num_cycles("stays") + 4)
        return len(gone) == 2 and many.num_cycles("stays") >= late[0]

    many.run(is_done)
    assert many.num_cycles("goes") == gone[1]
    assert many.num_cycles("comes") > 1
    notices = [event.message for event in many.events if isinstance(event, JobNotice)]
    assert notices == ["the policy file has changed: it applies from this cycle on"]
