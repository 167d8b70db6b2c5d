"""The recorded verdicts of a snapshot's checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from evenlag.lake.tables import QUALITY_RESULTS
from evenlag.quality.checks import CHECK_BY_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlag.lake.file_pruning import Filter
    from evenlag.lake.reader import LakeReader

# Alerts report it by a kind of its own, with the number of partitions.
_COMPLETENESS: Final = "snapshot_complete"


def read_results(reader: LakeReader, snapshot: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the verdicts of a snapshot.

    Returns rows of ``quality_results``; empty if the snapshot was not checked.
    """
    filters: list[Filter] = [(name, "=", snapshot[name]) for name in ("cluster", "day", "snapshot_id")]
    found: list[dict[str, Any]] = reader.read(QUALITY_RESULTS, filters=filters).to_pylist()
    return found


def stopping_failures(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the failures for which no group is planned where the policy says ``on_failure: stop``."""
    local = {name for name, check in CHECK_BY_NAME.items() if not check.stops}
    return [result for result in results if not result["passed"] and result["check_name"] not in local]


def failures_by_table(results: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Return what is wrong with the tables of a snapshot.

    Returns messages by table, without that of an incomplete snapshot; None if the snapshot was not checked.
    """
    if not results:
        return None
    found: dict[str, list[str]] = {}
    for result in results:
        if not result["passed"] and result["check_name"] != _COMPLETENESS:
            message = f"{result['check_name']}: {result['message']}"
            found.setdefault(result["table_name"], []).append(message)
    return {name: "; ".join(sorted(messages)) for name, messages in sorted(found.items())}
