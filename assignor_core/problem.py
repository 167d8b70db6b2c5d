"""The problem and the answer as JSON, for the command line and for tests."""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from assignor_core.assignors import COOPERATIVE, get_assignor
from assignor_core.errors import ProblemError
from assignor_core.group import Assignment, Group
from assignor_core.members import Member
from assignor_core.metrics import count_moves, measure
from assignor_core.protocol import cooperative_step, settle

_MS_PER_S = 1000.0
# A typing error must not ask for all memory there is.
_MAX_PARTITIONS = 20_000_000
_MAX_INT32 = 2**31 - 1
_PROBLEM_KEYS = ("assignor", "topics", "members", "lags", "racks")
_MEMBER_KEYS = ("id", "instance", "rack", "topics", "owned", "generation")


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
        text.encode()
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except UnicodeEncodeError as error:
        raise ProblemError(f"not UTF-8: character {error.start + 1} is no text") from error
    except (ValueError, RecursionError) as error:
        reason = "it nests too deeply" if isinstance(error, RecursionError) else f"{error!s:.200}"
        raise ProblemError(f"no JSON: {reason}") from error
    return read_problem(content)


def read_problem(content: Any) -> Problem:
    """Read a problem from parsed JSON.

    Fields: ``topics`` (name → partitions), ``members`` (objects with ``id`` and, if they have any,
    ``instance``, ``rack``, ``topics``, ``owned`` as pairs, ``generation``), and if there are any
    ``assignor``, ``lags`` (topic → records by partition), ``racks`` (topic → racks by partition).

    The form is stricter than a group is: what a typing error would look like is refused. A topic that
    members take or own may be unknown, as in Kafka; a topic without lags has none.

    Raises
    ------
    ProblemError
        If a field is missing, unknown or of the wrong kind, if lags are of an unknown topic, too few or too
        many, or if a partition is owned that its topic does not have; the message says which.

    Examples
    --------
    >>> read_problem({"topics": {"t": 2}, "members": [{"id": "c0", "topics": ["t"]}]}).group.num_partitions
    2
    """
    problem = _object(content, "the problem")
    _check_keys(problem, _PROBLEM_KEYS, "the problem")
    topics = _object(_field(problem, "topics", "the problem"), "topics")
    members = _list(_field(problem, "members", "the problem"), "members")
    lags = _object(problem.get("lags") or {}, "lags")
    racks = _object(problem.get("racks") or {}, "racks")
    counts = {
        _text(name, "topics"): _number(count, f"topics.{name}", low=0) for name, count in topics.items()
    }
    if sum(counts.values()) > _MAX_PARTITIONS:
        raise ProblemError(f"topics: more than {_MAX_PARTITIONS} partitions in all")
    read_members = [_member(member, f"members[{index}]", counts) for index, member in enumerate(members)]
    _check_instances(read_members)
    read_lags = {name: _numbers(values, f"lags.{name}") for name, values in lags.items()}
    read_racks = {name: _rack_lists(values, f"racks.{name}") for name, values in racks.items()}
    _check_lengths(read_lags, counts, "lags", is_whole=True)
    _check_lengths(read_racks, counts, "racks", is_whole=False)
    group = Group.from_members(counts, read_members, lags=read_lags, racks=read_racks)
    return Problem(group, _optional_text(problem, "assignor", "the problem"))


def solve(
    problem: Problem, assignor: str | None = None, *, to_the_end: bool = False, **settings: Any
) -> dict[str, Any]:
    """Return the answer to a problem.

    Parameters
    ----------
    problem
        From `parse_problem` or `read_problem`.
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key given twice would silently take its last value."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r:.60} is repeated in one object")
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _check_keys(content: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it may have: {', '.join(known)}"
            raise ProblemError(f"{where} has an unknown key {key!r:.60}; {hint}")


def _check_lengths(
    by_topic: Mapping[str, Sequence[object]], counts: Mapping[str, int], what: str, *, is_whole: bool
) -> None:
    """Lags and racks belong to a topic that is there, one for each partition; racks may end earlier."""
    for name, values in by_topic.items():
        count = counts.get(name)
        if count is None:
            near = difflib.get_close_matches(name, list(counts), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ProblemError(f"{what}.{name:.200}: topics has no such topic{hint}")
        if len(values) > count or (is_whole and len(values) < count):
            raise ProblemError(f"{what}.{name:.200}: {len(values)} {what} for {count} partitions")


def _check_instances(members: Sequence[Member]) -> None:
    """Two members never share a static identity: Kafka fences the older one."""
    first: dict[str, int] = {}
    for index, member in enumerate(members):
        instance = member.instance_id
        if instance is not None and first.setdefault(instance, index) != index:
            raise ProblemError(
                f"members[{index}].instance: {instance!r:.60} is members[{first[instance]}]'s too"
            )


def _member(content: Any, where: str, counts: Mapping[str, int]) -> Member:
    member = _object(content, where)
    _check_keys(member, _MEMBER_KEYS, where)
    owned = _list(member.get("owned") or [], f"{where}.owned")
    return Member(
        member_id=_text(_field(member, "id", where), f"{where}.id"),
        topics=tuple(_texts(member.get("topics") or [], f"{where}.topics")),
        instance_id=_optional_text(member, "instance", where),
        rack=_optional_text(member, "rack", where),
        owned=tuple(_owned(pair, f"{where}.owned[{index}]", counts) for index, pair in enumerate(owned)),
        generation=_number(member.get("generation", -1), f"{where}.generation", low=-1, high=_MAX_INT32),
    )


def _owned(content: Any, where: str, counts: Mapping[str, int]) -> tuple[str, int]:
    pair = _list(content, where)
    if len(pair) != 2:  # noqa: PLR2004 - a pair
        raise ProblemError(f"{where}: a pair of topic and partition is wanted, not {len(pair)} values")
    topic = _text(pair[0], f"{where}[0]")
    partition = _number(pair[1], f"{where}[1]", low=0, high=_MAX_INT32)
    if partition >= counts.get(topic, partition + 1):
        raise ProblemError(f"{where}: topic {topic!r:.60} has {counts[topic]} partitions, no {partition}")
    return topic, partition


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
    if not content:
        raise ProblemError(f"{where}: text is wanted, not an empty one")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ProblemError(f"{where}: {content!r:.60} has half a surrogate pair") from None
    return content


def _texts(content: Any, where: str) -> list[str]:
    return [_text(value, f"{where}[{index}]") for index, value in enumerate(_list(content, where))]


def _optional_text(content: dict[str, Any], name: str, where: str) -> str | None:
    value = content.get(name)
    return None if value is None else _text(value, f"{where}.{name}")


def _number(content: Any, where: str, *, low: int = -(2**63), high: int = 2**63 - 1) -> int:
    if type(content) is not int:
        raise ProblemError(f"{where}: a whole number is wanted, not {content!r:.60}")
    if not low <= content <= high:
        raise ProblemError(f"{where}: a whole number from {low} to {high} is wanted, not {content!r:.60}")
    return content


def _numbers(content: Any, where: str) -> list[int]:
    return [_number(value, f"{where}[{index}]", low=0) for index, value in enumerate(_list(content, where))]


def _rack_lists(content: Any, where: str) -> list[list[str]]:
    return [_texts(value, f"{where}[{index}]") for index, value in enumerate(_list(content, where))]
