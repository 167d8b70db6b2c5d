"""The decision of a snapshot that is on record, also in a lake of a version that decided more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import DECISIONS, PLANS
from evenlag.planning.decision_record import read_decision, read_recorded_heads, record_decision
from tests.support.lakes.snapshots import DAY, HEAD, append_rows, arrow

if TYPE_CHECKING:
    from pathlib import Path

    from evenlag.lake.filters import Filter

OF_SNAPSHOT: list[Filter] = [(name, "=", HEAD[name]) for name in ("cluster", "day", "snapshot_id")]


def decision(policy: str, group: str = "g", **more: object) -> dict[str, object]:
    row = {"group_id": group, "policy_hash": policy, "decision": "PROPOSED", "run_id": f"by-{policy}"}
    return row | {"mode": "auto", "plan_id": f"{policy}-{group}"} | more


def test_the_decision_that_is_written_first_stays(tmp_path: Path) -> None:
    root, reader = str(tmp_path), LakeReader(str(tmp_path))
    assert read_decision(reader, OF_SNAPSHOT) is None
    failed = decision("a", "odd", decision="FAILED", reason="no members", plan_id=None)
    assert record_decision(root, OF_SNAPSHOT, arrow(DECISIONS, [decision("a"), failed]))
    assert not record_decision(root, OF_SNAPSHOT, arrow(DECISIONS, [decision("b"), decision("b", "h")]))
    # Nothing to decide is no decision.
    assert record_decision(root, OF_SNAPSHOT, arrow(DECISIONS, []))
    record = read_decision(reader, OF_SNAPSHOT)
    assert record is not None
    assert (record.policy_hash, record.run_id, record.modes) == ("a", "by-a", {"a-g": "auto"})
    assert record.failures == {"odd": "no members"}
    assert str(record) == "run by-a under policy a"
    of_other: list[Filter] = [*OF_SNAPSHOT[:-1], ("snapshot_id", "=", "other")]
    assert record_decision(root, of_other, arrow(DECISIONS, [decision("b", snapshot_id="other")]))


@pytest.mark.parametrize(("planned", "kept"), [("b", "b"), (None, "a")])
def test_of_two_decisions_of_an_old_lake_all_readers_take_the_same(
    planned: str | None, kept: str, tmp_path: Path
) -> None:
    for policy in ("b", "a"):
        append_rows(tmp_path, DECISIONS, [decision(policy)])
    if planned:
        head = {"plan_id": f"{planned}-g", "group_id": "g", "mode": "auto", "policy_hash": planned}
        append_rows(tmp_path, PLANS, [head, head])
    reader = LakeReader(str(tmp_path))
    record = read_decision(reader, OF_SNAPSHOT)
    assert record is not None
    assert (record.policy_hash, list(record.modes)) == (kept, [f"{kept}-g"])
    heads = read_recorded_heads(reader, OF_SNAPSHOT, record)
    assert [(head["plan_id"], head["day"]) for head in heads] == ([(f"{kept}-g", DAY)] if planned else [])
