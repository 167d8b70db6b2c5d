"""Rates of arrivals in each hour that is over, by partition.

An hour's rate is that between the snapshots nearest to its begin and its end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evenlag.lag.arrays import Int64s, codes, find_places, floats, integers, seconds
from evenlag.lag.forecast import Hours


def rates_between(first: pa.Table, last: pa.Table) -> pa.Table:
    """Return ``topic_id, topic, partition, arrival_rate_records_per_s`` of two snapshots' ``offsets``.

    Partitions whose log grew by less than nothing, or whose end is unknown in one of them, are left out.
    """
    of_first, of_last = partition_keys(first, last)
    place = find_places(of_last, of_first)
    before = first.take(pa.array(place, mask=place < 0))
    grown = floats(last["high_watermark"]) - floats(before["high_watermark"])
    apart_s = seconds(last["end_read_at"]) - seconds(before["end_read_at"])
    is_known = (grown >= 0) & (apart_s > 0)
    rate = np.divide(grown, apart_s, out=np.zeros(len(place)), where=is_known)
    found = last.select(["topic_id", "topic", "partition"]).append_column(
        "arrival_rate_records_per_s", pa.array(rate)
    )
    return found.filter(pa.array(is_known))


def partition_keys(*tables: pa.Table) -> list[Int64s]:
    """Return a number for each row that only the same partition of the same topic has, in all tables."""
    names = [pc.binary_join_element_wise(one["topic_id"], one["topic"], "/") for one in tables]
    known = pc.unique(pa.chunked_array([chunk for each in names for chunk in each.chunks], pa.string()))
    topics: list[str] = known.to_pylist()
    return [
        (codes(name, topics) << 32) + integers(one["partition"])
        for name, one in zip(names, tables, strict=True)
    ]


def hours_of(partitions: pa.Table, rates: pa.Table) -> Hours:
    """Return the rates of partitions, in their order."""
    key, of_rates = partition_keys(partitions, rates)
    hour = (seconds(rates["hour"]) // 3_600).astype(np.int64)
    numbers = np.unique(hour)
    found = np.full((len(key), len(numbers)), np.nan)
    rate = rates["arrival_rate_records_per_s"].to_numpy()
    for column, number in enumerate(numbers.tolist()):
        rows = np.flatnonzero(hour == number)
        place = find_places(key, of_rates[rows])
        found[:, column] = np.where(place >= 0, rate[rows][place] if len(rows) else np.nan, np.nan)
    return Hours(numbers, found)
