"""What may tell of a person or a machine is hidden before a reading is written: by a hash, or altogether.

A hash keeps what matters to an audit, that two members are on one host, or that a member came back, and tells
nobody who has not the key which host it was. The key makes the difference: there are so few addresses that a
hash without one is undone by trying them all.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Disclosure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.policy.cluster_settings import PrivacySettings

# A hash is told from a name by it, and short enough to be read out: 80 bits.
PREFIX: Final = "~"
_HEX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Pseudonymizer:
    """Hides columns of rows; plain values only, so that it may travel to an executor in a task's closure.

    Attributes
    ----------
    columns
        What becomes of a column, by its name; one that is not named stays.
    key
        What is hashed is hashed with it.
    """

    columns: Mapping[str, str]
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, privacy: PrivacySettings) -> Pseudonymizer:
        """As a policy says, for the rows of ``members``.

        Raises
        ------
        SecretError
            When the key is not there.
        """
        wanted = {"client_host": privacy.hosts, "client_id": privacy.client_ids}
        columns = {name: how.value for name, how in wanted.items() if how is not Disclosure.KEEP}
        key = privacy.key.resolve().encode() if privacy.key and columns else b""
        return cls(columns, key)

    def apply(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Copies of the rows with their columns hidden, null stays null; the rows themselves when none is."""
        if not self.columns:
            return rows
        copies = [dict(row) for row in rows]
        for name, how in self.columns.items():
            hidden: dict[str, str | None] = {}
            for row in copies:
                value = row.get(name)
                if value is None:
                    continue
                # Many members, few hosts: each is hashed once.
                if value not in hidden:
                    hidden[value] = self._hash(name, value) if how == Disclosure.HASH else None
                row[name] = hidden[value]
        return copies

    def _hash(self, name: str, value: str) -> str:
        """The same value in two columns gives two hashes."""
        digest = hmac.new(self.key, f"{name}\0{value}".encode(), hashlib.sha256).hexdigest()
        return PREFIX + digest[:_HEX_DIGITS]
