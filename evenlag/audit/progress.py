"""Progress of a cluster's audit from run to run, kept as a record in ``runs``.

It only saves work: a day's own hash says whether it is audited. Without a record all days are compared.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final

from evenlag.lake.tables import RUNS
from evenlag.lake.writer import append_once

if TYPE_CHECKING:
    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

AUDIT_STEP: Final = "audit"


@dataclass(frozen=True, slots=True)
class AuditProgress:
    """What earlier runs have compared and audited.

    version: Version of the audit that they built.
    checked_at: All snapshots whose markers were written before this time have been compared to the audit.
    backlog_from: First day of those that still have to be compared, all up to the newest: after a new
        version, or for a rebuild; None: there are none.
    is_rebuild: Whether the days of the backlog are audited again even if nothing has changed.
    """

    version: int
    checked_at: datetime
    backlog_from: date | None = None
    is_rebuild: bool = False


def read_progress(reader: LakeReader, cluster: str) -> AuditProgress | None:
    """Read the newest progress of a cluster's audit.

    None if no run has recorded any.
    """
    filters: list[Filter] = [("cluster", "=", cluster), ("step", "=", AUDIT_STEP)]
    columns = ["finished_at", "summary"]
    newest = reader.read_newest(RUNS, "finished_at", columns=columns, filters=filters).to_pylist()
    if not newest:
        return None
    kept = json.loads(newest[0]["summary"])
    backlog_from = kept["backlog_from"]
    return AuditProgress(
        version=kept["version"],
        checked_at=datetime.fromisoformat(kept["checked_at"]),
        backlog_from=None if backlog_from is None else date.fromisoformat(backlog_from),
        is_rebuild=kept["is_rebuild"],
    )


def record_progress(root: str, cluster: str, progress: AuditProgress, started_at: datetime) -> None:
    """Record the progress of a run."""
    now = datetime.now(UTC)
    run_id = f"audit__{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    summary = {
        "version": progress.version,
        "checked_at": progress.checked_at.isoformat(),
        "backlog_from": None if progress.backlog_from is None else progress.backlog_from.isoformat(),
        "is_rebuild": progress.is_rebuild,
    }
    row = {
        "cluster": cluster,
        "day": now.date(),
        "run_id": run_id,
        "step": AUDIT_STEP,
        "slot": started_at,
        "started_at": started_at,
        "finished_at": now,
        "summary": json.dumps(summary, sort_keys=True),
    }
    append_once(root, RUNS, [row], f"run/{cluster}/{run_id}")
