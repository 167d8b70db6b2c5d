"""The report's lag of each member around a plan: before, predicted, after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.truth.oracle.expected.lag import at_least
from tests.truth.oracle.forms import number
from tests.truth.oracle.lake_rows import by, counted, known_sum
from tests.truth.oracle.report_period import member_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tests.truth.oracle.lake_rows import Row
    from tests.truth.oracle.report_period import Period

_RANKS: Final = (("APPLIED",), ("IGNORED", "EXPIRED"), ("PUBLISHED",), ("WITHDRAWN", "APPROVED"))

# Known lag of a member, and its number of partitions with unknown lag.
Lag = tuple[int | None, int]


@dataclass(frozen=True, slots=True)
class Change:
    """Lag of each member, the largest first; `parts` are before, predicted and after."""

    plan: Row | None
    parts: tuple[Mapping[str, Lag], ...]
    read_at: tuple[datetime, ...]

    @property
    def members(self) -> list[str]:
        """Names in display order."""
        before = self.parts[0]

        def place(name: str) -> tuple[bool, int, str]:
            lag = before.get(name, (None, 0))[0]
            return (lag is None, -(lag or 0), name)

        return sorted({name for part in self.parts for name in part}, key=place)

    def cells(self) -> list[list[str]]:
        """Return the rows of the table."""
        width = 1 if self.plan is None else 3
        rows = []
        for name in self.members:
            lags = [part.get(name, (None, 0)) for part in self.parts] + [(None, 0)] * 3
            rows.append([name, *(at_least(number(lag), unknown) for lag, unknown in lags[:width])])
        return rows


def read_change(period: Period) -> Change | None:
    """Return the change around the newest plan that was applied, else published, else any."""
    with_lag = {row["snapshot_id"] for row in period.of_group("lag")}
    plans = [plan for plan in period.plans if plan["snapshot_id"] in with_lag]
    if not plans:
        newest = max((row for row in period.snapshots if row["snapshot_id"] in with_lag), key=_slot)
        members = _lags(period, newest["snapshot_id"], {})
        return Change(None, (members,), (newest["end_read_at"],)) if members else None
    plan = min(plans, key=_rank)
    snapshot_id = plan["snapshot_id"]
    assigned = period.rows.assigned(plan)
    owners = {(row["topic"], row["partition"]): row["owner_after"] for row in assigned}
    parts = [_lags(period, snapshot_id, {}), _lags(period, snapshot_id, owners)]
    read_at = [period.snapshot(snapshot_id)["end_read_at"]]
    outcome = period.rows.one("outcomes", plan_id=plan["plan_id"])
    if outcome is not None and outcome["snapshot_id"] in with_lag:
        parts.append(_lags(period, outcome["snapshot_id"], {}))
        read_at.append(period.snapshot(outcome["snapshot_id"])["end_read_at"])
    return Change(plan, tuple(parts), tuple(read_at))


def _slot(row: Row) -> datetime:
    slot: datetime = row["slot"]
    return slot


def _rank(plan: Row) -> int:
    return next((place for place, names in enumerate(_RANKS) if plan["status"] in names), len(_RANKS))


def _lags(period: Period, snapshot_id: str, owners: Mapping[tuple[str, int], str | None]) -> dict[str, Lag]:
    """Lag of each live member of a snapshot; the owners of a plan replace the actual ones."""
    names = member_names(period)
    lag = [
        row | {"owner": owners.get((row["topic"], row["partition"]), row["owner_member_id"])}
        for row in counted(period.rows.lag_of(snapshot_id, period.group_id))
    ]
    found = by(lag, "owner")
    live = period.rows.where("members", snapshot_id=snapshot_id, group_id=period.group_id)
    # A member without partitions has a lag of 0, unless it may own some whose lag or owner is unknown.
    unowned = found.get(None, ())
    idle = None if any(row["lag_records"] is None or row.get("owner_problem") for row in unowned) else 0
    lags: dict[str, Lag] = {names[r["member_id"]]: (idle, 0) for r in live if r["member_id"] is not None}
    for owner, rows in found.items():
        if owner is not None:
            lags[names.get(owner, owner)] = (known_sum(rows), _unknown(rows))
    return lags


def _unknown(rows: Sequence[Row]) -> int:
    return sum(row["lag_records"] is None for row in rows)
