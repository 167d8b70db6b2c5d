"""The publisher on the real broker: killed (-9) at each step, and two of them at once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import FencedPublisherError, LakeError
from evenlag.publishing import publish, publish_checks
from evenlag.publishing.following import Following
from evenlag.publishing.publish import PublishReport, publish_hints
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from types import ModuleType

    from tests.support.live_plan import LiveGroup


pytestmark = pytest.mark.broker

KILLED = Path(__file__).resolve().parents[2] / "support" / "killed_publish.py"


def publish_group(group: LiveGroup) -> PublishReport:
    return publish_hints(group.loaded, group.name, datetime.now(UTC), "r")


def new_plan(group: LiveGroup, *, age_s: int = 5) -> str:
    group.wait_until_settled()
    return group.plan(mode="auto", approved=True, age_s=age_s)


def test_killed_at_each_step_a_repeat_carries_the_same_sequence_and_plan(group: LiveGroup) -> None:
    # The newest plan is the one that counts: each is younger than the one before.
    for number, step in enumerate(("before", "sent", "committed", "recorded")):
        plan_id = new_plan(group, age_s=20 - number)
        slot = datetime.now(UTC).isoformat()
        command = [sys.executable, str(KILLED), str(group.config), group.name, slot, step]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == -9, done.stderr[-3000:]
        standing = group.topic_state.hints.get(group.group_id)
        is_published = step in {"committed", "recorded"}
        assert (standing is not None and standing.plan_id == plan_id) is is_published, step
        assert ("PUBLISHED" in group.events(plan_id)) is (step == "recorded"), step
        report = publish_group(group)
        sequence = number + 1
        assert report.published == ([] if step == "recorded" else [(group.group_id, plan_id, sequence)]), step
        again = group.topic_state.hints[group.group_id]
        assert (again.plan_id, again.sequence) == (plan_id, sequence), step
        if is_published:
            assert standing is not None
            assert (again.sequence, again.issued_at_ms) == (standing.sequence, standing.issued_at_ms), step
        event = group.events(plan_id)["PUBLISHED"]
        assert event["sequence"] == sequence, step
        assert round(event["at"].timestamp() * 1000) == again.issued_at_ms, step
        assert publish_group(group).published == []


class Stuck:
    """A publishing that stops at one of its steps until it is let go on."""

    def __init__(self, group: LiveGroup, patch: pytest.MonkeyPatch, module: ModuleType, step: str) -> None:
        self.is_there, self._go_on = threading.Event(), threading.Event()
        self.report: PublishReport | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(group,))
        real = getattr(module, step)

        def wrapped(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is self._thread:
                self.is_there.set()
                assert self._go_on.wait(600)
            return real(*given, **named)

        patch.setattr(module, step, wrapped)
        self._thread.start()
        assert self.is_there.wait(600)

    def _run(self, group: LiveGroup) -> None:
        try:
            self.report = publish_group(group)
        except Exception as error:  # noqa: BLE001 - what it was is what the test asks for
            self.error = error

    def wake(self) -> None:
        """Let it go on to its end."""
        self._go_on.set()
        self._thread.join(600)


@pytest.mark.parametrize(
    ("step", "does_change"), [("read_live_gains", False), ("read_live_groups", True)], ids=["write", "expire"]
)
def test_a_stuck_run_that_wakes_up_is_fenced_and_tells_nothing(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch, step: str, *, does_change: bool
) -> None:
    plan_id = new_plan(group)
    stuck = Stuck(group, monkeypatch, publish_checks, step)
    assert publish_group(group).published == [(group.group_id, plan_id, 1)]
    if does_change:
        # What it would judge by now is the group that follows the other run's hint.
        group.add_member()
    standing = group.topic_state.hints[group.group_id]
    stuck.wake()
    assert isinstance(stuck.error, FencedPublisherError), (stuck.error, stuck.report)
    assert group.topic_state.hints[group.group_id] == standing
    recorded = group.events(plan_id)
    assert recorded["PUBLISHED"]["sequence"] == 1
    assert "EXPIRED" not in recorded


def test_a_run_stuck_before_it_could_fence_puts_no_older_plan_over_a_newer_one(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = new_plan(group, age_s=9)
    stuck = Stuck(group, monkeypatch, publish, "ensure_hint_topic")
    newer = group.plan(mode="auto", approved=True, age_s=3)
    assert [plan for _, plan, _ in publish_group(group).published] == [newer]
    stuck.wake()
    assert stuck.report == PublishReport()
    assert group.topic_state.hints[group.group_id].plan_id == newer
    assert group.events(older)["EXPIRED"]["reason"] == "a newer plan of the group is approved or published"


def test_cycles_go_on_while_a_group_follows(group: LiveGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    following, follows = Following(), threading.Event()

    def await_groups(_: Any, __: Any, published: Any, *___: Any) -> dict[str, str]:
        if not published:
            return {}
        assert follows.wait(600)
        return {group.group_id: "its members are busy"}

    def cycle() -> PublishReport:
        now = datetime.now(UTC)
        return publish_hints(group.loaded, group.name, now, "r", following=following)

    monkeypatch.setattr(publish, "_await_groups", await_groups)
    first = new_plan(group)
    assert cycle().published == [(group.group_id, first, 1)]
    assert "PUBLISHED" not in group.events(first)
    # Its plan is no candidate, and one of a snapshot in which the group was about to change is out of date.
    assert cycle() == PublishReport()
    meanwhile = group.plan(mode="auto", approved=True, age_s=1)
    assert cycle().published == []
    reason = "it was planned while the group followed another hint"
    assert group.events(meanwhile)["EXPIRED"]["reason"] == reason
    follows.set()
    wait_until(lambda: not following.plan_ids)
    assert group.events(first)["PUBLISHED"]["sequence"] == 1
    assert cycle().not_taken_up == [(group.group_id, first, "its members are busy")]
    assert cycle().not_taken_up == []
    # Slots are whole seconds.
    time.sleep(1)
    after = new_plan(group, age_s=0)
    assert cycle().published == [(group.group_id, after, 2)]


def test_a_wait_that_cannot_record_its_plan_is_repeated(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    following, plan_id = Following(), new_plan(group)

    def fail(*_: Any) -> None:
        raise LakeError("the bucket does not answer")

    def cycle() -> PublishReport:
        now = datetime.now(UTC)
        return publish_hints(group.loaded, group.name, now, "r", following=following)

    with monkeypatch.context() as patch:
        patch.setattr(publish, "_build_events", fail)
        with pytest.raises(LakeError):
            cycle()
        patch.setattr(publish, "_build_events", lambda written, *_: fail() if written.published else [])
        assert cycle().published == [(group.group_id, plan_id, 1)]
        wait_until(lambda: not following.plan_ids)
    assert "PUBLISHED" not in group.events(plan_id)
    assert cycle().published == [(group.group_id, plan_id, 1)]
    wait_until(lambda: not following.plan_ids)
    assert group.events(plan_id)["PUBLISHED"]["sequence"] == 1
    assert cycle() == PublishReport()


def test_a_plan_that_a_person_rejected_meanwhile_is_not_published(
    group: LiveGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evenlag.publishing.event_log import append_plan_events

    plan_id = new_plan(group)
    stuck = Stuck(group, monkeypatch, publish, "ensure_hint_topic")
    recorded = group.events(plan_id)["APPROVED"]
    rejection = recorded | {"event": "REJECTED", "actor": "alice", "reason": "no", "at": datetime.now(UTC)}
    append_plan_events(str(group.lake), [rejection])
    stuck.wake()
    assert stuck.report == PublishReport()
    assert group.group_id not in group.topic_state.hints
