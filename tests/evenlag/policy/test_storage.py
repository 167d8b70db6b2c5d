"""The section `storage` of the policy: an S3 store's address, and references to its access key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from evenlag.errors import PolicyError
from evenlag.policy.loader import load_policy, parse_policy

if TYPE_CHECKING:
    from pathlib import Path

START = "lake: s3://bucket/lake\nclusters:\n  a: {bootstrap_servers: a:1}\nstorage:\n"
VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_ALLOW_HTTP",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        # Set first, so that what the test sets is removed after it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def aws() -> dict[str, str]:
    return {name: os.environ[name] for name in VARIABLES if name in os.environ}


@pytest.mark.usefixtures("clean")
def test_who_reads_the_policy_gets_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, secret = tmp_path / "evenlag.yaml", tmp_path / "key"
    file.write_text(
        START
        + "  endpoint: http://store:9000\n  region: eu-central-1\n  access_key_id: {env: LAKE_KEY}\n"
        + f"  secret_access_key: {{file: {secret}}}\n"
    )
    address = {
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": "http://store:9000",
        "AWS_REGION": "eu-central-1",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    # A scheduler has the policy, but not its secrets.
    load_policy(file)
    assert aws() == address
    monkeypatch.setenv("LAKE_KEY", "an-id")
    secret.write_text("a-key\n")
    loaded = load_policy(file)
    assert aws() == address | {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-key"}
    # The lake stores the text: it has the references.
    assert "an-id" not in loaded.text
    assert "a-key" not in loaded.text


@pytest.mark.usefixtures("clean")
def test_a_policy_that_is_only_parsed_changes_nothing() -> None:
    parse_policy(START + "  region: eu-central-1\n", environ={})
    assert aws() == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  endpoint: store:9000\n", "endpoint"),
        ("  endpoint: https://id:key@store:9000\n", "endpoint"),
        ("  access_key_id: AKIAEXAMPLE\n", "must be a secret"),
        ("  access_key_id: {env: A}\n", "set both, or none"),
        ("  session_token: {env: A}\n", "session_token needs"),
        ("  key: {env: A}\n", "key"),
    ],
)
def test_mistakes_are_named_without_a_secret(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as refused:
        parse_policy(START + text, environ={})
    assert "AKIAEXAMPLE" not in str(refused.value)
