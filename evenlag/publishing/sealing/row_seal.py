"""Seals of rows: an HMAC over all columns of a row, in its column ``seal``.

Whoever can write the lake can edit a row, but not its seal. A seal names its table and covers every value,
so a row cannot pass for one of another table, plan or cluster. Null values are left out: a column that a
later version adds is null in older rows, and their seals stay valid.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from evenlag.lake.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from evenlag.lake.tables import Table
    from evenlag.policy.cluster_settings import ClusterSettings
    from evenlag.policy.secrets import SecretRef

SEAL: Final = "seal"
_VERSION: Final = "1"
_KEY_ID_LENGTH: Final = 16
_ROW_CONTEXT: Final = b"evenlag row seal v1\x00"
_KEY_ID_CONTEXT: Final = b"evenlag key id v1\x00"
_DERIVED_CONTEXT: Final = b"evenlag approval key v1\x00"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Sealer:
    """Seals rows, and checks seals; the keys are read when the first row needs them.

    read_keys: Returns the key that seals, then earlier keys whose seals are still accepted.
    """

    def __init__(self, read_keys: Callable[[], Sequence[bytes]]) -> None:
        self._read_keys = read_keys
        self._keys: dict[str, bytes] = {}

    @classmethod
    def of(cls, settings: ClusterSettings) -> Self | None:
        """Return the sealer of a cluster."""
        if settings.approval_key is None and settings.hint_signing_key is None:
            return None
        return cls(lambda: approval_keys(settings))

    def seal(self, table: Table, row: Mapping[str, Any], evidence: Sequence[str] | None = None) -> str:
        """Return the seal of a row, as :func:`as_stored` returns it.

        evidence: Seals of the rows that this one depends on; their order does not matter.
        """
        key_id, key = next(iter(self._known_keys().items()))
        return f"{_VERSION}:{key_id}:{_hmac(key, _message(table, row, evidence))}"

    def holds(self, table: Table, row: Mapping[str, Any], evidence: Sequence[str] | None = None) -> bool:
        """Return whether a row has the seal that one of the keys gives it."""
        version, _, rest = str(row.get(SEAL) or "").partition(":")
        key_id, _, found = rest.partition(":")
        key = self._known_keys().get(key_id)
        if version != _VERSION or key is None:
            return False
        wanted = _hmac(key, _message(table, row, evidence))
        return hmac.compare_digest(wanted.encode(), found.encode())

    def seal_rows(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return rows as they are stored, each with its seal."""
        return [row | {SEAL: self.seal(table, row)} for row in as_stored(table, rows)]

    def seal_some(self, table: Table, rows: pa.Table, chosen: Sequence[bool]) -> pa.Table:
        """Return rows with the seals of some of them."""
        listed = rows.filter(pa.array(chosen, pa.bool_())).to_pylist()
        seals = iter([self.seal(table, row) for row in listed])
        column = pa.array([next(seals) if is_chosen else None for is_chosen in chosen], pa.string())
        return rows.set_column(rows.schema.get_field_index(SEAL), SEAL, column)

    def _known_keys(self) -> dict[str, bytes]:
        if not self._keys:
            self._keys = {key_id(key): key for key in self._read_keys()}
        return self._keys


def approval_keys(settings: ClusterSettings) -> list[bytes]:
    """Read the keys that seal approvals: the policy's own, or ones derived from the signing keys."""
    if settings.approval_key is not None:
        return [ref.resolve_key() for ref in _given(settings.approval_key, settings.previous_approval_key)]
    masters = _given(settings.hint_signing_key, settings.previous_hint_signing_key)
    return [hmac.digest(ref.resolve_key(), _DERIVED_CONTEXT, "sha256") for ref in masters]


def key_id(key: bytes) -> str:
    """Return the public name of a key: it identifies the key and reveals nothing of it."""
    return hmac.new(key, _KEY_ID_CONTEXT, hashlib.sha256).hexdigest()[:_KEY_ID_LENGTH]


def as_stored(table: Table, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows as a reader of the table gets them: all columns, in the types of the contract."""
    schema = arrow_schema(table)
    return list(pa.Table.from_pylist([dict(row) for row in rows], schema=schema).to_pylist())


def _given(*refs: SecretRef | None) -> list[SecretRef]:
    return [ref for ref in refs if ref is not None]


def _hmac(key: bytes, message: bytes) -> str:
    return hmac.digest(key, message, "sha256").hex()


def _message(table: Table, row: Mapping[str, Any], evidence: Sequence[str] | None) -> bytes:
    content: dict[str, Any] = {"table": table.name, "row": _plain({**row, SEAL: None})}
    if evidence is not None:
        content["evidence"] = sorted(evidence)
    return _ROW_CONTEXT + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """The value in JSON; two values of a column never become the same text."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return (value - _EPOCH) // _MICROSECOND
    return value.isoformat() if isinstance(value, date) else value
