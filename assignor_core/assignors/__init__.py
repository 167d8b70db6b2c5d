"""The assignors, one algorithm a file, found by Kafka's own names."""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Any

from assignor_core.assignors.base import COOPERATIVE, EAGER, Assignor
from assignor_core.assignors.constrained import ConstrainedCooperativeStickyAssignor
from assignor_core.assignors.fair import FairAssignor, FairestStickyAssignor
from assignor_core.assignors.lag_aware import LagAwareAssignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.assignors.range import RangeAssignor
from assignor_core.assignors.round_robin import RoundRobinAssignor
from assignor_core.assignors.sticky import StickyAssignor
from assignor_core.errors import UnknownAssignorError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["COOPERATIVE", "EAGER", "Assignor", "assignor_names", "get_assignor"]

_BUILDERS: dict[str, Callable[..., Assignor]] = {
    "constrained-cooperative-sticky": ConstrainedCooperativeStickyAssignor,
    "cooperative-sticky": partial(StickyAssignor, "cooperative-sticky", (COOPERATIVE, EAGER)),
    "fair": FairAssignor,
    "fairest-sticky": FairestStickyAssignor,
    "lag-aware": LagAwareAssignor,
    "lag-aware-sticky": LagAwareStickyAssignor,
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": partial(StickyAssignor, "sticky", (EAGER,)),
}


def assignor_names() -> tuple[str, ...]:
    """Return the names of all assignors, sorted."""
    return tuple(sorted(_BUILDERS))


def get_assignor(name: str, **settings: Any) -> Assignor:
    """Return the assignor of that name.

    Parameters
    ----------
    name
        One of `assignor_names`.
    settings
        What that assignor takes, for example ``count_slack`` for the sticky family.

    Raises
    ------
    UnknownAssignorError
        If there is none; the message names the nearest, and all.
    TypeError
        If it does not take such a setting.

    Examples
    --------
    >>> get_assignor("cooperative-sticky", count_slack=1).protocols
    ('COOPERATIVE', 'EAGER')
    """
    builder = _BUILDERS.get(name)
    if builder is None:
        near = difflib.get_close_matches(name, _BUILDERS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownAssignorError(f"no assignor {name!r}; {hint}there are: {', '.join(assignor_names())}")
    return builder(**settings)
