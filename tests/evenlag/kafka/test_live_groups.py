"""The check of groups right before publishing: what it makes of the topics that members subscribe to."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any
from unittest.mock import Mock

import pytest

from evenlag.enums import GroupType
from evenlag.kafka import live_groups

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize(
    ("name", "code"), [("payments", 3), ("orders ", 17), ("", 17), ("a" * 250, 17), ("..", 17)]
)
def test_a_topic_that_does_not_exist_or_cannot_is_no_part_of_a_group(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    """A snapshot does not have it either: it reads the topics that exist."""
    held = [{"topic": "orders", "partitions": [0, 1]}]
    member: dict[str, Any] = {
        "group_id": "g", "group_state": "Stable", "group_type": "consumer", "assignor": "evenlag",
        "error": None, "member_id": "a", "group_instance_id": None, "subscription": ["orders", name],
        "assignment": held, "target_assignment": held,
    }  # fmt: skip
    monkeypatch.setattr(live_groups, "describe_named_groups", lambda *_: [member])
    client = Mock()
    client.describe_topics.return_value = [
        {"name": "orders", "topic_id": TOPIC_ID, "partitions": [{}, {}], "error_code": 0},
        {"name": name, "topic_id": "A" * 22, "partitions": [], "error_code": code},
    ]
    found = live_groups.read_live_groups(client, {"g": GroupType.CONSUMER})["g"]
    content = {"members": [["m:a", [TOPIC_ID]]], "topics": [[TOPIC_ID, 2]]}
    wanted = sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()
    assert (found.error, found.fingerprint) == (None, wanted)
