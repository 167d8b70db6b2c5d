"""The problem and the answer as JSON, for the command line and for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from assignor_core.assignors import COOPERATIVE, get_assignor
from assignor_core.errors import ProblemError
from assignor_core.metrics import count_moves, measure
from assignor_core.model import Group, Member
from assignor_core.protocol import cooperative_step, settle

if TYPE_CHECKING:
    from assignor_core.model import Assignment

__all__ = ["Problem", "parse_problem", "read_problem", "solve"]

_MS_PER_S = 1000.0
# A typing error must not ask for all memory there is.
_MAX_PARTITIONS = 20_000_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A group and the assignor that is asked for, if the problem names one."""

    group: Group
    assignor: str | None


def parse_problem(text: str) -> Problem:
    """Read a problem from JSON text.

    Raises
    ------
    ProblemError
        If the text is no JSON or no problem; the message says what is wrong, and where.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemError(f"no JSON: {error!s:.200}") from error
    return read_problem(content)


def read_problem(content: Any) -> Problem:
    """Read a problem from parsed JSON.

    Fields: ``topics`` (name → partitions), ``members`` (objects with ``id`` and, if they have any,
    ``instance``, ``rack``, ``topics``, ``owned`` as pairs, ``generation``), and if there are any
    ``assignor``, ``lags`` (topic → records by partition), ``racks`` (topic → racks by partition).

    Raises
    ------
    ProblemError
        If a field is missing or of the wrong kind; the message says which.

    Examples
    --------
    >>> read_problem({"topics": {"t": 2}, "members": [{"id": "c0", "topics": ["t"]}]}).group.num_partitions
    2
    """
    problem = _object(content, "the problem")
    topics = _object(_field(problem, "topics", "the problem"), "topics")
    members = _list(_field(problem, "members", "the problem"), "members")
    lags = _object(problem.get("lags") or {}, "lags")
    racks = _object(problem.get("racks") or {}, "racks")
    counts = {name: _number(count, f"topics.{name}") for name, count in topics.items()}
    if sum(max(count, 0) for count in counts.values()) > _MAX_PARTITIONS:
        raise ProblemError(f"topics: more than {_MAX_PARTITIONS} partitions in all")
    group = Group.from_members(
        counts,
        [_member(member, f"members[{index}]") for index, member in enumerate(members)],
        lags={name: _numbers(values, f"lags.{name}") for name, values in lags.items()},
        racks={name: _rack_lists(values, f"racks.{name}") for name, values in racks.items()},
    )
    return Problem(group, _optional_text(problem, "assignor", "the problem"))


def solve(
    problem: Problem, assignor: str | None = None, *, to_the_end: bool = False, **settings: Any
) -> dict[str, Any]:
    """Return the answer to a problem.

    Parameters
    ----------
    assignor
        Instead of the one that the problem names.
    to_the_end
        Whether to run a cooperative assignor round by round until it settles, rather than answer what
        its first phase hands out. The answer then has ``rounds`` too.
    settings
        For the assignor.

    Returns
    -------
    dict
        ``assignor``, ``assignment`` (every member, sorted), ``unassigned`` (what nobody takes and what is
        withheld), ``metrics``, and ``assign_ms``, the time of the assign calls alone.

    Raises
    ------
    ProblemError, UnknownAssignorError
        If no assignor is named, there is none of that name, or it cannot take the problem.
    """
    name = assignor or problem.assignor
    if name is None:
        raise ProblemError("the problem names no assignor, and none was asked for")
    chosen, group = get_assignor(name, **settings), problem.group
    start = perf_counter()
    handed = chosen.assign(group)
    elapsed_s = perf_counter() - start
    moves = count_moves(group, handed)
    answer: dict[str, Any] = {"assignor": name}
    if to_the_end:
        outcome = settle(group, chosen, handed)
        handed, answer["rounds"] = outcome.assignment, outcome.rounds
    elif COOPERATIVE in chosen.protocols:
        handed = cooperative_step(group, handed).assignment
    return answer | {
        "assignment": {m: [list(pair) for pair in pairs] for m, pairs in group.to_mapping(handed).items()},
        "unassigned": _unassigned(group, handed),
        "metrics": {**measure(group, handed).as_dict(), "moves": moves},
        "assign_ms": round(elapsed_s * _MS_PER_S, 3),
    }


def _unassigned(group: Group, assignment: Assignment) -> list[list[Any]]:
    rows = np.flatnonzero(assignment < 0)
    names = [group.topics[topic] for topic in group.row_topic[rows].tolist()]
    return [list(pair) for pair in zip(names, group.row_partition[rows].tolist(), strict=True)]


def _member(content: Any, where: str) -> Member:
    member = _object(content, where)
    owned = _list(member.get("owned") or [], f"{where}.owned")
    return Member(
        member_id=_text(_field(member, "id", where), f"{where}.id"),
        topics=tuple(_texts(member.get("topics") or [], f"{where}.topics")),
        instance_id=_optional_text(member, "instance", where),
        rack=_optional_text(member, "rack", where),
        owned=tuple(_pair(pair, f"{where}.owned[{index}]") for index, pair in enumerate(owned)),
        generation=_number(member.get("generation", -1), f"{where}.generation"),
    )


def _pair(content: Any, where: str) -> tuple[str, int]:
    pair = _list(content, where)
    if len(pair) != 2:  # noqa: PLR2004 - a pair
        raise ProblemError(f"{where}: a pair of topic and partition is wanted, not {len(pair)} values")
    return _text(pair[0], f"{where}[0]"), _number(pair[1], f"{where}[1]")


def _field(content: dict[str, Any], name: str, where: str) -> Any:
    if name not in content:
        raise ProblemError(f"{where} has no {name!r}")
    return content[name]


def _object(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ProblemError(f"{where}: an object is wanted, not {content!r:.60}")
    return content


def _list(content: Any, where: str) -> list[Any]:
    if not isinstance(content, list):
        raise ProblemError(f"{where}: a list is wanted, not {content!r:.60}")
    return content


def _text(content: Any, where: str) -> str:
    if not isinstance(content, str):
        raise ProblemError(f"{where}: text is wanted, not {content!r:.60}")
    return content


def _texts(content: Any, where: str) -> list[str]:
    return [_text(value, f"{where}[{index}]") for index, value in enumerate(_list(content, where))]


def _optional_text(content: dict[str, Any], name: str, where: str) -> str | None:
    value = content.get(name)
    return None if value is None else _text(value, f"{where}.{name}")


def _number(content: Any, where: str) -> int:
    if type(content) is not int or not -(2**63) <= content < 2**63:
        raise ProblemError(f"{where}: a whole number is wanted, not {content!r:.60}")
    return content


def _numbers(content: Any, where: str) -> list[int]:
    return [_number(value, f"{where}[{index}]") for index, value in enumerate(_list(content, where))]


def _rack_lists(content: Any, where: str) -> list[list[str]]:
    return [_texts(value, f"{where}[{index}]") for index, value in enumerate(_list(content, where))]
