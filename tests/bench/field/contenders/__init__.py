"""The contenders of the field, by the names of its tables."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.bench.field.contenders.evenlag import (
    Evenlag,
    EvenlagBusy,
    EvenlagCapacities,
    EvenlagKip848,
    EvenlagLoads,
    EvenlagWatch,
)
from tests.bench.field.contenders.kafka_assignors import (
    CooperativeSticky,
    LagGreedy,
    Range,
    Uniform,
    with_more_processes,
)
from tests.bench.field.contenders.keda_hpa import KedaHpa
from tests.bench.field.contenders.landau import LandauMwf
from tests.bench.field.contenders.oracle import Oracle
from tests.bench.field.contenders.share import SharedPartition, ShareGroup
from tests.bench.field.simulator import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.bench.field.simulator import Contender
    from tests.bench.field.traces import Trace

SETTINGS: Final = Path(__file__).resolve().parents[4] / "docs" / "bench" / "field" / "grid.json"


def _more(trace: Trace, factor: float) -> Contender:
    return CooperativeSticky(trace, fleet=with_more_processes(trace, factor))


_FACTORIES: Final[Mapping[str, Callable[..., Contender]]] = {
    "range": Range,
    "cooperative-sticky": CooperativeSticky,
    "uniform": Uniform,
    "kip-169": LagGreedy,
    "landau-mwf": LandauMwf,
    "keda-hpa": KedaHpa,
    "sticky-x1.25": lambda trace: _more(trace, 1.25),
    "sticky-x1.6": lambda trace: _more(trace, 1.6),
    "sticky-x2": lambda trace: _more(trace, 2.0),
    "sticky-p1.5": lambda trace: CooperativeSticky(trace, num_partitions=-(-3 * trace.num_partitions // 2)),
    "share": ShareGroup,
    "share-p1": SharedPartition,
    "evenlag": Evenlag,
    "evenlag-busy": EvenlagBusy,
    "evenlag-watch": EvenlagWatch,
    "evenlag-kip848": EvenlagKip848,
    "evenlag-loads": EvenlagLoads,
    "evenlag-capacities": EvenlagCapacities,
    "oracle": Oracle,
    "bound": Bound,
}
NAMES: Final = tuple(_FACTORIES)
"""All of them; the last two are references."""


@cache
def chosen_settings() -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of each contender that has some, as ``grid.py`` has written them."""
    written = json.loads(SETTINGS.read_text(encoding="utf-8"))
    found = {
        name: {setting: entry["value"] for setting, entry in entries.items()}
        for name, entries in written["settings"].items()
    }
    return {"evenlag-busy": found["evenlag"], **found}


def make_contender(name: str, trace: Trace, **settings: Any) -> Contender:
    """Return a contender for a run, with its chosen settings unless others are given."""
    return _FACTORIES[name](trace, **(settings or chosen_settings().get(name, {})))
