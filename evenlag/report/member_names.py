"""Display names of members: member ids are long and change with each restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.report.scope import Scope

NOBODY = "nobody"


class Names:
    """Display names: instance id, else client id, else member id.

    If several members of the period share a client id, the end of the member id is appended.
    """

    def __init__(self, known: Mapping[str, tuple[str | None, str | None]]) -> None:
        shared: dict[str, set[str]] = {}
        for member_id, (instance, client) in known.items():
            plain = instance or client
            if plain:
                shared.setdefault(plain, set()).add(f"i:{instance}" if instance else member_id)
        self._names = {
            member_id: _name(member_id, instance, client, shared)
            for member_id, (instance, client) in known.items()
        }

    def of(self, member_id: str | None) -> str:
        """Return the display name of a member."""
        if member_id is None:
            return NOBODY
        return self._names.get(member_id, member_id)


def _name(member_id: str, instance: str | None, client: str | None, shared: Mapping[str, set[str]]) -> str:
    if instance:
        return instance
    if not client:
        return member_id
    return client if len(shared[client]) == 1 else f"{client} …{member_id[-4:]}"


def read_names(scope: Scope) -> Names:
    """Read the display names of all members of a period."""
    import pyarrow.compute as pc

    from evenlag.lake.tables import MEMBERS

    columns = ["member_id", "group_instance_id", "client_id"]
    rows = scope.reader.read(MEMBERS, columns=columns, filters=scope.filters())
    rows = rows.filter(pc.is_valid(rows["member_id"])).group_by(columns).aggregate([])
    return Names({row["member_id"]: (row["group_instance_id"], row["client_id"]) for row in rows.to_pylist()})
