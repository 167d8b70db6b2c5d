"""Plans as they are read once and checked: what pages, approvals, the publisher and alerts use.

Whoever can write the lake can change rows, files and the log between any two reads. So all rows of a plan are
read here, once, and checked as they were read: who uses a plan uses these rows, and reads none again.

Each row of a plan that may be published has a seal of its own: its decision, its head, its PROPOSED event,
its verdicts and its approval request. Its partitions are sealed by their hash in the head. The seal of its
approval also covers the seals of all these rows, so that none can be edited, removed, added or taken from
another plan. What the log lets nobody read is not in these rows, and nothing follows from it.

A file that cannot be read is the fault of the plans that it may have rows of. Of a sealed row that it hides,
the plan's own check finds that it is missing. An event is not missed, and may forbid: so a plan is refused if
its cluster, month and the statistics of the file do not exclude that the file has events of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow.compute as pc

from evenlag.enums import Mode, PlanEvent, RequestState
from evenlag.errors import SecretError
from evenlag.lag.arrays import parts_of
from evenlag.lake.arrow_schema import arrow_schema, stored_schema
from evenlag.lake.file_pruning import may_match
from evenlag.lake.filters import Filter, matching
from evenlag.lake.tables import (
    APPROVAL_REQUESTS,
    DECISIONS,
    GATE_RESULTS,
    PLAN_ASSIGNMENTS,
    PLAN_EVENTS,
    PLANS,
    Table,
)
from evenlag.lake.tables.month_partitions import month_of
from evenlag.lake.unreadable_files import ERROR
from evenlag.planning.assignments_hash import SHARED_COLUMNS, hash_assignments
from evenlag.publishing.sealing.row_seal import SEAL, Sealer, as_stored
from evenlag.safe_text import printable

if TYPE_CHECKING:
    import pyarrow as pa

    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

    # Files by table that cannot be read.
    _Unreadable = Mapping[Table, pa.Table]

Row = Mapping[str, Any]
# Rows of a plan by table, each with what the log says wrongly of it.
_Found = Mapping[Table, list[tuple[Row, str | None]]]

# Begins the reason why a plan with a fault is refused, by which alerts find it.
NOT_AS_SEALED: Final = "not as it was sealed: "
# Maximum age of a plan that somebody may still approve or publish: longer than the longest
# approval_timeout_s. The groups of older plans have changed.
PUBLISHABLE_FOR: Final = timedelta(days=8)
# Which rows of these tables are sealed.
_SEALED: Final[Mapping[Table, tuple[str, frozenset[str]] | None]] = {
    DECISIONS: None,
    PLANS: None,
    PLAN_EVENTS: ("event", frozenset({PlanEvent.PROPOSED})),
    GATE_RESULTS: None,
    APPROVAL_REQUESTS: ("state", frozenset({RequestState.ASKED})),
}
# Every plan has exactly one of them.
_SINGLE: Final = (DECISIONS, PLANS, PLAN_EVENTS)
# What is relied on where nothing is sealed, too.
_HEAD: Final = ("cluster", "day", "snapshot_id", "slot", "plan_id", "group_id", "mode")
_KNOWN: Final = frozenset({*PlanEvent, *RequestState})
_LOG_FAULT: Final = "_log_fault"
# What all events of a plan that may forbid it have in common with its head.
_OF_EVENTS: Final = ("cluster", "day", "snapshot_id", "group_id", "plan_id")
_PATH_LENGTH: Final = 150
# Plans of which this process has all rows at once: some hundred megabytes.
_PLANS_PER_PART: Final = 2_000


@dataclass(frozen=True, slots=True)
class VerifiedPlan:
    """A plan whose rows are as they were sealed, where the policy has a key.

    assignments: Its rows of ``plan_assignments``; none unless they are kept.
    events: All its events, oldest first.
    evidence: The seals that an approval of the plan covers.
    """

    head: Row
    assignments: pa.Table
    verdicts: Mapping[str, bool]
    events: tuple[Row, ...]
    requests: tuple[Row, ...]
    approval: Row | None
    evidence: tuple[str, ...]

    @property
    def day(self) -> date:
        """The plan's day."""
        found: date = self.head["day"]
        return found

    @property
    def request(self) -> Row | None:
        """Its approval request; None if approval was never requested."""
        return next((row for row in self.requests if row["state"] == RequestState.ASKED), None)

    @property
    def ending(self) -> Row | None:
        """The event that decided or ended the plan: the earliest after PROPOSED; None without any."""
        # Lakes of earlier versions may have two answers: all readers take the same one.
        return next((event for event in self.events if event["event"] != PlanEvent.PROPOSED), None)


@dataclass(frozen=True, slots=True)
class FaultyPlan:
    """A plan that nobody may approve or publish; of its rows nothing else is relied on.

    plan_id, group_id, snapshot_id: As its rows say it, sealed ones first: for messages and its last event.
    day: As its sealed rows say it; None without any.
    """

    plan_id: str
    group_id: str
    snapshot_id: str
    day: date | None
    fault: str


class _FaultError(Exception):
    """What is wrong with a plan."""


def oldest_day(now: datetime) -> date:
    """Return the day of the oldest plan that may still be approved or published."""
    return (now - PUBLISHABLE_FOR).date()


def read_plans(
    reader: LakeReader,
    sealer: Sealer | None,
    cluster: str,
    since: date,
    plan_ids: Collection[str],
    *,
    assignments: Literal["unread", "checked", "kept"] = "checked",
) -> dict[str, VerifiedPlan | FaultyPlan]:
    """Read plans once, and check what was read; without a sealer no seal is checked.

    Events are read from all files of the months from `since` on. Statistics select among the files of the
    other tables, by day: a row that they hide is missing under the seals. A file that they hide is a fault of
    the plan that it names.

    Returns by plan id, for each of `plan_ids` that has a row, and is not older.
    assignments: Whether their rows of ``plan_assignments`` count, and whether the plans have them.
    """
    has_assignments = assignments == "kept" or (assignments == "checked" and sealer is not None)
    ordered, plans = sorted(plan_ids), dict[str, VerifiedPlan | FaultyPlan]()
    for first in range(0, len(ordered), _PLANS_PER_PART):
        part = ordered[first : first + _PLANS_PER_PART]
        found = _read_part(reader, sealer, cluster, since, part, has_assignments=has_assignments)
        if assignments != "kept":
            found = {plan_id: _without_assignments(plan) for plan_id, plan in found.items()}
        plans |= found
    return plans


def _read_part(
    reader: LakeReader,
    sealer: Sealer | None,
    cluster: str,
    since: date,
    plan_ids: list[str],
    *,
    has_assignments: bool,
) -> dict[str, VerifiedPlan | FaultyPlan]:
    wanted: Filter = ("plan_id", "in", plan_ids)
    since_day = [("cluster", "=", cluster), ("day", ">=", since)]
    rows: dict[str, _Found] = defaultdict(lambda: {table: [] for table in _SEALED})
    unreadable: dict[Table, pa.Table] = {}
    elsewhere: dict[str, Table] = {}
    assignments: dict[str, pa.Table] | None = None
    for table in (*_SEALED, *((PLAN_ASSIGNMENTS,) if has_assignments else ())):
        files = {PLAN_EVENTS: event_files(cluster, since), PLAN_ASSIGNMENTS: [*since_day, wanted]}
        found, faults, unreadable[table], named = reader.read_checked(
            table, wanted, filters=files.get(table, since_day)
        )
        elsewhere |= dict.fromkeys(named, table)
        if table is PLAN_ASSIGNMENTS:
            assignments = parts_of(found.append_column(_LOG_FAULT, faults), "plan_id")
            continue
        for row, fault in zip(found.to_pylist(), faults.to_pylist(), strict=True):
            rows[row["plan_id"]][table].append((row, fault))
    plans = {
        plan_id: _verified(sealer, plan_id, found, assignments, unreadable, elsewhere.get(plan_id))
        for plan_id, found in rows.items()
    }
    return {plan_id: plan for plan_id, plan in plans.items() if plan.day is None or plan.day >= since}


def _without_assignments(plan: VerifiedPlan | FaultyPlan) -> VerifiedPlan | FaultyPlan:
    if isinstance(plan, FaultyPlan):
        return plan
    return replace(plan, assignments=arrow_schema(PLAN_ASSIGNMENTS).empty_table())


def seal_state(loaded: LoadedPolicy | None, reader: LakeReader, plan: Row) -> tuple[bool | None, str]:
    """Return whether a plan's rows are as they were sealed, None if that is not known; and why."""
    settings = loaded.policy.clusters.get(plan["cluster"]) if loaded is not None else None
    if settings is None or loaded is None or loaded.policy.lake != reader.paths.root:
        return None, "no policy of this lake and cluster is given: --config POLICY"
    sealer = Sealer.of(settings)
    if sealer is None:
        return None, "the policy has no hint_signing_key and no approval_key"
    if not is_followed(plan):
        return None, f"plans of mode {plan['mode']} have no seals, and are never published"
    try:
        found = read_plans(reader, sealer, plan["cluster"], plan["day"], [plan["plan_id"]])
    except SecretError as error:
        return None, str(error)
    verified = found.get(plan["plan_id"])
    if isinstance(verified, VerifiedPlan):
        return True, "its rows are as they were sealed"
    return False, "it is gone" if verified is None else verified.fault


def event_files(cluster: str, since: date) -> list[Filter]:
    """Return what selects the files of a cluster's events by their partitions alone: an event may forbid."""
    return [("cluster", "=", cluster), ("month", ">=", month_of(since))]


def is_followed(row: Row) -> bool:
    """Return whether a row of ``decisions`` or ``plans`` belongs to a plan that may be published."""
    return row["plan_id"] is not None and row["mode"] != Mode.SHADOW


def seal_plan_rows(sealer: Sealer | None, table: Table, rows: pa.Table) -> pa.Table:
    """Return rows of ``decisions`` or ``plans`` with the seals of the plans that may be published."""
    if sealer is None:
        return rows
    chosen = [is_followed(row) for row in rows.select(["plan_id", "mode"]).to_pylist()]
    return sealer.seal_some(table, rows, chosen)


def seal_events(
    sealer: Sealer | None, events: Sequence[Row], evidence: Mapping[str, Sequence[str] | None]
) -> list[dict[str, Any]]:
    """Return events with their seals; without a sealer they stay as they are.

    evidence: The plans whose events get a seal, with what an approval covers; None for another event.
    """
    if sealer is None:
        return [dict(event) for event in events]
    return [
        row | {SEAL: sealer.seal(PLAN_EVENTS, row, evidence[row["plan_id"]])}
        if row["plan_id"] in evidence
        else row
        for row in as_stored(PLAN_EVENTS, events)
    ]


def _verified(
    sealer: Sealer | None,
    plan_id: str,
    rows: _Found,
    assignments: Mapping[str, pa.Table] | None,
    unreadable: _Unreadable,
    elsewhere: Table | None,
) -> VerifiedPlan | FaultyPlan:
    try:
        if elsewhere is not None:
            _refuse(f"a file of {elsewhere.name} in another partition, or of other days, names it")
        own = {table: _sealed_rows(table, found) for table, found in rows.items()}
        head = own[PLANS][0]
        own_assignments = _select(head, assignments, sealer)
        events = sorted(
            (row for row, _ in rows[PLAN_EVENTS]),
            key=lambda row: (row["at"], row["event"], row["run_id"] or ""),
        )
        approvals = [row for row in events if row["event"] == PlanEvent.APPROVED]
        evidence = () if sealer is None else _check_seals(sealer, own, approvals)
        _refuse(_unreadable_file(unreadable, [PLAN_EVENTS], {name: head[name] for name in _OF_EVENTS}))
    except _FaultError as error:
        hidden = _unreadable_file(unreadable, unreadable, {"plan_id": plan_id})
        faults = [str(error), *([hidden] if hidden and hidden != str(error) else [])]
        return _faulty(sealer, plan_id, rows, "; ".join(faults))
    return VerifiedPlan(
        head=MappingProxyType(head),
        assignments=own_assignments,
        verdicts=MappingProxyType(_verdicts(own[GATE_RESULTS])),
        events=tuple(map(MappingProxyType, events)),
        requests=tuple(MappingProxyType(row) for row, _ in rows[APPROVAL_REQUESTS]),
        approval=next(map(MappingProxyType, approvals), None),
        evidence=evidence,
    )


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise _FaultError(fault)


def _unreadable_file(
    unreadable: _Unreadable, tables: Iterable[Table], values: Mapping[str, Any]
) -> str | None:
    """Name a file that cannot be read and may have rows with these values; None without any."""
    for table in tables:
        # Nearly always there is none, and each plan asks.
        if not unreadable[table].num_rows:
            continue
        schema = stored_schema(table)
        files = may_match(unreadable[table], schema, matching(**values))
        for file in files.select(["path", ERROR]).slice(0, 1).to_pylist() if files.num_rows else ():
            path = printable(file["path"])[:_PATH_LENGTH]
            return f"a file of {table.name} that may have rows of it cannot be read: {path}: {file[ERROR]}"
    return None


def _sealed_rows(table: Table, rows: Iterable[tuple[Row, str | None]]) -> list[Row]:
    """The rows of a plan in a table that are sealed, each once; all its rows have to be sound."""
    chosen = _SEALED[table]
    found: list[Row] = []
    for row, log_fault in rows:
        if log_fault is not None:
            raise _FaultError(f"{_name(table, row)} {log_fault}")
        if chosen is not None and (row["at"] is None or row[chosen[0]] not in _KNOWN):
            raise _FaultError(f"{_name(table, row)} has no time, or an unknown {chosen[0]}")
        # A row that was written twice counts once.
        if (chosen is None or row[chosen[0]] in chosen[1]) and row not in found:
            found.append(row)
    if table is PLANS and len(found) != 1:
        raise _FaultError(_not_one(table, len(found)))
    if table is PLANS and (missing := [name for name in _HEAD if found[0][name] is None]):
        raise _FaultError(f"its row of {table.name} has no {missing[0]}")
    return found


def _check_seals(
    sealer: Sealer, rows: Mapping[Table, list[Row]], approvals: Iterable[Row]
) -> tuple[str, ...]:
    """Check the seals of a plan's rows; return those that an approval covers."""
    for table, found in rows.items():
        for row in found:
            if row[SEAL] is None:
                raise _FaultError(_no_seal(_name(table, row)))
            if not sealer.holds(table, row):
                raise _FaultError(
                    f"{_name(table, row)} was edited, or is sealed by a key that is not accepted"
                )
        if table in _SINGLE and len(found) != 1:
            raise _FaultError(_not_one(table, len(found)))
    evidence = tuple(row[SEAL] for row in chain.from_iterable(rows.values()))
    # A request may be opened while the command approves: such an approval does not cover it.
    requests = {row[SEAL] for row in rows[APPROVAL_REQUESTS]}
    others = tuple(seal for seal in evidence if seal not in requests)
    for approval in approvals:
        if approval[SEAL] is None:
            raise _FaultError(_no_seal("its approval"))
        if not any(sealer.holds(PLAN_EVENTS, approval, each) for each in (evidence, others)):
            raise _FaultError(
                "its approval was edited, or rows of the plan were removed, added or edited since the "
                "approval"
            )
    return evidence


def _select(head: Row, assignments: Mapping[str, pa.Table] | None, sealer: Sealer | None) -> pa.Table:
    """The rows of ``plan_assignments`` of a plan; none if they were not read."""
    own, faults = arrow_schema(PLAN_ASSIGNMENTS).empty_table(), []
    if assignments is not None and head["plan_id"] in assignments:
        own = assignments[head["plan_id"]]
        faults = own[_LOG_FAULT].drop_null().to_pylist()
        own = own.drop_columns([_LOG_FAULT])
    if assignments is not None and sealer is not None:
        if faults:
            raise _FaultError(f"its row of {PLAN_ASSIGNMENTS.name} {faults[0]}")
        is_same = all(set(pc.unique(own[name]).to_pylist()) == {head[name]} for name in SHARED_COLUMNS)
        if not is_same or hash_assignments(own) != head["assignments_hash"]:
            raise _FaultError(f"its rows of {PLAN_ASSIGNMENTS.name} were edited, removed or added")
    return own


def _verdicts(rows: Iterable[Row]) -> dict[str, bool]:
    """Whether a plan passed, by gate; of two verdicts the worse one counts."""
    verdicts: dict[str, bool] = {}
    for row in rows:
        verdicts[row["gate"]] = verdicts.get(row["gate"], True) and bool(row["passed"])
    return verdicts


def _faulty(sealer: Sealer | None, plan_id: str, rows: _Found, fault: str) -> FaultyPlan:
    """A plan with a fault, as its sealed rows name it; without any, as the others do."""
    listed = [(table, row) for table, found in rows.items() for row, _ in found]
    sound = [row for table, row in listed if sealer is None or sealer.holds(table, row)]
    known = [*sound, *(row for _, row in listed)]

    def first(name: str) -> str:
        return next((row[name] for row in known if row[name] is not None), "")

    return FaultyPlan(
        plan_id=plan_id,
        group_id=first("group_id"),
        snapshot_id=first("snapshot_id"),
        day=next((row["day"] for row in sound if row["day"] is not None), None),
        fault=fault if sealer is None else NOT_AS_SEALED + fault,
    )


def _name(table: Table, row: Row) -> str:
    # The names of gates and events are evenlag's own, unless the row was edited.
    which = str(row.get("gate") or row.get("event") or "")
    return f"its row of {table.name}" + (f" ({which[:40]!r})" if which else "")


def _not_one(table: Table, count: int) -> str:
    return f"it has {count} rows in {table.name} where it has one"


def _no_seal(what: str) -> str:
    return f"{what} has no seal: it was written before the key was configured, or not by evenlag"
