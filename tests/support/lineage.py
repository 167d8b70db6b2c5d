"""What OpenLineage was told, as its file transport writes it: an event a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from evenlag.airflow.lineage import Dataset

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def read_completed_tasks(events: Path, run_id: str) -> dict[str, dict[str, Any]]:
    """Return the events reported for the tasks of a successful Airflow run, by task id."""
    lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
    content = [event for event in map(json.loads, lines) if event["eventType"] == "COMPLETE"]
    of_tasks = [(event["run"]["facets"].get("airflow", {}), event) for event in content]
    return {
        facet["task"]["task_id"]: event
        for facet, event in of_tasks
        if facet.get("dagRun", {}).get("run_id") == run_id
    }


def names_of(datasets: Iterable[Dataset | Mapping[str, Any]]) -> set[tuple[str, str]]:
    """Return the namespaces and names of datasets, ours or those of an event."""
    return {
        (one.namespace, one.name) if isinstance(one, Dataset) else (one["namespace"], one["name"])
        for one in datasets
    }
