"""Assignors of other packages: what they declare in the entry point group ``evenlag.assignors``."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assignor_core.assignors.base import Assignor
from assignor_core.errors import ForeignAssignorError, InvalidAssignmentError
from assignor_core.group import Assignment, Group
from assignor_core.verify import find_violations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint

# "all", "evenlag" and "observed" stand for something else in commands, groups and comparisons.
_NAME: Final = re.compile(r"(?!(?:all|evenlag|observed)$)[a-z0-9]+(?:[._-][a-z0-9]+)*")
# An assignment that breaks another rule reaches the plan, and a gate rejects it.
_OF_FORM: Final = ("SHAPE", "MEMBER_RANGE")


@cache
def declared_assignors() -> dict[str, list[EntryPoint]]:
    """Return the entry points of installed packages by name, read once and not loaded."""
    # Its import costs every consumer.
    from importlib.metadata import entry_points

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group="evenlag.assignors"):
        found.setdefault(point.name, []).append(point)
    return found


def described(name: str) -> str:
    """Return an assignor and the packages that declare it, as text."""
    packages = sorted(point.dist.name if point.dist else "?" for point in declared_assignors()[name])
    return f"the assignor {name} of {', '.join(packages)}"


@cache
def load_assignor(name: str) -> type[Assignor] | str:
    """Return the class that a package declares, or why there is none; tried once.

    Its instances check the form of each result. Whatever goes wrong in them is a `ForeignAssignorError`.
    """
    try:
        with _faults(name):
            return _load(name)
    except ForeignAssignorError as error:
        return str(error)


def _load(name: str) -> type[Assignor]:
    points = declared_assignors()[name]
    if not _NAME.fullmatch(name) or len(points) > 1:
        raise ValueError("the name is reserved, declared twice, or not of a-z, 0-9, '-', '_' and '.'")
    declared: type[Assignor] = points[0].load()
    if not issubclass(declared, Assignor) or declared.name != name:
        raise TypeError(f"{points[0].value} is no Assignor with this name")
    declared()
    return _checked_class(declared)


def _checked_class(declared: type[Assignor]) -> type[Assignor]:
    name = declared.name

    def init(self: Assignor, **parameters: Any) -> None:
        with _faults(name):
            declared.__init__(self, **parameters)

    def assign(self: Assignor, group: Group) -> Assignment:
        with _faults(name):
            return _checked(group, declared.assign(self, group))

    def target(self: Assignor, group: Group, **given: Any) -> Assignment:
        with _faults(name):
            # Copies: the caller uses its arrays again.
            copies = {key: value.copy() for key, value in given.items()}
            found = _checked(group, declared.target(self, group, **copies))
            if (found != group.live_owner)[given["pinned"]].any():
                raise InvalidAssignmentError("pinned partitions would move")
            return found

    members = {"__slots__": (), "__init__": init, "assign": assign, "target": target}
    return type(declared.__name__, (declared,), members)


def _checked(group: Group, found: Any) -> Assignment:
    assignment = np.array(found)
    for violation in find_violations(group, assignment, complete=False):
        if violation.rule in _OF_FORM:
            raise InvalidAssignmentError(f"{violation.rule}: {violation.message}")
    return assignment


@contextmanager
def _faults(name: str) -> Iterator[None]:
    try:
        yield
    except ForeignAssignorError:
        raise
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise ForeignAssignorError(
            f"{described(name)} failed: {type(error).__name__}: {text:.300}"
        ) from error
