"""What a soak measured: series, what each may grow by, and the committed results with their picture."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.soak.trend import trend

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "bench" / "soak.json"

# What each measure may rise by over the run, its warm-up left out: (in its unit, as a share of where it was).
# Memory: what an allocator or a collector keeps back by chance, far below what a leak of a frame, a
# connection or a table's log in each cycle would add up to. Threads and files: pools that breathe.
_MEMORY: Final = (24.0, 0.08)
_BREATHING: Final = (4.0, 0.0)
ALLOWED: Final = {
    "cycle_s": (0.0, 0.25),
    "driver_heap_mib": (16.0, 0.08),
    "driver_rss_mib": (64.0, 0.08),
    "driver_threads": (8.0, 0.0),
    "driver_files": (16.0, 0.0),
    # Delta keeps one for each table that it has read, of two versions while one is being written.
    "cached_frames": (4.0, 0.0),
    "kept_plans": (0.0, 0.0),
    "python_rss_mib": _MEMORY,
    "python_threads": _BREATHING,
    "python_files": _BREATHING,
    # Kafka's request metrics keep a thousand samples of each kind: for hours they fill up, then no more.
    "broker_heap_mib": (32.0, 0.0),
    "broker_rss_mib": (48.0, 0.08),
    "broker_threads": _BREATHING,
    # Segments and indexes of the group's and the hints' topics.
    "broker_files": (64.0, 0.0),
    "client_rss_mib": _MEMORY,
    "client_threads": _BREATHING,
    "client_files": _BREATHING,
}
_PARTS: Final = ("api-server", "dag-processor", "scheduler")
AIRFLOW_ALLOWED: Final = {
    "run_s": (0.0, 0.25),
    **{f"{part}_rss_mib": (48.0, 0.08) for part in _PARTS},
    **{f"{part}_threads": (8.0, 0.0) for part in _PARTS},
    **{f"{part}_files": (16.0, 0.0) for part in _PARTS},
    **{f"{part}_processes": (1.0, 0.0) for part in _PARTS},
    **{name: allowed for name, allowed in ALLOWED.items() if name.startswith("client_")},
}


class Series:
    """Values by measure, one of each at a time."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, measures: Mapping[str, float]) -> None:
        """Add one value of each measure; one that was not there before begins now."""
        for name, value in measures.items():
            self.values.setdefault(name, []).append(value)

    def last(self) -> dict[str, float]:
        """Return the newest value of each."""
        return {name: values[-1] for name, values in self.values.items()}

    def judge(self, allowed: Mapping[str, tuple[float, float]], *, warm_up: int) -> dict[str, dict[str, Any]]:
        """Return each measure's values with their trend."""
        if set(allowed) != set(self.values):
            raise KeyError(f"measured and allowed differ in {sorted(set(allowed) ^ set(self.values))}")
        judged = {}
        for name, (absolute, relative) in allowed.items():
            found = trend(self.values[name], warm_up=warm_up, allowance=absolute, relative=relative)
            judged[name] = {
                "rise": round(found.rise, 2),
                "allowed": round(found.allowance, 2),
                "thirds": [round(value, 2) for value in found.thirds],
                "is_growing": found.is_growing,
                "warm_up": warm_up,
                "values": self.values[name],
            }
        return judged


def tell(capfd: pytest.CaptureFixture[str], text: str) -> None:
    """Say how far it is: hours of silence look like a hang."""
    with capfd.disabled():
        sys.stderr.write(f"\n{datetime.now(UTC):%H:%M:%S} {text}")


def keep(part: str, found: Mapping[str, Any], *, is_full: bool) -> None:
    """Write a part of the results and draw all of them; a shorter run is not what the documents tell of."""
    if not is_full:
        return
    from tests.soak.draw import draw

    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results["machine"] = {"cores": os.cpu_count(), "python": platform.python_version()}
    results[part] = dict(found)
    text = json.dumps(results, indent=1)
    # A series on one line: a value a line is thousands of them.
    for row in (
        measure
        for each in ("session", "airflow")
        for measure in results.get(each, {}).get("measures", {}).values()
    ):
        text = text.replace(
            json.dumps(row["values"], indent=1).replace("\n", "\n    "), json.dumps(row["values"])
        )
    RESULTS.write_text(text + "\n", encoding="utf-8")
    draw(results, RESULTS.with_suffix(".svg"))
