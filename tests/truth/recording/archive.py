"""What was recorded, as one compressed archive: equal content gives equal bytes."""

from __future__ import annotations

import io
import json
import tarfile
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from sandbox.workload.journal import read_journal
from tests.recorded.period import JOURNAL_EVENTS
from tests.truth.recording.stage import LAKE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.truth.recording.stage import Stage

_PACKAGES: Final = ("pyspark", "delta-spark", "deltalake")


def about(stage: Stage, kafka_version: str) -> dict[str, Any]:
    """Say what a lake is and what happened, by wall clock."""
    policy = stage.loaded.policy
    return {
        "clusters": sorted(policy.clusters),
        "versions": {"kafka": kafka_version, **{name: version(name) for name in _PACKAGES}},
        "groups": {
            key: {
                "group_id": group.group_id,
                "topic": group.topic,
                "modes": {
                    name: policy.group_settings(name, group.group_id).mode.value for name in policy.clusters
                },
            }
            for key, group in stage.workloads.items()
        },
        "policy": stage.text,
        "done": stage.done,
    }


def pack(folder: Path, stage: Stage, target: Path, kafka_version: str) -> None:
    """Write ``lake/``, ``journals/`` and ``about.json`` of a stage's folder to an archive."""
    files = {
        f"{LAKE}/{path.relative_to(folder / LAKE)}": path.read_bytes()
        for path in (folder / LAKE).rglob("*")
        if path.is_file()
    }
    for key, group in stage.workloads.items():
        files[f"journals/{key}.jsonl"] = _journal(group.journals)
    text = json.dumps(about(stage, kafka_version), indent=1, sort_keys=True, ensure_ascii=True)
    files["about.json"] = (text + "\n").encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    at_s = stage.done[0]["wall_ms"] // 1000
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), at_s, 0o644
            archive.addfile(entry, io.BytesIO(content))


def _journal(paths: list[Path]) -> bytes:
    events = [event for path in paths for event in read_journal(path)[0]]
    kept = [event for event in events if event["event"] in JOURNAL_EVENTS]
    kept.sort(key=lambda event: float(event["at_s"]))
    return "".join(json.dumps(event, sort_keys=True) + "\n" for event in kept).encode()
