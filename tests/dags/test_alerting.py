"""Whom alerts go to, and figures for Airflow's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from evenlag.airflow.compat import AirflowFailException
from evenlag.airflow.tasks import emit_metrics, load_notifier, notify
from evenlag.monitoring.alerts import AlertChanges, Fault
from tests.support.file_notifier import FileNotifier

if TYPE_CHECKING:
    from pathlib import Path

CHANGES = AlertChanges(
    raised=(Fault("PLAN_REJECTED", "billing", "moves 41 partitions"),),
    cleared=(Fault("STALE_SNAPSHOT", "orders", "late"),),
    num_standing=3,
)


@pytest.mark.parametrize("name", ["FileNotifier", "made_before"])
def test_a_notifier_is_named_or_what_makes_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_NOTIFIER", f"tests.support.file_notifier:{name}")
    assert isinstance(load_notifier(), FileNotifier)


def test_without_a_name_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENLAG_NOTIFIER", raising=False)
    assert load_notifier() is None


@pytest.mark.parametrize(
    "name",
    [
        "tests.nowhere:FileNotifier",
        "tests.support.file_notifier:Nobody",
        "tests.support.file_notifier",
        "os:sep",
    ],
)
def test_a_name_that_leads_to_no_notifier_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENLAG_NOTIFIER", name)
    with pytest.raises(AirflowFailException, match="EVENLAG_NOTIFIER"):
        load_notifier()


def test_a_notifier_s_templates_have_what_is_new_and_what_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_NOTIFIED_FILE", str(tmp_path / "shown"))
    notify(FileNotifier(), CHANGES, "orders", {"run_id": "r"})
    assert (tmp_path / "shown").read_text().splitlines() == [
        "orders 1: PLAN_REJECTED billing: moves 41 partitions",
        "over: STALE_SNAPSHOT orders",
    ]


def test_figures_go_to_the_backend_that_airflow_is_set_up_with() -> None:
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability import stats

    class Backend(NoStatsLogger):
        def __init__(self) -> None:
            self.gauges: list[tuple[str, float, Any]] = []

        def gauge(self, stat: str, value: float, *_: Any, tags: Any = None, **__: Any) -> None:  # type: ignore[override]  # as it is called
            self.gauges.append((stat, value, tags))

    backend = Backend()
    stats.initialize(factory=lambda: backend, export_legacy_names=False)
    try:
        emit_metrics({"snapshot.age_s": 12.5, "alerts.standing": 3}, "orders")
    finally:
        stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
    assert backend.gauges == [
        ("evenlag.snapshot.age_s", 12.5, {"cluster": "orders"}),
        ("evenlag.alerts.standing", 3, {"cluster": "orders"}),
    ]
