"""Responses of the overview: by permission, with a tag, and with what is wrong instead of rows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import pytest

from evenlag.errors import PolicyError
from evenlag.lake.reader import LakeReader
from evenlag.lake.tables import PLANS, Table
from evenlag.overview.read_cluster import read_cluster
from evenlag.overview.views import _TABLES, OverviewView, ReportSource
from evenlag.publishing.event_log import append_plan_events, plan_event
from tests.support.s3.counted import counting_proxy
from tests.support.waiting import wait_until
from tests.truth.recorded_lakes import extract

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from evenlag.lake.filters import Filter
    from evenlag.overview.model import ClusterState, GroupRow
    from tests.support.s3.server import S3Server


# Callbacks of `atexit` run when all threads have ended.
ASKING: Final = """\
import atexit, sys, time
from evenlag.overview.views import OverviewView, ReportSource
view = OverviewView()
atexit.register(lambda: print(len(view._read)))
view.ask([ReportSource(f"{number}_", *sys.argv[1:]) for number in range(100)])
while not view._read:
    time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReportSource]:
    lake = extract("hints", tmp_path_factory.mktemp("hints"))
    first, second = lake.clusters
    return {
        first: ReportSource("", first, str(lake.root)),
        f"b_{second}": ReportSource("b_", second, str(lake.root)),
    }


def test_only_clusters_whose_dag_the_user_may_read_are_in_it(sources: dict[str, ReportSource]) -> None:
    view = OverviewView(lambda: sources)
    first, second = sources.values()
    both = view.answer(lambda _: True, {})
    one = view.answer(lambda dag_id: dag_id == f"b_lag_rebalance__{second.cluster}", {})
    assert (both.status_code, one.status_code) == (200, 200)
    of_both, of_one = (bytes(shown.body).decode() for shown in (both, one))
    assert f'data-c="{first.name}"' in of_both
    assert f'data-c="{second.name}"' in of_both
    assert first.name not in of_one
    assert f'data-c="{second.name}"' in of_one
    assert view.answer(lambda _: False, {}).status_code == 403


def test_what_did_not_change_is_not_sent_again(sources: dict[str, ReportSource]) -> None:
    view = OverviewView(lambda: sources)
    first = view.answer(lambda _: True, {})
    assert first.headers["Cache-Control"] == "no-store"
    assert "frame-ancestors 'self'" in first.headers["Content-Security-Policy"]
    again = OverviewView(lambda: sources).answer(lambda _: True, {}, first.headers["ETag"])
    assert (again.status_code, again.body) == (304, b"")
    other = view.answer(lambda _: True, {"sort": "skew"}, first.headers["ETag"])
    assert (other.status_code, other.headers["ETag"] == first.headers["ETag"]) == (200, False)


def test_rows_are_read_again_only_when_a_table_or_the_time_changes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = extract("hints", tmp_path / "hints")
    plan = LakeReader(str(lake.root)).read(PLANS).to_pylist()[-1]
    source = ReportSource("", plan["cluster"], str(lake.root))
    reads: list[ClusterState] = []

    def read(*arguments: Any, **more: Any) -> tuple[ClusterState, tuple[GroupRow, ...]]:
        state, rows = read_cluster(*arguments, **more)
        reads.append(state)
        return state, rows

    monkeypatch.setattr("evenlag.overview.views.read_cluster", read)
    monkeypatch.setattr("evenlag.overview.views._FRESH_S", 0.0)
    view = OverviewView(lambda: {source.name: source})
    first, counts = view.read([source]), view.count([source])
    again = view.read([source])
    assert len(reads) == 1
    assert (again.groups, again.clusters) == (first.groups, first.clusters)
    assert view.count([source]) == counts
    at = datetime.now(UTC)
    event = plan_event(plan, "EXPIRED", reason="a test", actor="test", at=at)
    append_plan_events(source.lake, [event | {"day": at.date(), "plan_id": "of-a-test"}])
    view.read([source])
    assert len(reads) == 2
    expired = counts[source.name].events["EXPIRED"]
    assert view.count([source])[source.name].events["EXPIRED"] == expired + 1
    # As if an approval could no longer be given by now.
    (known,) = view._read.values()
    known.read = (replace(known.read[0], valid_until=at), known.read[1])
    view.read([source])
    assert len(reads) == 3


def test_a_commit_reads_only_its_own_cluster_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = extract("hints", tmp_path / "hints")
    sources = [ReportSource("", name, str(lake.root)) for name in lake.clusters]
    reads: list[str] = []
    tables: set[Table] = set()
    selected = LakeReader._selected

    def read(reader: LakeReader, cluster: str, *rest: Any, **more: Any) -> Any:
        def spy(reader: LakeReader, table: Table, filters: Sequence[Filter]) -> Any:
            tables.add(table)
            return selected(reader, table, filters)

        reads.append(cluster)
        with monkeypatch.context() as patch:
            patch.setattr(LakeReader, "_selected", spy)
            return read_cluster(reader, cluster, *rest, **more)

    monkeypatch.setattr("evenlag.overview.views.read_cluster", read)
    monkeypatch.setattr("evenlag.overview.views._FRESH_S", 0.0)
    view = OverviewView()
    view.read(sources)
    assert reads == list(lake.clusters)
    # A change of a table that is not compared would not be seen.
    assert tables <= set(_TABLES)
    plan = next(row for row in LakeReader(str(lake.root)).read(PLANS).to_pylist())
    append_plan_events(
        str(lake.root), [plan_event(plan, "EXPIRED", reason="a test", actor="t", at=plan["slot"])]
    )
    reads.clear()
    view.read(sources)
    assert reads == [plan["cluster"]]


@pytest.mark.extended
def test_a_page_looks_once_at_each_table_on_s3(
    sources: dict[str, ReportSource], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.make_bucket("overview")
    shutil.copytree(next(iter(sources.values())).lake, s3.folder / "overview" / "lake")
    monkeypatch.setattr("evenlag.overview.views._FRESH_S", 0.0)
    view, on_s3 = OverviewView(), [replace(source, lake="s3://overview/lake") for source in sources.values()]
    with counting_proxy(s3.endpoint) as proxy:
        for name, value in (s3.environment() | {"AWS_ENDPOINT_URL": proxy.endpoint}).items():
            monkeypatch.setenv(name, value)
        first = view.read(on_s3)
        with proxy.counted() as counts:
            again = view.read(on_s3)
    assert [state.problem for state in first.clusters] == [None, None]
    assert again == first
    assert {table: count for (operation, table), count in counts.items() if operation == "LIST"} == {
        table.name: 1 for table in _TABLES
    }
    assert "GET" not in {operation for operation, _ in counts}


def test_a_page_waits_only_for_clusters_that_were_never_read(
    sources: dict[str, ReportSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = Event()
    monkeypatch.setattr("evenlag.overview.views._FRESH_S", 0.0)
    view = OverviewView(lambda: sources, wait_s=0.0)
    view.read(list(sources.values()))
    whole = OverviewView(lambda: sources).answer(lambda _: True, {})
    last = list(sources)[-1]

    def held(*arguments: Any, **more: Any) -> Any:
        assert may_go_on.wait(300)
        return read_cluster(*arguments, **more)

    monkeypatch.setattr("evenlag.overview.views.read_cluster", held)
    for source, known in view._read.items():
        # As if a table of it had changed.
        known.files = None if source.name == last else known.files
    try:
        page = bytes(view.answer(lambda _: True, {}).body).decode()
        assert "being read again" in page
        assert page.count("<noscript><meta") == 1
        assert 'data-refresh="3"' in page
        assert page.count("<tr data-s=") == bytes(whole.body).decode().count("<tr data-s=") > 0
    finally:
        may_go_on.set()
    monkeypatch.setattr("evenlag.overview.views._FRESH_S", 3_600.0)
    wait_until(lambda: view.answer(lambda _: True, {}).headers["ETag"] == whole.headers["ETag"])


def test_a_process_ends_after_the_read_in_hand(sources: dict[str, ReportSource]) -> None:
    source = next(iter(sources.values()))
    ended = subprocess.run(
        [sys.executable, "-c", ASKING, source.cluster, source.lake],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert int(ended.stdout) < 100


def test_an_unexpected_fault_stays_with_its_cluster(
    sources: dict[str, ReportSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sources.values()

    def read(reader: LakeReader, cluster: str, *rest: Any, **more: Any) -> Any:
        if cluster == first.cluster:
            raise ZeroDivisionError("secret")
        return read_cluster(reader, cluster, *rest, **more)

    monkeypatch.setattr("evenlag.overview.views.read_cluster", read)
    body = bytes(OverviewView(lambda: sources).answer(lambda _: True, {}).body).decode()
    assert f"<b>{first.name}</b>: the server" in body
    assert "secret" not in body
    assert f'data-c="{second.name}"' in body


def test_a_lake_that_cannot_be_read_is_named_and_the_others_are_shown(
    sources: dict[str, ReportSource], tmp_path: Path
) -> None:
    (tmp_path / "snapshots" / "_delta_log").mkdir(parents=True)
    (tmp_path / "snapshots" / "_delta_log" / "00000000000000000000.json").write_text("no log")
    gone = ReportSource("", "gone", str(tmp_path))
    shown = OverviewView(lambda: {**sources, "gone": gone}).answer(lambda _: True, {})
    assert shown.status_code == 200
    body = bytes(shown.body)
    assert b'<li class="bad"><b>gone</b>: ' in body
    assert body.count(b"<tr data-s=") > 0


def test_a_cluster_without_a_snapshot_says_so(tmp_path: Path) -> None:
    shown = OverviewView(lambda: {"new": ReportSource("", "new", str(tmp_path))}).answer(lambda _: True, {})
    assert shown.status_code == 200
    assert b"there is no finished snapshot yet" in bytes(shown.body)
    assert b"There is no group yet" in bytes(shown.body)


def test_a_policy_that_cannot_be_read_is_not_quoted() -> None:
    def broken() -> dict[str, ReportSource]:
        raise PolicyError("secret: line 3")

    shown = OverviewView(broken).answer(lambda _: True, {})
    assert shown.status_code == 503
    assert b"secret" not in bytes(shown.body)
