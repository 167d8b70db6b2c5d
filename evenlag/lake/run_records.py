"""Records of a run: that its steps ended, and the policy that it used."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from evenlag.enums import CycleStep
from evenlag.lake.filters import matching
from evenlag.lake.tables import POLICIES, RUNS
from evenlag.lake.writer import append_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlag.lake.reader import LakeReader
    from evenlag.policy.loader import LoadedPolicy

# What a repeat may still write has a time of this period: a step may be repeated for two days, and the clocks
# of two machines differ.
REPEATS: Final = timedelta(days=3)
# A published plan is settled and evaluated long before: a hint lives for a week at most, the horizon of its
# evaluation is a week at most.
OPEN_PLANS: Final = timedelta(days=31)
# In the summary of an observe: when the oldest plan was published that it left open; null: it left none.
OPEN_SINCE: Final = "open_since"


def keep_policy(reader: LakeReader, cluster: str, slot: datetime, loaded: LoadedPolicy) -> None:
    """Store a policy's text by its hash, once per cluster."""
    filters = matching(cluster=cluster, policy_hash=loaded.policy_hash)
    # The policy in use is nearly always the newest one.
    if reader.read_newest(POLICIES, "day", columns=["day"], filters=filters).num_rows:
        return
    row = {"cluster": cluster, "day": slot.date(), "policy_hash": loaded.policy_hash, "text": loaded.text}
    append_once(reader.paths.root, POLICIES, [row], filters)


def record_run(
    root: str,
    marker: Mapping[str, Any],
    run_id: str,
    step: str,
    started_at: datetime,
    summary: dict[str, Any],
) -> None:
    """Record a finished step. Idempotent: a repeat of the run's step keeps the first record."""
    row = {
        "cluster": marker["cluster"],
        "day": marker["day"],
        "run_id": run_id,
        "step": step,
        "slot": marker["slot"],
        "snapshot_id": marker["snapshot_id"],
        "started_at": started_at,
        "finished_at": datetime.now(UTC),
        "summary": json.dumps(summary, sort_keys=True, default=str),
    }
    identifying = ("cluster", "day", "snapshot_id", "run_id", "step")
    append_once(root, RUNS, [row], matching(**{name: row[name] for name in identifying}))


def open_since(reader: LakeReader, cluster: str) -> datetime | None:
    """Return the time from which plans have to be read to find all that are open: not settled or evaluated.

    It comes from the newest observe that ended, None without one, and is at most 31 days before it. A killed
    one records nothing, and a cluster that paused finds the plans that were open when it paused.
    """
    filters = matching(cluster=cluster, step=CycleStep.OBSERVE)
    columns = ["started_at", "finished_at", "summary"]
    newest = reader.read_newest(RUNS, "finished_at", columns=columns, filters=filters).to_pylist()
    if not newest:
        return None
    started_at: datetime = newest[0]["started_at"]
    # Several plans could only be open for so long if they cannot be settled at all.
    earliest = started_at - OPEN_PLANS
    summary = json.loads(newest[0]["summary"] or "{}")
    if OPEN_SINCE not in summary:
        return earliest
    # A publisher that was killed records its hint later, with the time at which the hint was published.
    recent = started_at - REPEATS
    if summary[OPEN_SINCE] is None:
        return recent
    return max(earliest, min(recent, datetime.fromisoformat(summary[OPEN_SINCE])))
