"""Client ids of members, by a recorded lake; the ids are from the consumers that were started for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from assignor_core.hint import HintPayload
from evenlag.cli.hints import client_ids
from evenlag.lake.reader import LakeReader
from evenlag.queries.lag import client_names, read_group_members
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER, GROUP = "north", "billing"
SNAPSHOT = "20261123T023536035Z-1b9b9b65"
DYNAMIC = {
    "consumer-2-99c75108-8390-4d6e-b779-6ff2409b99d7": "consumer-2",
    "consumer-4-4030f138-1da4-4751-8bd2-61e3c59e8e55": "consumer-4",
}
STATIC = {
    "consumer-0-b91ab81e-4bec-4086-9b90-955db40908c2": "consumer-0",
    "consumer-1-bfbd339d-a3c7-4a22-815f-95056e030577": "consumer-1",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return extract("hints", tmp_path_factory.mktemp("clients") / "hints").root


def hint_of(lake: object, snapshot_id: str) -> tuple[Any, Any]:
    payload = HintPayload("c", GROUP, snapshot_id, "f" * 64, {}, count_slack=0, max_moves=0)
    policy = SimpleNamespace(lake=str(lake))
    return SimpleNamespace(name=CLUSTER, loaded=SimpleNamespace(policy=policy)), SimpleNamespace(
        payload=payload
    )


def test_each_member_of_a_snapshot_has_the_client_that_its_consumer_was_given(lake: Path) -> None:
    rows = read_group_members(LakeReader(str(lake)), CLUSTER, SNAPSHOT, GROUP)
    assert client_names(rows) == DYNAMIC | STATIC


def test_a_snapshot_that_is_not_in_the_lake_has_no_members(lake: Path) -> None:
    assert read_group_members(LakeReader(str(lake)), CLUSTER, "20200101T000000000Z-0badcafe", GROUP) == []


def test_an_instance_id_names_a_client_and_unknown_ones_have_no_name() -> None:
    rows: list[dict[str, Any]] = [
        {"member_id": "m1", "group_instance_id": "pod-0", "client_id": "app"},
        {"member_id": "m2", "group_instance_id": None, "client_id": "app"},
        {"member_id": "m3", "group_instance_id": None, "client_id": None},
        {"member_id": None, "group_instance_id": None, "client_id": None},
    ]
    assert client_names(rows) == {"m1": "pod-0", "m2": "app", "m3": ""}


def test_a_hint_s_members_have_client_ids_by_their_keys(lake: Path) -> None:
    found = client_ids(*hint_of(lake, SNAPSHOT))
    static = {f"i:{client}": client for client in STATIC.values()}
    assert found == static | {f"m:{member_id}": client for member_id, client in DYNAMIC.items()}


@pytest.mark.parametrize("snapshot_id", ["20200101T000000000Z-0badcafe", "no snapshot"])
def test_a_hint_without_its_snapshot_has_no_client_ids(lake: Path, tmp_path: Path, snapshot_id: str) -> None:
    assert client_ids(*hint_of(lake, snapshot_id)) == {}
    assert client_ids(*hint_of(tmp_path / "no lake", snapshot_id)) == {}
