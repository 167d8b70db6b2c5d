"""Partitions that changed owner: adjacent rows in the history of each partition, on whole columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.audit.interval_merge import FIRST_INDEX, same_as_next
from evenlag.enums import OwnershipState

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

PARTITION_KEY: Final = ("group_id", "topic", "topic_id", "partition")
FREE_IN_A_LIVE_GROUP: Final = "no member holds it"
_FROM: Final = ("member_id", "last_seen_at", "last_snapshot_id")
_TO: Final = ("member_id", "first_seen_at", "first_snapshot_id")


def find_moves(ownership: pa.Table) -> list[dict[str, Any]]:
    """Find the changes from one owner to another.

    A partition may be free between the two, as between the two phases of a cooperative rebalance. A group
    without members ends the history: the partition was freed, and placed again later. A partition with two
    owners at once is ignored: the move is from its last single owner to its next single owner.

    Returns ``PARTITION_KEY``, ``from_member_id, last_seen_at, last_snapshot_id`` (old owner),
    ``to_member_id, first_seen_at, first_snapshot_id`` (new owner); by partition, then time.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    is_held = pc.and_(
        pc.equal(ownership["state"], OwnershipState.OWNED), pc.equal(ownership["num_owners"], 1)
    )
    is_left = pc.and_kleene(
        pc.equal(ownership["state"], OwnershipState.NOBODY),
        pc.not_equal(ownership["reason"], FREE_IN_A_LIVE_GROUP),
    )
    held = _in_order(ownership.filter(pc.or_kleene(is_held, is_left)))
    rows = _followed(held)
    rows = rows[~same_as_next(held["member_id"], rows)]
    owned = np.asarray(pc.equal(held["state"], OwnershipState.OWNED).to_numpy(), dtype=bool)
    rows = rows[owned[rows] & owned[rows + 1]]
    before, after = held.take(pa.array(rows)), held.take(pa.array(rows + 1))
    columns = {name: before[name] for name in PARTITION_KEY}
    columns |= {f"from_{name}" if name == "member_id" else name: before[name] for name in _FROM}
    columns |= {f"to_{name}" if name == "member_id" else name: after[name] for name in _TO}
    found: list[dict[str, Any]] = pa.table(columns).to_pylist()
    return found


def find_unheld(ownership: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Find the partitions that were placed (no owner before) and freed (no owner after)."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    known = _in_order(ownership.filter(pc.not_equal(ownership["state"], OwnershipState.UNKNOWN)))
    is_owned = np.asarray(pc.equal(known["state"], OwnershipState.OWNED).to_numpy(), dtype=bool)
    has_previous = np.zeros(known.num_rows, dtype=bool)
    has_previous[_followed(known) + 1] = True
    was_owned = has_previous & np.roll(is_owned, 1)
    # A partition with two owners has two rows in one snapshot, but is placed once.
    first = known[FIRST_INDEX].to_numpy()
    is_new = ~(has_previous & (np.roll(first, 1) == first))
    chosen = {"num_placed": is_owned & ~was_owned & is_new, "num_freed": ~is_owned & was_owned}
    columns = known.select([*PARTITION_KEY, "first_snapshot_id"])
    return {name: columns.filter(pa.array(rows)).to_pylist() for name, rows in chosen.items()}


def _in_order(rows: pa.Table) -> pa.Table:
    order = [*((name, "ascending") for name in PARTITION_KEY), (FIRST_INDEX, "ascending")]
    return rows.sort_by(order).combine_chunks()


def _followed(in_order: pa.Table) -> np.ndarray:
    """Numbers of the rows whose next row has the same partition."""
    import numpy as np

    rows = np.arange(max(in_order.num_rows - 1, 0))
    for name in PARTITION_KEY:
        rows = rows[same_as_next(in_order[name], rows)]
    return rows
