"""Signatures of records of the hint topic: by which key, and which ones are accepted."""

from collections.abc import Callable
from itertools import product
from typing import TypeVar

from assignor_core.errors import HintSignatureError
from assignor_core.hint import Hint, decode_hint, derive_broker_key, derive_group_key
from assignor_core.loads import Loads, decode_loads
from evenlag.policy.cluster_settings import ClusterSettings
from evenlag.publishing.sealing.row_seal import key_id

_Record = TypeVar("_Record", Hint, Loads)


def group_signing_key(
    cluster: ClusterSettings, group_id: str, *, is_for_brokers: bool = False
) -> bytes | None:
    """Return the key that signs a group's records; None when the policy configures no signatures."""
    if cluster.hint_signing_key is None:
        return None
    return _derive(cluster.hint_signing_key.resolve_key(), group_id, is_for_brokers=is_for_brokers)


def signing_key_id(cluster: ClusterSettings) -> str | None:
    """Return the id of the master key; it is no secret. None when the policy configures no signatures."""
    return None if cluster.hint_signing_key is None else key_id(cluster.hint_signing_key.resolve_key())


def _derive(master: bytes, group_id: str, *, is_for_brokers: bool) -> bytes:
    return (derive_broker_key if is_for_brokers else derive_group_key)(master, group_id)


def decode_group_hint(value: bytes, group_id: str, cluster: ClusterSettings) -> Hint:
    """Return the hint in a record, for either protocol."""
    return _decode_either(decode_hint, value, group_id, cluster)


def decode_group_loads(value: bytes, group_id: str, cluster: ClusterSettings) -> Loads:
    """Return the record of loads in a value, for either protocol."""
    return _decode_either(decode_loads, value, group_id, cluster)


def _decode_either(
    decode: Callable[..., _Record], value: bytes, group_id: str, cluster: ClusterSettings
) -> _Record:
    if cluster.hint_signing_key is None:
        return decode(value, group_id=group_id)
    masters = [cluster.hint_signing_key, cluster.previous_hint_signing_key]
    error = HintSignatureError("the record is not signed")
    for master, is_for_brokers in product(filter(None, masters), (False, True)):
        key = _derive(master.resolve_key(), group_id, is_for_brokers=is_for_brokers)
        try:
            record = decode(value, group_id=group_id, group_key=key)
        except HintSignatureError as found:
            error = found
            continue
        if is_for_brokers != (record.payload.member_ids is not None):
            raise HintSignatureError("the record is signed by a key that is not for the group's protocol")
        return record
    raise error
