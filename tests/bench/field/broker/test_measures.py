"""The measures of a broker's run, from journals with known answers."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.bench.field.broker import measures
from tests.bench.field.broker.contenders import spans
from tests.bench.field.broker.producer import scheduled_ns
from tests.bench.field.broker.wire import ENTRY
from tests.bench.field.traces import SIZES, Trace, make_trace

if TYPE_CHECKING:
    from pathlib import Path

_BEGIN_NS = 5_000_000_000_000
_BEGIN_S = _BEGIN_NS / 1e9


def small_trace(**changes: Any) -> Trace:
    """Return two records in each of the seconds 0, 2 and 4 of ten; the warm-up is second 0 and 1."""
    counts = np.zeros((10, 1), dtype=np.int64)
    counts[[0, 2, 4]] = 2
    trace = dataclasses.replace(
        make_trace("even", 3, 0.75, SIZES["smoke"]),
        duration_s=10, warm_up_s=2, keys=(b"key",), counts=counts, cost=np.ones(1), num_partitions=2,
    )  # fmt: skip
    return dataclasses.replace(trace, **changes)


def write_records(folder: Path, entries: list[tuple[int, int, int, float]], trace: Trace) -> None:
    """Write (partition, offset, number of the record, seconds from its send until its start)."""
    due_ns = scheduled_ns(trace, _BEGIN_NS)
    with (folder / "pod-0.records").open("ab") as file:
        for partition, offset, number, waits_s in entries:
            due = int(due_ns[number])
            file.write(ENTRY.pack(partition, offset, due, due + round(waits_s * 1e9)))


def write_events(folder: Path, name: str, rows: list[tuple[float, str, Any]]) -> None:
    """Write a pod's events: seconds of the trace, event, and partitions or the generation."""
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for second, kind, value in rows:
            event: dict[str, Any] = {"at_s": _BEGIN_S + second, "event": kind, "name": name, "pid": 1}
            if kind in ("assigned", "revoked"):
                event |= {"partitions": [["t", number] for number in value[0]], "generation": value[1]}
            file.write(json.dumps(event | (value if isinstance(value, dict) else {})) + "\n")


def test_first_owners_are_the_pods_that_started_the_first_records_of_the_settled_group(
    tmp_path: Path,
) -> None:
    trace = small_trace(num_partitions=4)
    # The first pod has all for some seconds, the other one two of them later.
    write_records(tmp_path, [(0, 0, 0, 0.5), (1, 0, 1, 0.5), (2, 0, 2, 0.5), (2, 1, 3, 30.0)], trace)
    (tmp_path / "pod-0.records").rename(tmp_path / "pod-4.records")
    write_records(tmp_path, [(0, 1, 2, 40.0), (0, 2, 3, 50.0), (1, 1, 4, 60.0)], trace)
    assert measures.first_owners(tmp_path, trace) == [0, 0, 4, -1]


def test_waiting_counts_the_first_start_of_each_record_and_what_never_starts(tmp_path: Path) -> None:
    trace = small_trace()
    write_records(
        tmp_path,
        [(0, 0, 0, 0.5), (0, 1, 1, 0.5), (0, 2, 2, 1.0), (1, 0, 3, 3.0), (1, 0, 3, 4.0), (0, 3, 4, 1.0)],
        trace,
    )
    starts = measures.read_starts(tmp_path, trace, _BEGIN_NS)
    assert starts.duplicates == 1
    found = measures.waiting_measures(starts, trace)
    last_s = 10.0 - trace.schedule()[0][5]
    assert found["unfinished"] == 1
    assert found["worst_s"] == pytest.approx(last_s)
    assert found["record_s"] == pytest.approx(1.0 + 3.0 + 1.0 + last_s)
    assert found["above_5s"] == pytest.approx(max(0.0, last_s - 5) / found["record_s"])
    assert found["drain_s"] == pytest.approx(10 - 5)  # Most records wait in second 5.


def test_what_starts_after_the_end_is_unfinished(tmp_path: Path) -> None:
    trace = small_trace()
    write_records(tmp_path, [(0, number, number, 0.1) for number in range(5)] + [(0, 5, 5, 9.0)], trace)
    starts = measures.read_starts(tmp_path, trace, _BEGIN_NS)
    assert measures.waiting_measures(starts, trace)["unfinished"] == 1


def test_a_start_of_a_record_that_was_not_sent_is_an_error(tmp_path: Path) -> None:
    trace = small_trace()
    (tmp_path / "pod-0.records").write_bytes(ENTRY.pack(0, 0, _BEGIN_NS + 7, _BEGIN_NS + 8))
    with pytest.raises(ValueError, match="never sent"):
        measures.read_starts(tmp_path, trace, _BEGIN_NS)


def test_a_part_of_an_entry_is_left_out(tmp_path: Path) -> None:
    trace = small_trace()
    write_records(tmp_path, [(0, 0, 0, 0.5)], trace)
    with (tmp_path / "pod-0.records").open("ab") as file:
        file.write(b"\0" * 5)
    starts = measures.read_starts(tmp_path, trace, _BEGIN_NS)
    assert starts.record.tolist() == [0]


def test_owners_moves_and_generations(tmp_path: Path) -> None:
    write_events(
        tmp_path, "pod-0",
        [(0, "started", {}), (0.5, "assigned", ([0, 1], 1)), (4, "revoked", ([1], 2)), (9, "closed", {})],
    )  # fmt: skip
    write_events(tmp_path, "pod-1", [(3, "started", {}), (5.5, "assigned", ([1], 3))])
    trace = small_trace()
    found = measures.ownership_measures(tmp_path, trace, _BEGIN_NS)
    # Partition 1 from 4 to 5.5; partition 0 from 9 to the end.
    assert found == {"moves": 1, "unowned_s": pytest.approx(1.5 + 1.0), "overlaps": 0}
    assert measures.generations(tmp_path, _BEGIN_NS, trace) == 2
    # From the warm-up's end: 2 to 9, and 3 to 10.
    assert measures.consumer_hours(tmp_path, _BEGIN_NS, trace) == pytest.approx((7 + 7) / 3600)


def test_nobody_owns_a_partition_in_an_outage(tmp_path: Path) -> None:
    write_events(
        tmp_path, "pod-0",
        [(0, "started", {}), (0.5, "assigned", ([0, 1], 1)), (4, "closed", {}),
         (6, "started", {}), (7.5, "assigned", ([0, 1], 2))],
    )  # fmt: skip
    found = measures.ownership_measures(tmp_path, small_trace(outages=((4, 6),)), _BEGIN_NS)
    assert found == {"moves": 0, "unowned_s": pytest.approx(2 * 1.5), "overlaps": 0}


def test_pods_run_by_the_changes_and_not_in_outages() -> None:
    trace = small_trace(changes=((0, (0, 1)), (3, (1,)), (5, (1, 0))), outages=((2, 4), (8, 9)))
    assert spans(trace)[:2] == [[(0.0, 2), (5.0, 8), (9, None)], [(0.0, 2), (4, 8), (9, None)]]
