"""Withdrawals beside runs that publish, on a topic that is a set of groups with hints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.publishing import revocation
from evenlag.publishing.event_log import append_plan_events, plan_event
from evenlag.publishing.hint_topic import TopicState
from evenlag.publishing.publishable_plans import find_approved
from evenlag.publishing.writing.blind_writes import Seen

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.now(UTC)


class Scene:
    """A lake with an approved plan of the group g, which never had a hint."""

    def __init__(self, lake: Path) -> None:
        self.lake, self.topic = str(lake), set[str]()
        self.loaded = Mock(policy=Mock(lake=self.lake, clusters={"c": Mock(hint_topic="hints")}))
        plan = {"cluster": "c", "day": NOW.date(), "snapshot_id": "s", "plan_id": "p", "group_id": "g"}
        append_plan_events(self.lake, [plan_event(plan, "APPROVED", reason=None, actor="ada", at=NOW)])

    @property
    def approved(self) -> frozenset[str]:
        return find_approved(LakeReader(self.lake), "c", NOW.date()).open_ids

    def write_tombstones(self, _settings: Any, group_id: str) -> Seen:
        self.topic.discard(group_id)
        return Seen(TopicState(exists=True, hints={}, unreadable={}))

    def withdraw(self, group_id: str = "g") -> revocation.Withdrawal:
        return revocation.withdraw_hint(self.loaded, "c", group_id, actor="ada", reason="x")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path)
    monkeypatch.setattr(revocation, "write_tombstones", made.write_tombstones)
    return made


def test_an_approved_plan_of_a_group_without_any_hint_is_withdrawn(scene: Scene) -> None:
    assert scene.approved == {"p"}
    assert scene.withdraw().unpublished == ("p",)
    assert not scene.approved
    with pytest.raises(revocation.NoHintError):
        scene.withdraw("other")


def test_a_run_that_publishes_before_the_withdrawal_is_recorded_leaves_no_hint(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run begins right after each transaction, and publishes what it finds approved."""

    def write_and_publish(settings: Any, group_id: str) -> Seen:
        seen = scene.write_tombstones(settings, group_id)
        scene.topic |= {"g"} if scene.approved else set()
        return seen

    monkeypatch.setattr(revocation, "write_tombstones", write_and_publish)
    assert scene.withdraw().unpublished == ("p",)
    assert not scene.topic
