"""What may tell of a person is hidden before it is written, so that it still tells who is the same."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from evenlag.errors import PolicyError, SecretError
from evenlag.lake.tables import TABLES
from evenlag.policy.cluster_settings import PrivacySettings
from evenlag.policy.loader import parse_policy

ROWS: list[dict[str, Any]] = [
    {"member_id": "a-1", "client_id": "a", "client_host": "/10.0.0.1"},
    {"member_id": "b-1", "client_id": "b", "client_host": "/10.0.0.1"},
    {"member_id": None, "client_id": None, "client_host": None},
]


def settings(text: str) -> PrivacySettings:
    policy = f'lake: /lake\nclusters:\n  orders: {{bootstrap_servers: "a:1", privacy: {text}}}\n'
    return parse_policy(policy, environ={}).policy.clusters["orders"].privacy


def test_by_default_all_is_kept_and_no_row_is_copied() -> None:
    assert PrivacySettings().pseudonymizer().apply(ROWS) is ROWS


def test_a_hash_tells_who_is_the_same_and_not_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "first key, as long as it has to be")
    privacy = settings("{hosts: hash, client_ids: drop, key: {env: KEY}}")
    first, second, empty = privacy.pseudonymizer().apply(ROWS)
    assert first["client_host"] == second["client_host"]
    assert first["client_host"].startswith("~")
    assert "10.0" not in first["client_host"]
    assert (first["client_id"], second["client_id"]) == (None, None)
    assert [row["member_id"] for row in (first, second)] == ["a-1", "b-1"]
    assert empty == ROWS[2]
    assert ROWS[0]["client_host"] == "/10.0.0.1", "what was read is not changed"
    monkeypatch.setenv("KEY", "another key, as long as it has to be")
    assert privacy.pseudonymizer().apply(ROWS)[0]["client_host"] != first["client_host"]


def test_the_same_text_in_two_columns_cannot_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k" * 32)
    privacy = settings("{hosts: hash, client_ids: hash, key: {env: KEY}}")
    [row] = privacy.pseudonymizer().apply([{"client_id": "same", "client_host": "same"}])
    assert row["client_id"] != row["client_host"]


def test_without_its_key_nothing_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PolicyError, match="hash needs a key"):
        settings("{hosts: hash}")
    monkeypatch.setenv("KEY", "k" * 31)
    with pytest.raises(SecretError, match="variable KEY has 31 bytes: give at least 32"):
        settings("{hosts: hash, key: {env: KEY}}").pseudonymizer()
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(SecretError, match="KEY"):
        settings("{hosts: hash, key: {env: KEY}}").pseudonymizer().apply(ROWS)


def test_what_travels_to_an_executor_hides_alike_and_does_not_show_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KEY", "do not show this, which is long enough")
    pseudonymizer = settings("{hosts: hash, key: {env: KEY}}").pseudonymizer()
    assert "do not show" not in repr(pseudonymizer)
    travelled = pickle.loads(pickle.dumps(pseudonymizer))  # noqa: S301  # made right here
    assert travelled.apply(ROWS) == pseudonymizer.apply(ROWS)


def test_the_page_tells_every_table_that_holds_such_a_column() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "privacy.md").read_text(encoding="utf-8")
    telling = {"client_host", "client_id", "actor", "member_id", "owner_member_id", "group_instance_id"}
    shown = {
        (table.name, column)
        for table in TABLES.values()
        for column in telling
        if any(column == one.name or f"{column}:" in one.type for one in table.columns)
    }
    missing = [name for name, _ in sorted(shown) if f"`{name}`" not in page]
    assert missing == []
