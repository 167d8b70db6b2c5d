"""The schema that is shipped is the one of the settings, and takes and refuses what they do."""

from __future__ import annotations

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from evenlag.policy.json_schema import SCHEMA_PATH, render_schema
from tests.evenlag.policy.test_loader import POLICY

WRITE_ANEW = "python -m evenlag.policy.json_schema > evenlag/policy/policy.schema.json"


def violations(policy: Any) -> list[str]:
    checker = jsonschema.Draft202012Validator(json.loads(SCHEMA_PATH.read_text(encoding="utf-8")))
    return [error.json_path for error in checker.iter_errors(policy)]


def test_the_shipped_schema_is_the_one_of_the_settings() -> None:
    assert SCHEMA_PATH.read_text(encoding="utf-8") == render_schema(), WRITE_ANEW


def test_a_policy_that_is_valid_is_so_by_the_schema() -> None:
    assert violations(yaml.safe_load(POLICY)) == []


@pytest.mark.parametrize(
    ("right", "wrong", "where"),
    [
        ("mode: approve", "mod: approve", "$.groups[0]"),
        ("mode: approve", "mode: aprove", "$.groups[0].mode"),
        ("mode: approve", "gates: {cooldown_s: -1}", "$.groups[0].gates.cooldown_s"),
        ("mode: approve", "capacities: [{match: a, capacity: 0}]", "$.groups[0].capacities[0].capacity"),
        ("bootstrap_servers: [c1:9092]", "brokers: c1", "$.clusters.other"),
    ],
)
def test_a_mistake_is_one_by_the_schema_too(right: str, wrong: str, where: str) -> None:
    assert where in violations(yaml.safe_load(POLICY.replace(right, wrong)))
