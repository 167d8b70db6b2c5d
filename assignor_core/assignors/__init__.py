"""The assignors, one algorithm a file, by Kafka's own names.

To add one, write its module and add its class to the list below: policies, simulations, the command and
the reference know it from then on.
"""

import difflib
from collections.abc import Sequence
from typing import Any, Final

from assignor_core.assignors.base import COOPERATIVE, EAGER, Assignor, Parameter
from assignor_core.assignors.constrained import ConstrainedCooperativeStickyAssignor
from assignor_core.assignors.fair import FairAssignor, FairestStickyAssignor
from assignor_core.assignors.installed import declared_assignors, load_assignor
from assignor_core.assignors.lag_aware import LagAwareAssignor
from assignor_core.assignors.lag_aware_sticky import LagAwareStickyAssignor
from assignor_core.assignors.range import RangeAssignor
from assignor_core.assignors.round_robin import RoundRobinAssignor
from assignor_core.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from assignor_core.errors import ForeignAssignorError, UnknownAssignorError

__all__ = [
    "COOPERATIVE",
    "EAGER",
    "Assignor",
    "Parameter",
    "assignor_classes",
    "assignor_names",
    "check_assignor",
    "find_assignor",
    "get_assignor",
]

# The order of the reference.
_CLASSES: Final[Sequence[type[Assignor]]] = (
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
    ConstrainedCooperativeStickyAssignor,
    LagAwareAssignor,
    LagAwareStickyAssignor,
    FairAssignor,
    FairestStickyAssignor,
)
_BY_NAME: Final = {assignor.name: assignor for assignor in _CLASSES}


def assignor_classes() -> tuple[type[Assignor], ...]:
    """Return the classes of all assignors, in the order of the reference.

    Examples
    --------
    >>> [assignor.name for assignor in assignor_classes() if assignor.uses_lag]
    ['lag-aware', 'lag-aware-sticky']
    """
    return tuple(_CLASSES)


def assignor_names() -> tuple[str, ...]:
    """Return the names of all assignors of this package, sorted."""
    return tuple(sorted(_BY_NAME))


def check_assignor(name: str) -> None:
    """Do nothing if there is an assignor of that name, here or in an installed package.

    An assignor of another package is not loaded. These names are its own: it cannot replace one of these.

    Raises
    ------
    UnknownAssignorError
        If there is none; the message suggests the nearest name, and lists all.
    """
    if name in _BY_NAME or name in declared_assignors():
        return
    known = sorted({*_BY_NAME, *declared_assignors()})
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnknownAssignorError(
        f"no assignor {name!r}; {hint}there are: {', '.join(known)}; no installed package declares it"
    )


def find_assignor(name: str) -> type[Assignor]:
    """Return the class of an assignor, which declares its protocols, its parameters and what it uses.

    Parameters
    ----------
    name
        One of `assignor_names`, or of an installed package.

    Raises
    ------
    UnknownAssignorError, ForeignAssignorError
        If there is none, or if it is of another package and cannot be loaded.

    Examples
    --------
    >>> [parameter.name for parameter in find_assignor("lag-aware-sticky").parameters]
    ['max_moves', 'count_slack', 'min_gain', 'rack_tolerance', 'effort']
    """
    check_assignor(name)
    found = _BY_NAME.get(name) or load_assignor(name)
    if isinstance(found, str):
        raise ForeignAssignorError(found)
    return found


def get_assignor(name: str, **parameters: Any) -> Assignor:
    """Return the assignor of that name.

    Parameters
    ----------
    name
        One of `assignor_names`, or of an installed package.
    parameters
        Values of its parameters, for example ``count_slack`` for the sticky family; others keep their
        defaults.

    Raises
    ------
    UnknownAssignorError, ForeignAssignorError
        If there is none, or if it is of another package and cannot be loaded.
    ProblemError
        If a value is out of its range.
    TypeError
        If the assignor has no such parameter.

    Examples
    --------
    >>> get_assignor("cooperative-sticky", count_slack=1).protocols
    ('COOPERATIVE', 'EAGER')
    """
    return find_assignor(name)(**parameters)
