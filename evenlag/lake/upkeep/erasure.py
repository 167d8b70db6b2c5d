"""Which values of the tables an erasure request concerns, and what becomes of them.

A group's rows are deleted. A member's names, and a group's name in texts about other things, become the text
``erased``. A name counts where it stands alone, not as a part of a longer name; a member id that is the name
and Kafka's random suffix counts too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import ne
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from evenlag.lake.tables import Table

ERASED: Final = "erased"
# Texts that may name a group or a member.
_TEXTS: Final = (
    "reason",
    "outcome_reason",
    "mode_reason",
    "message",
    "observed",
    "summary",
    "error",
    "subscription_error",
    "assignment_error",
    "commit_problem",
    "subscription_problem",
    "owner_problem",
    "problems",
    "actor",
    "actor_name",
    "account",
    "approvers",
    "violations",
)
_MEMBER_COLUMNS: Final = (
    "member_id",
    "group_instance_id",
    "client_id",
    "client_host",
    "owner_member_id",
    "target_member_id",
    "owner_before",
    "owner_after",
    "owner_after_key",
    "owner_key",
    "payload",
    "settings",
    "members",
    "returned",
)
_RANDOM: Final = "-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PART_OF_A_NAME: Final = "[0-9A-Za-z_.-]"


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure request, by the name of a group, or by a member id, instance id, client id or host."""

    name: str
    is_group: bool

    @property
    def pattern(self) -> str:
        """A regular expression for the name, for Python and Java."""
        names = "|".join(map(re.escape, self._spellings()))
        suffix = "" if self.is_group else f"(?:{_RANDOM})?"
        return f"(?<!{_PART_OF_A_NAME})(?:{names}){suffix}(?!{_PART_OF_A_NAME})"

    def columns(self, table: Table) -> tuple[str, ...]:
        """Return the columns of a table that may have the name."""
        wanted = _TEXTS if self.is_group else (*_MEMBER_COLUMNS, *_TEXTS)
        return tuple(name for name in table.column_names if name in wanted)

    def row_column(self, table: Table) -> str | None:
        """Return the column whose value deletes a row that has the name; None if rows stay."""
        if not self.is_group:
            return None
        found = (name for name in ("group_id", "subject") if name in table.column_names)
        return next(found, None)

    def applies_to(self, table: Table) -> bool:
        """Return whether a table may have the name."""
        return self.row_column(table) is not None or bool(self.columns(table))

    def count(self, batch: pa.RecordBatch, table: Table) -> int:
        """Count the rows that the request deletes or changes."""
        return self._apply(batch, table)[1]

    def erase(self, batches: Iterable[pa.RecordBatch], table: Table) -> Iterator[pa.RecordBatch]:
        """Delete or change the rows that have the name."""
        return (self._apply(batch, table)[0] for batch in batches)

    def _apply(self, batch: pa.RecordBatch, table: Table) -> tuple[pa.RecordBatch, int]:
        """Return a batch without the name, and the number of its rows that were deleted or changed."""
        is_deleted: Any = pa.array([False] * batch.num_rows, pa.bool_())
        if (column := self.row_column(table)) is not None:
            is_deleted = pc.fill_null(pc.equal(batch[column], self.name), False)
        is_hit = is_deleted
        for name in self.columns(table):
            # A table of an earlier version may lack columns.
            if name in batch.schema.names and _may_have(batch[name], self._spellings()):
                values, field = batch[name].to_pylist(), batch.schema.field(name)
                changed = [self._replace(value) for value in values]
                is_hit = pc.or_(is_hit, pa.array(list(map(ne, values, changed)), pa.bool_()))
                place = batch.schema.get_field_index(name)
                batch = batch.set_column(place, field, pa.array(changed, field.type))
        return batch.filter(pc.invert(is_deleted)), int(is_hit.true_count)

    def _spellings(self) -> tuple[str, ...]:
        # In JSON, characters may be escaped.
        return tuple(dict.fromkeys((self.name, json.dumps(self.name)[1:-1])))

    def _replace(self, value: Any) -> Any:
        """Replace the name in a value of any type."""
        if isinstance(value, str):
            return re.sub(self.pattern, ERASED, value)
        if isinstance(value, list):
            return [self._replace(one) for one in value]
        if isinstance(value, dict):
            return {key: self._replace(one) for key, one in value.items()}
        return value


def _may_have(values: Any, parts: Iterable[str]) -> bool:
    """Whether any text in an array may have one of some parts."""
    kind = values.type
    if pa.types.is_string(kind):
        return any(pc.any(pc.match_substring(values, part)).as_py() for part in parts)
    if pa.types.is_list(kind):
        return _may_have(values.flatten(), parts)
    if pa.types.is_struct(kind):
        return any(_may_have(one, parts) for one in values.flatten())
    return False
