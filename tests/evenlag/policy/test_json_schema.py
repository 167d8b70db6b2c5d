"""The schema accepts and refuses what the settings accept and refuse."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from evenlag.policy.settings import render_schema
from tests.evenlag.policy.test_loader import POLICY


def violations(policy: Any) -> list[str]:
    checker = jsonschema.Draft202012Validator(json.loads(render_schema()))
    return [error.json_path for error in checker.iter_errors(policy)]


def test_a_policy_that_is_valid_is_so_by_the_schema() -> None:
    assert violations(yaml.safe_load(POLICY)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "where"),
    [
        ("mode: approve", "mod: approve", "$.groups[0]"),
        ("mode: approve", "mode: aprove", "$.groups[0].mode"),
        ("mode: approve", "gates: {cooldown_s: -1}", "$.groups[0].gates.cooldown_s"),
        ("mode: approve", "capacities: [{match: a, capacity: 0}]", "$.groups[0].capacities"),
        ("bootstrap_servers: [c1:9092]", "brokers: c1", "$.clusters.other"),
        (
            "bootstrap_servers: [c1:9092]",
            "hint_topic_replication_factor: 32768",
            "$.clusters.other.hint_topic_replication_factor",
        ),
    ],
)
def test_a_mistake_is_one_by_the_schema_too(right: str, wrong: str, where: str) -> None:
    assert where in violations(yaml.safe_load(POLICY.replace(right, wrong)))
