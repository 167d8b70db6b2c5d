"""The decision of a snapshot that is on record: there is one, whatever becomes of the policy or of evenlag.

``decisions`` is written first, all groups of a snapshot in one commit, unless the snapshot has any: of two
attempts one decides. Everything else (plans, verdicts, events) follows from these rows, so an attempt
that finds them completes what they say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evenlag.enums import DecisionKind
from evenlag.lake.filters import matching
from evenlag.lake.tables import DECISIONS, GATE_RESULTS, PLANS, POLICIES
from evenlag.lake.writer import append_once
from evenlag.policy.loader import hash_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from evenlag.lake.filters import Filter
    from evenlag.lake.reader import LakeReader


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The decision of a snapshot.

    policy_hash, run_id: The policy that it was made by, and the run that made it.
    modes: Mode by plan id, of the plans that it proposes.
    failures: Reason by group id, of the groups that could not be planned.
    """

    policy_hash: str
    run_id: str | None
    modes: Mapping[str, str]
    failures: Mapping[str, str]

    def __str__(self) -> str:
        """Return the run and the policy, for messages."""
        return f"run {self.run_id} under policy {self.policy_hash[:12]}"


def record_decision(root: str, of_snapshot: Sequence[Filter], decisions: pa.Table) -> bool:
    """Write the decision of a snapshot, unless it has one.

    False if the decision on record may be another one.
    """
    return not decisions.num_rows or append_once(root, DECISIONS, decisions, of_snapshot)


def read_decision(
    reader: LakeReader,
    of_snapshot: Sequence[Filter],
    is_sound: Callable[[Mapping[str, Any]], bool] = lambda _row: True,
) -> DecisionRecord | None:
    """Read the decision of a snapshot.

    is_sound: Whether a row that proposes a plan is as evenlag wrote it; other plans are left out.
    """
    rows = reader.read(DECISIONS, filters=of_snapshot).to_pylist()
    if not rows:
        return None
    hashes = {row["policy_hash"] for row in rows}
    if len(hashes) > 1:
        # Development versions decided again under another policy: the decision that has plans counts.
        planned = reader.read(PLANS, columns=["policy_hash"], filters=of_snapshot)["policy_hash"].to_pylist()
        hashes &= set(planned) or hashes
    policy_hash = min(hashes)
    chosen = [row for row in rows if row["policy_hash"] == policy_hash]
    return DecisionRecord(
        policy_hash=policy_hash,
        run_id=min((row["run_id"] for row in chosen if row["run_id"] is not None), default=None),
        modes={row["plan_id"]: row["mode"] for row in chosen if row["plan_id"] is not None and is_sound(row)},
        failures={
            row["group_id"]: row["reason"] for row in chosen if row["decision"] == DecisionKind.FAILED.value
        },
    )


def read_recorded_heads(
    reader: LakeReader, of_snapshot: Sequence[Filter], record: DecisionRecord
) -> list[dict[str, Any]]:
    """Read the heads of a decision's plans that are on record."""
    rows = reader.read(PLANS, filters=of_snapshot).to_pylist()
    return list({row["plan_id"]: row for row in rows if row["plan_id"] in record.modes}.values())


def read_judged(reader: LakeReader, of_snapshot: Sequence[Filter]) -> set[str]:
    """Read which plans of a snapshot have verdicts; the gates of all are written in one commit."""
    return set(reader.read(GATE_RESULTS, columns=["plan_id"], filters=of_snapshot)["plan_id"].to_pylist())


def read_policy_text(reader: LakeReader, cluster: str, policy_hash: str) -> str | None:
    """Read the text of a policy that a run used.

    None if the lake does not have it, or has another text under this hash.
    """
    found = reader.read(
        POLICIES, columns=["text"], filters=matching(cluster=cluster, policy_hash=policy_hash)
    )["text"].to_pylist()
    return next((text for text in found if hash_policy(text) == policy_hash), None)
