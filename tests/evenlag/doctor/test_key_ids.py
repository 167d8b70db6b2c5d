"""The doctor names keys by their ids, never by their values."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

from evenlag.doctor.policy_checks import check_secrets
from evenlag.policy.loader import parse_policy

if TYPE_CHECKING:
    import pytest

POLICY = """
lake: /nowhere
clusters: {orders: {bootstrap_servers: "b:9092", approval_key: {env: KEY}}}
"""


def test_keys_are_told_by_their_ids_so_that_two_processes_can_be_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "a key that has more than thirty-two bytes"
    monkeypatch.setenv("KEY", key)
    policy = parse_policy(POLICY, environ={}).policy
    (found,) = check_secrets(policy, ["orders"])
    wanted = hmac.new(key.encode(), b"evenlag key id v1\x00", hashlib.sha256).hexdigest()[:16]
    assert found.message == f"1 secrets are there; ids of keys: clusters.orders.approval_key {wanted}"
    assert key not in str(found)
    monkeypatch.setenv("KEY", "too short")
    (found,) = check_secrets(policy, ["orders"])
    assert "has 9 bytes: give at least 32" in found.message
