"""Loads at a time after their measurement, from the flow that was measured with them (ADR 114).

All is in integers, and divisions round down: the broker plug-in and the Java client give the same loads.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from assignor_core.loads import MAX_FLOW_AGE_S, LoadsPayload
from assignor_core.record import MAX_NUMBER

_NOBODY = -1


def present_loads(measured: LoadsPayload, now_ms: int) -> LoadsPayload:
    """Return the loads as they are at a time, without a flow; those without one as they are.

    Each partition gets its arrivals, and each member processes what its speed allows, an equal share of each
    partition until that is empty. A time before the measurement counts as that of the measurement: clocks
    differ. The arrivals of the horizon remain in each load. Members are those of the measurement: nobody
    knows since when a partition has another owner.

    Examples
    --------
    A member processes 4 a second of two partitions with 10 and 50, and 1 a second arrives in the second:

    >>> from assignor_core.loads import LoadFlow, LoadsPayload
    >>> flow = LoadFlow({"t": [0, 10]}, {"t": [0, 0]}, [40], per_s=10, horizon_s=0)
    >>> loads = LoadsPayload("c", "g", "s", 0, 60_000, {"t": [10, 50]}, {}, 1, 0, 0, flow=flow)
    >>> present_loads(loads, 4_000).loads, present_loads(loads, 10_000).loads
    ({'t': [2, 46]}, {'t': [0, 30]})
    """
    flow = measured.flow
    if flow is None:
        return measured
    age_s = min(max(now_ms - measured.measured_at_ms, 0) // 1000, MAX_FLOW_AGE_S)
    topics = list(measured.loads)
    load = _flat((measured.loads[topic] for topic in topics), _NOBODY)
    arrivals = _flat((flow.arrivals[topic] for topic in topics), 0)
    owner = _flat((flow.owners[topic] for topic in topics), _NOBODY)
    lasting = np.minimum(arrivals * flow.horizon_s // flow.per_s, MAX_NUMBER)
    backlog = np.minimum((load - lasting).clip(min=0) + arrivals * age_s // flow.per_s, MAX_NUMBER)
    is_known = load >= 0
    owned = np.flatnonzero(is_known & (owner >= 0))
    work = np.array(flow.speeds, dtype=np.int64) * age_s // flow.per_s
    backlog[owned] -= _processed(backlog[owned], owner[owned], work)
    now = np.minimum(backlog + lasting, MAX_NUMBER).astype(object)
    now[~is_known] = None
    ends = np.cumsum([len(measured.loads[topic]) for topic in topics])
    parts = np.split(now, ends[:-1]) if topics else []
    loads = {topic: part.tolist() for topic, part in zip(topics, parts, strict=True)}
    return replace(measured, loads=loads, flow=None)


def _flat(numbers: Iterable[Sequence[int | None]], missing: int) -> NDArray[np.int64]:
    flat = [missing if number is None else number for values in numbers for number in values]
    return np.array(flat, dtype=np.int64)


def _processed(
    backlog: NDArray[np.int64], owner: NDArray[np.int64], work: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return what members process of their partitions: min(backlog, level), int64 [N].

    The level of a member is the largest number at which that adds up to its work at most. `owner`, int64
    [N], is an index in `work`.
    """
    order = np.lexsort((backlog, owner))
    ordered, who = backlog[order], owner[order]
    num_rows = np.bincount(who, minlength=len(work))
    start = np.cumsum(num_rows) - num_rows
    before = np.cumsum(ordered) - ordered
    before -= before[start[who]] if len(who) else 0
    left = num_rows[who] - (np.arange(len(who)) - start[who])
    # What a member has processed when the level reaches this partition's backlog.
    is_empty = before + left * ordered <= work[who]
    num_empty = np.bincount(who[is_empty], minlength=len(work))
    sum_empty = np.zeros(len(work), dtype=np.int64)
    np.add.at(sum_empty, who[is_empty], ordered[is_empty])
    level = (work - sum_empty) // np.maximum(num_rows - num_empty, 1)
    level[num_empty == num_rows] = MAX_NUMBER
    processed: NDArray[np.int64] = np.minimum(backlog, level[owner])
    return processed
