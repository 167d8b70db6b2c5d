"""Required signing, and changes of the master key, on the side of evenlag: policy, commands, hint topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from assignor_core.errors import HintSignatureError
from assignor_core.hint import HintPayload, derive_broker_key, derive_group_key, encode_hint
from evenlag.cli.app import app
from evenlag.errors import PolicyError
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.policy.loader import parse_policy
from evenlag.policy.secrets import SecretRef
from evenlag.publishing.sealing.signed_records import decode_group_hint, group_signing_key, signing_key_id

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = "the first master key, of 32 bytes or more", "the second master key, of 32 bytes or more"
POLICY = """\
lake: {lake}
clusters:
  c:
    bootstrap_servers: localhost:1
{keys}groups: [{{match: "*", mode: auto}}]
"""


def policy(folder: Path, *keys: str) -> str:
    return POLICY.format(lake=folder / "lake", keys="".join(f"    {key}\n" for key in keys))


def hint(key: bytes | None, *, for_brokers: bool = False) -> bytes:
    fields: dict[str, Any] = {"member_ids": {}} if for_brokers else {}
    payload = HintPayload(
        cluster_id="A" * 21 + "Q",
        group_id="g",
        snapshot_id="s",
        fingerprint="0" * 64,
        assignment={},
        count_slack=0,
        max_moves=0,
        **fields,
    )
    return encode_hint(payload.encode(), sequence=1, issued_at_ms=1, expires_at_ms=2, group_key=key)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["required_signing: true"], "required_signing needs a hint_signing_key"),
        (["required_signing: true", "approval_key: {env: A}"], "required_signing needs a hint_signing_key"),
        (["previous_hint_signing_key: {env: A}"], "previous_hint_signing_key needs a hint_signing_key"),
        (["previous_approval_key: {env: A}"], "previous_approval_key needs a approval_key"),
    ],
)
def test_a_policy_that_lost_its_key_is_an_error(tmp_path: Path, keys: list[str], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse_policy(policy(tmp_path, *keys), environ={})


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--publish"],
        ["hints"],
        ["hints", "withdraw", "g", "--reason", "x"],
        ["plans", "approve", "ab12", "--reason", "x"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_no_command_works_where_signing_is_required_and_no_key_is_given(
    tmp_path: Path, words: list[str]
) -> None:
    config = tmp_path / "evenlag.yaml"
    config.write_text(policy(tmp_path, "required_signing: true"), encoding="utf-8")
    done = CliRunner().invoke(app, [*words, "--config", str(config)])
    assert done.exit_code == 2, done.output
    assert "required_signing needs a hint_signing_key" in " ".join(done.stderr.split())
    assert not (tmp_path / "lake").exists()


def test_with_the_key_unsigned_records_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEW", NEW)
    cluster = ClusterSettings(
        bootstrap_servers=("b:9092",), hint_signing_key=SecretRef(env="NEW"), required_signing=True
    )
    with pytest.raises(HintSignatureError):
        decode_group_hint(hint(None), "g", cluster)
    assert decode_group_hint(hint(group_signing_key(cluster, "g")), "g", cluster).signed


def test_while_the_master_key_is_changed_hints_of_the_previous_one_are_still_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OLD", OLD)
    monkeypatch.setenv("NEW", NEW)
    during = ClusterSettings(
        bootstrap_servers=("b:9092",),
        hint_signing_key=SecretRef(env="NEW"),
        previous_hint_signing_key=SecretRef(env="OLD"),
    )
    after = ClusterSettings(bootstrap_servers=("b:9092",), hint_signing_key=SecretRef(env="NEW"))
    for derive, for_brokers in ((derive_group_key, False), (derive_broker_key, True)):
        for master, is_known_after in ((OLD, False), (NEW, True)):
            value = hint(derive(master.encode(), "g"), for_brokers=for_brokers)
            assert decode_group_hint(value, "g", during).signed
            if is_known_after:
                assert decode_group_hint(value, "g", after).signed
            else:
                with pytest.raises(HintSignatureError):
                    decode_group_hint(value, "g", after)
        # A key of the other protocol passes for nobody, whichever master key it is derived from.
        with pytest.raises(HintSignatureError):
            decode_group_hint(hint(derive(OLD.encode(), "g"), for_brokers=not for_brokers), "g", during)
    # What is signed now is signed by the new key, and events record which one that was.
    assert group_signing_key(during, "g") == derive_group_key(NEW.encode(), "g")
    assert signing_key_id(during) == signing_key_id(after)
    assert signing_key_id(ClusterSettings(bootstrap_servers=("b:9092",))) is None
