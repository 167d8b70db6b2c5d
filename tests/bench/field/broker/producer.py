"""The schedule that `evenlag.field.FieldProducer` sends, and when its report makes a run void."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.bench.field.traces import Trace

LATE_MS: Final = 50.0
"""A measured record that its client gets later makes a run void."""

ACKNOWLEDGED_MS: Final = 500.0
"""So does a broker that acknowledges 1 % of the measured records later: it serves too many contenders."""


WARM_UP_TOPIC: Final = "warm-up"
"""A topic for records that only get the producer going."""


class VoidError(RuntimeError):
    """Raised when records were not sent by their schedule: the block measured nothing."""


def scheduled_ns(trace: Trace, begin_ns: int) -> NDArray[np.int64]:
    """Return the scheduled sends on the monotonic clock, ascending, as records have them."""
    return begin_ns + np.round(trace.schedule()[0] * 1e9).astype(np.int64)


def write_spec(
    path: Path, trace: Trace, begin_ns: int, *, servers: str, topics: Sequence[str], report_file: Path
) -> None:
    """Write the specification and, beside it, the schedule."""
    schedule = np.empty(int(trace.counts.sum()), dtype=[("at_ns", ">i8"), ("key", ">i4")])
    schedule["at_ns"], schedule["key"] = scheduled_ns(trace, begin_ns), trace.schedule()[1]
    schedule_file = path.with_suffix(".schedule")
    schedule_file.write_bytes(schedule.tobytes())
    spec = {
        "servers": servers, "topics": list(topics), "schedule_file": str(schedule_file),
        "report_file": str(report_file), "keys": [key.hex() for key in trace.keys],
        "cost": trace.cost.tolist(), "late_ms": LATE_MS,
        "measured_from_ns": begin_ns + trace.warm_up_s * 1_000_000_000, "warm_up_topic": WARM_UP_TOPIC,
    }  # fmt: skip
    path.write_text(json.dumps(spec), encoding="utf-8")


def check_report(report: Mapping[str, Any]) -> None:
    """Raise an error if the run is void."""
    if (
        report["late_records"]
        or report["not_acknowledged"]
        or report["acknowledged_p99_ms"] > ACKNOWLEDGED_MS
    ):
        raise VoidError(
            f"{report['late_records']} records were more than {LATE_MS:.0f} ms late (the worst "
            f"{report['late_worst_ms']:.0f} ms), {report['not_acknowledged']} were not acknowledged, and of "
            f"the others 1 % took more than {report['acknowledged_p99_ms']:.0f} ms"
        )
