"""Publishing at the end of `evenlag run`: as soon as the job has its result, with what it needs imported."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from evenlag.import_ahead import import_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from evenlag.cli.cluster_target import Target
    from evenlag.cli.console import ReportProgress

# What the job reports after it has written a snapshot.
_AFTER_SNAPSHOT = ("observe: settling", "decide")
_NEEDED_TO_PUBLISH = ("evenlag.publishing.publish", "kafka", "deltalake", "pyarrow.dataset")


def publisher(
    target: Target, slot: datetime, run_id: str, report: ReportProgress
) -> Callable[[], dict[str, Any]]:
    """Return what publishes a cycle at its first call, and returns the summary at each."""

    @cache
    def publish() -> dict[str, Any]:
        from evenlag.publishing.publish import publish_cycle

        report("publishing", 0, 1)
        summary = publish_cycle(target.loaded, target.name, slot, run_id, actor="command")
        report("publishing", 1, 1)
        return summary

    return publish


def with_imports(report: ReportProgress) -> ReportProgress:
    """Import what publishing needs when the job has its snapshot: until then, its JVM needs all cores."""
    start_imports = cache(partial(import_in_thread, *_NEEDED_TO_PUBLISH))

    def report_and_import(step: str, done: int, total: int) -> None:
        if step.startswith(_AFTER_SNAPSHOT):
            start_imports()
        report(step, done, total)

    return report_and_import
