"""How many records a group is behind on partitions, and how sure that is, in arrays.

For few rows: live offsets, and small snapshots. ``spark_jobs.transforms.lag`` has the same formula as columns
of Spark, for the rows of large snapshots. ``tests/support/lag_rules.py`` has the cases that both must pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from evenlag.enums import LagStatus, ResetPolicy
from evenlag.planning.offset_rows import UNKNOWN, integers

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# In the order in which they apply: what invalidates a value comes before what explains it.
_STATUSES: Final = (
    LagStatus.UNKNOWN,
    LagStatus.NO_MEMBERS,
    LagStatus.NOT_SUBSCRIBED,
    LagStatus.NO_COMMIT,
    LagStatus.DATA_LOSS,
    LagStatus.NEGATIVE,
    LagStatus.OK,
)


def count_lag(
    committed: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reset_policy: str | None,
    reset: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Count the lag of partitions of groups with the same reset policy.

    Parameters
    ----------
    committed, start, end
        Offsets, int64 of the same shape; -1: no commit, or unknown.
    reset_policy
        Where the group's consumers start without a valid commit; None: unknown.
    reset
        Offset where they start if the policy is ``by_duration:…``, as `start`; None: unknown.

    Returns
    -------
    ndarray
        Lag in records, int64; -1: unknown.
    """
    lag = np.maximum(end - committed, 0)
    after_reset = np.full_like(end, UNKNOWN)
    if reset_policy == ResetPolicy.LATEST:
        after_reset = np.zeros_like(end)
    elif reset_policy == ResetPolicy.EARLIEST:
        after_reset = np.maximum(end - start, 0)
    elif reset is not None:
        after_reset = np.where(reset < 0, UNKNOWN, np.maximum(end - np.maximum(reset, start), 0))
    lag = np.where(committed < start, after_reset, lag)
    return np.where((start < 0) | (end < 0), UNKNOWN, lag)


def count_lag_by_policy(
    committed: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    reset_policy: pa.Array,
    reset_offsets: pa.ListArray,
) -> NDArray[np.int64]:
    """Count the lag of partitions of groups; those with the same reset policy are counted together.

    Parameters
    ----------
    committed, start, end
        Offsets, int64 [N]; -1: no commit, or unknown.
    reset_policy
        string [N]: where the group's consumers start without a valid commit; null: unknown.
    reset_offsets
        [N] lists, as in ``offsets``: where consumers start by each policy ``by_duration:…``.

    Returns
    -------
    ndarray
        int64 [N]: lag in records; -1: unknown.
    """
    reset = _reset_offset(reset_offsets, reset_policy)
    policies = reset_policy.dictionary_encode()
    number = integers(policies.indices)
    lag = np.full(len(number), UNKNOWN, dtype=np.int64)
    for index, policy in [(UNKNOWN, None), *enumerate(policies.dictionary.to_pylist())]:
        rows = np.flatnonzero(number == index)
        lag[rows] = count_lag(committed[rows], start[rows], end[rows], policy, reset[rows])
    return lag


def _reset_offset(reset_offsets: pa.ListArray, reset_policy: pa.Array) -> NDArray[np.int64]:
    """Where consumers start that reset by the duration of their group's reset policy; -1: unknown."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parent = np.asarray(pc.list_parent_indices(reset_offsets).to_numpy(), dtype=np.int64)
    each = pc.list_flatten(reset_offsets)
    is_its = pc.equal(pc.struct_field(each, "reset_policy"), reset_policy.take(pa.array(parent)))
    first = first_in_lists(
        pc.fill_null(is_its, False).to_numpy(zero_copy_only=False), parent, len(reset_offsets)
    )
    offsets = pc.struct_field(each, "offset").take(pa.array(first, mask=first < 0))
    return integers(offsets)


def first_in_lists(
    is_wanted: NDArray[np.bool_], parent: NDArray[np.int64], num_lists: int
) -> NDArray[np.int64]:
    """Find the first wanted element of each list.

    Parameters
    ----------
    is_wanted
        bool [M]: of all elements, list by list.
    parent
        int64 [M]: the list of each.
    num_lists
        Number of lists.

    Returns
    -------
    numpy.ndarray
        int64 [num_lists]: the elements; -1: a list has none.
    """
    found = np.full(num_lists, UNKNOWN, dtype=np.int64)
    wanted = np.flatnonzero(is_wanted)
    lists, place = np.unique(parent[wanted], return_index=True)
    found[lists] = wanted[place]
    return found


def find_status(
    committed: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    *,
    is_unknown: NDArray[np.bool_],
    is_empty: NDArray[np.bool_],
    is_not_subscribed: NDArray[np.bool_],
) -> pa.Array:
    """Find the status of partitions of groups: the first one that applies.

    Parameters
    ----------
    committed, start, end
        Offsets, int64 [N]; -1: no commit, or unknown.
    is_unknown
        bool [N]: whether the group or an offset could not be read.
    is_empty
        bool [N]: whether the group has no members.
    is_not_subscribed
        bool [N]: whether it is known that no live member subscribes to the topic.

    Returns
    -------
    pyarrow.Array
        string [N]: values of :class:`~evenlag.enums.LagStatus`.
    """
    import pyarrow as pa

    conditions = (
        is_unknown,
        is_empty,
        is_not_subscribed,
        committed < 0,
        committed < start,
        committed > end,
        np.ones(len(end), dtype=np.bool_),
    )
    status = np.argmax(np.vstack(conditions), axis=0)
    return pa.array([each.value for each in _STATUSES], pa.string()).take(pa.array(status))
