"""Whether the rows of plans are as they were sealed.

Each row of a plan that may be published has a seal of its own: its decision, its head, its PROPOSED event,
its verdicts and its approval request. Its partitions are sealed by their hash in the head. The seal of its
approval also covers the seals of all these rows, so that none can be edited, removed, added or taken from
another plan.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import Mode, PlanEvent, RequestState
from evenlag.lake.tables import (
    APPROVAL_REQUESTS,
    DECISIONS,
    GATE_RESULTS,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
)
from evenlag.planning.assignments_hash import SHARED_COLUMNS, hash_assignments
from evenlag.planning.plan_attempts import read_assignments
from evenlag.publishing.sealing.row_seal import SEAL, as_stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import date

    import pyarrow as pa

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader
    from evenlag.lake.tables import Table
    from evenlag.publishing.event_log import PlanEventRow
    from evenlag.publishing.sealing.row_seal import Sealer

# Begins the reason why an edited plan is refused, by which alerts find it.
NOT_AS_SEALED: Final = "not as it was sealed: "
_SEALED_TABLES: Final = (DECISIONS, PLANS, PLAN_EVENTS, GATE_RESULTS, APPROVAL_REQUESTS)
# Every plan has exactly one of them.
_SINGLE: Final = (DECISIONS, PLANS, PLAN_EVENTS)
_WANTED: Final[Mapping[str, Filter]] = {
    PLAN_EVENTS.name: ("event", "in", [PlanEvent.PROPOSED.value, PlanEvent.APPROVED.value]),
    APPROVAL_REQUESTS.name: ("state", "=", RequestState.ASKED.value),
}


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """What the seals of a plan's rows say.

    Attributes
    ----------
    fault
        Why the plan is not as it was sealed; None when it is.
    evidence
        The seals that an approval of the plan covers.
    """

    fault: str | None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _PlanRows:
    """The sealed rows of one plan, and its approvals."""

    rows: Mapping[str, list[dict[str, Any]]]
    approvals: Sequence[dict[str, Any]]


def check_plans(
    reader: LakeReader,
    sealer: Sealer,
    cluster: str,
    since: date,
    plan_ids: Collection[str],
    *,
    has_partitions: bool = True,
) -> dict[str, PlanCheck]:
    """Check the seals of plans.

    Parameters
    ----------
    reader
        The lake.
    sealer
        The cluster's sealer.
    cluster
        The cluster's name in the policy.
    since
        The day of the oldest plan.
    plan_ids
        The plans.
    has_partitions
        Whether their rows of ``plan_assignments`` are checked, too.

    Returns
    -------
    dict
        Result by plan id, for each of `plan_ids`.

    Raises
    ------
    LakeError
        When a table cannot be read.
    SecretError
        When a key cannot be read.
    """
    if not plan_ids:
        return {}
    wanted: list[Filter] = [
        ("cluster", "=", cluster),
        ("day", ">=", since),
        ("plan_id", "in", sorted(plan_ids)),
    ]
    found = {table.name: _read(reader, table, wanted) for table in _SEALED_TABLES}
    heads = chain.from_iterable(found[PLANS.name].values())
    partitions = read_assignments(reader, heads) if has_partitions else None
    return {plan_id: _check(sealer, _rows_of(found, plan_id), plan_id, partitions) for plan_id in plan_ids}


def is_followed(row: Mapping[str, Any]) -> bool:
    """Return whether a row of ``decisions`` or ``plans`` belongs to a plan that may be published.

    Parameters
    ----------
    row
        Its columns ``plan_id`` and ``mode``.
    """
    return row["plan_id"] is not None and row["mode"] != Mode.SHADOW


def seal_plan_rows(sealer: Sealer | None, table: Table, rows: pa.Table) -> pa.Table:
    """Return rows of ``decisions`` or ``plans`` with the seals of the plans that may be published.

    Parameters
    ----------
    sealer
        The cluster's sealer; without one the rows stay as they are.
    table, rows
        The table, and rows by its contract.

    Raises
    ------
    SecretError
        When a row is sealed, and the key cannot be read.
    """
    if sealer is None:
        return rows
    chosen = [is_followed(row) for row in rows.select(["plan_id", "mode"]).to_pylist()]
    return sealer.seal_some(table, rows, chosen)


def seal_events(
    sealer: Sealer | None, events: Sequence[PlanEventRow], evidence: Mapping[str, Sequence[str] | None]
) -> list[PlanEventRow]:
    """Return events with their seals.

    Parameters
    ----------
    sealer
        The cluster's sealer; without one the events stay as they are.
    events
        The events.
    evidence
        The plans whose events get a seal, with what an approval covers; None for another event.

    Raises
    ------
    SecretError
        When an event is sealed, and the key cannot be read.
    """
    if sealer is None:
        return list(events)
    stored = as_stored(PLAN_EVENTS, [event.as_row() for event in events])
    return [
        replace(event, seal=sealer.seal(PLAN_EVENTS, row, evidence[event.plan_id]))
        if event.plan_id in evidence
        else event
        for event, row in zip(events, stored, strict=True)
    ]


def _read(reader: LakeReader, table: Table, wanted: list[Filter]) -> dict[str, list[dict[str, Any]]]:
    filters = [*wanted, _WANTED[table.name]] if table.name in _WANTED else wanted
    by_plan: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in reader.read(table, filters=filters).to_pylist():
        by_plan[row["plan_id"]].append(row)
    return by_plan


def _rows_of(found: Mapping[str, Mapping[str, list[dict[str, Any]]]], plan_id: str) -> _PlanRows:
    rows = {name: list(by_plan.get(plan_id, ())) for name, by_plan in found.items()}
    approvals = [row for row in rows[PLAN_EVENTS.name] if row["event"] == PlanEvent.APPROVED]
    rows[PLAN_EVENTS.name] = [row for row in rows[PLAN_EVENTS.name] if row["event"] != PlanEvent.APPROVED]
    return _PlanRows(rows, approvals)


def _check(sealer: Sealer, plan: _PlanRows, plan_id: str, partitions: pa.Table | None) -> PlanCheck:
    fault = _row_fault(sealer, plan.rows)
    if fault is None and partitions is not None:
        fault = _partition_fault(plan.rows[PLANS.name][0], partitions, plan_id)
    if fault is not None:
        return PlanCheck(NOT_AS_SEALED + fault)
    # A row that was written twice counts once.
    seals = {name: {row[SEAL] for row in rows} for name, rows in plan.rows.items()}
    evidence = tuple(chain.from_iterable(seals.values()))
    # A request may be opened while the command approves: such an approval does not cover it.
    others = tuple(seal for seal in evidence if seal not in seals[APPROVAL_REQUESTS.name])
    for approval in plan.approvals:
        if approval[SEAL] is None:
            return PlanCheck(NOT_AS_SEALED + _no_seal("its approval"))
        if not any(sealer.holds(PLAN_EVENTS, approval, each) for each in (evidence, others)):
            return PlanCheck(
                f"{NOT_AS_SEALED}its approval was edited, or rows of the plan were removed, added or edited "
                "since the approval"
            )
    return PlanCheck(None, evidence)


def _row_fault(sealer: Sealer, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> str | None:
    """The first row that does not have its seal, or that is missing."""
    for table in _SEALED_TABLES:
        seals = set()
        for row in rows[table.name]:
            if row[SEAL] is None:
                return _no_seal(_name(table, row))
            if not sealer.holds(table, row):
                return f"{_name(table, row)} was edited, or is sealed by a key that is not accepted"
            seals.add(row[SEAL])
        if table in _SINGLE and len(seals) != 1:
            return f"it has {len(seals)} rows in {table.name} where it has one"
    return None


def _partition_fault(head: Mapping[str, Any], partitions: pa.Table, plan_id: str) -> str | None:
    import pyarrow.compute as pc

    own = partitions.filter(pc.equal(partitions["plan_id"], plan_id))
    shared = {name: set(pc.unique(own[name]).to_pylist()) for name in SHARED_COLUMNS}
    is_own = all(values == {head[name]} for name, values in shared.items())
    if is_own and hash_assignments(own) == head["assignments_hash"]:
        return None
    return f"its rows of {PLAN_ASSIGNMENTS.name} were edited, removed or added"


def _name(table: Table, row: Mapping[str, Any]) -> str:
    # The names of gates and events are evenlag's own, unless the row was edited.
    which = str(row.get("gate") or row.get("event") or "")
    return f"its row of {table.name}" + (f" ({which[:40]!r})" if which else "")


def _no_seal(what: str) -> str:
    return f"{what} has no seal: it was written before the key was configured, or not by evenlag"
