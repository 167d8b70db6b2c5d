"""A policy may refer to the variables and folders that the deployment allows, and to nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.errors import SecretError
from evenlag.kafka.connection import kafka_client_settings
from evenlag.policy.loader import parse_policy
from evenlag.policy.secrets import SecretRef

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("allowed", "reference", "is_allowed"),
    [
        (None, {"env": "EVENLAG_HINT_KEY"}, True),
        (None, {"env": "PATH"}, False),
        (None, {"env": "AWS_SECRET_ACCESS_KEY"}, False),
        (None, {"env": "evenlag_x"}, False),
        (None, {"file": "/run/secrets/kafka/password"}, True),
        (None, {"file": "/etc/evenlag/hint-key"}, True),
        (None, {"file": "/etc/passwd"}, False),
        (None, {"file": "/run/secrets/../../etc/passwd"}, False),
        (None, {"file": "/run/secrets-of-others"}, False),
        (None, {"file": "relative"}, False),
        ("ORDERS_*, /mnt/keys", {"env": "ORDERS_PASSWORD"}, True),
        ("ORDERS_*, /mnt/keys", {"file": "/mnt/keys/a"}, True),
        ("ORDERS_*, /mnt/keys", {"env": "EVENLAG_HINT_KEY"}, False),
        ("ORDERS_*, /mnt/keys", {"file": "/run/secrets/a"}, False),
        # An empty variable is one that is not set.
        ("", {"env": "EVENLAG_HINT_KEY"}, True),
    ],
)
def test_a_reference_is_resolved_where_the_deployment_allows_it(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None, reference: dict[str, Any], is_allowed: bool
) -> None:
    monkeypatch.delenv("EVENLAG_SECRETS")
    if allowed is not None:
        monkeypatch.setenv("EVENLAG_SECRETS", allowed)
    given = SecretRef.model_validate(reference)
    if is_allowed:
        given.require_allowed()
        return
    (place,) = reference.values()
    with pytest.raises(SecretError, match="a policy may not refer to") as caught:
        given.resolve()
    assert place in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_link_does_not_lead_out_of_an_allowed_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kubernetes mounts secrets as links, too, but within the folder."""
    inside, outside = tmp_path / "secrets", tmp_path / "elsewhere"
    (inside / "..data").mkdir(parents=True)
    for file in (inside / "..data" / "key", outside):
        file.write_text("s3cret-value", encoding="utf-8")
    (inside / "key").symlink_to(inside / "..data" / "key")
    (inside / "out").symlink_to(outside)
    monkeypatch.setenv("EVENLAG_SECRETS", str(inside))
    assert SecretRef(file=inside / "key").resolve() == "s3cret-value"
    with pytest.raises(SecretError, match="may not refer to"):
        SecretRef(file=inside / "out").resolve()


def test_a_policy_sends_no_variable_of_the_process_to_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENLAG_SECRETS")
    text = """
lake: /lake
clusters:
  c:
    bootstrap_servers: broker-of-the-author:9092
    kafka: {security_protocol: SASL_PLAINTEXT, sasl_mechanism: PLAIN, sasl_plain_username: x,
      sasl_plain_password: {env: PATH}}
"""
    cluster = parse_policy(text, environ={}).policy.clusters["c"]
    with pytest.raises(SecretError, match="variable PATH"):
        kafka_client_settings(cluster)
