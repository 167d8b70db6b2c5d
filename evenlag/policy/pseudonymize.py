"""Hides personal data in the rows of a snapshot before they are written: hashes it, or removes it.

A hash keeps what an audit needs (two members are on one host, a member came back) and does not reveal the
host to anybody without the key. The key is essential: there are so few addresses that a hash without a key
can be reversed by trying all of them.
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

# The prefix distinguishes hashes from names. 80 bits keep a hash short enough for people to compare.
PREFIX: Final = "~"
_HEX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Pseudonymizer:
    """Hides columns of rows. Plain values only, so that a task's closure can carry it to an executor.

    columns: What to do with a column, by its name; other columns stay.
    """

    columns: Mapping[str, str]
    key: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, privacy: PrivacySettings) -> Pseudonymizer:
        """Build the pseudonymizer of a policy for rows of ``members``; without a key if nothing is hashed."""
        wanted = {"client_host": privacy.hosts, "client_id": privacy.client_ids}
        columns = {name: how.value for name, how in wanted.items() if how is not Disclosure.KEEP}
        key = privacy.key.resolve_key() if privacy.key and columns else b""
        return cls(columns, key)

    def apply(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return copies of the rows with hidden columns, the same rows if there are none; null stays null."""
        if not self.columns:
            return rows
        copies = [dict(row) for row in rows]
        for name, how in self.columns.items():
            hidden: dict[str, str | None] = {}
            for row in copies:
                value = row.get(name)
                if value is None:
                    continue
                # Many members, few hosts: each host is hashed once.
                if value not in hidden:
                    hidden[value] = self._hash(name, value) if how == Disclosure.HASH else None
                row[name] = hidden[value]
        return copies

    def _hash(self, name: str, value: str) -> str:
        """Hash a value; the same value in two columns has two hashes."""
        digest = hmac.new(self.key, f"{name}\0{value}".encode(), hashlib.sha256).hexdigest()
        return PREFIX + digest[:_HEX_DIGITS]
